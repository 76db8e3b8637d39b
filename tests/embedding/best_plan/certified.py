"""Clocks for the search for the best plan, and torchrec's plans to compare with."""

import math

from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.proposers import (
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)

from planners.embedding.same_plan.proposals import rules_of
from planners.embedding.same_plan.search import SamePlan
from planners.embedding.search.outcome import Found

DEFAULT = (
    GridSearchProposer,
    GreedyProposer,
    lambda: GreedyProposer(use_depth=False),
    UniformProposer,
)


def standing_still():
    return 0.0


class JumpingClock:
    """A clock that shows 0 s for the first `looks` calls, and 1e9 s after them."""

    def __init__(self, looks):
        self.looks = looks

    def __call__(self):
        self.looks -= 1
        return 0.0 if self.looks >= 0 else 1e9


def proposed(space, placed_on, *proposers):
    """Return the best plan of torchrec's proposals, by the default proposers or by `proposers`."""
    search = SamePlan([new() for new in proposers or DEFAULT], rules_of(GreedyPerfPartitioner()))
    return search(space, placed_on)


def rating(outcome):
    return outcome.rating if isinstance(outcome, Found) else math.inf
