"""The turns of a search: torchrec's own, and those that lead torchrec to a known outcome.

Each turn has the methods that torchrec calls: the next proposal, its placement, and the feedback.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torchrec.distributed.planner.types import (
    Perf,
    Proposer,
    Shard,
    ShardingOption,
    Storage,
)

from planners.embedding.search.options import copy_without_ranks, with_shards
from planners.embedding.search.outcome import NotFound
from planners.embedding.search.space import Ints, SearchSpace

Options = list[ShardingOption]

MOST_SHARDS = 2_000_000
"""Shards of a proposal up to which they are created as objects: about 1 GB."""


class WrongPlan(Exception):
    """The compiled search failed or found a wrong plan; the message is a clause with the reason."""


@dataclass
class TorchrecsTurn:
    """TorchRec's own search, with copies of the planner's proposers, which `load` returns.

    `space` is what to search once the compiled search is there; None if torchrec searches to the
    end.
    """

    load: Callable[[], list[Proposer]]
    space: SearchSpace | None

    @cached_property
    def _proposers(self) -> list[Proposer]:
        return self.load()

    def propose(self) -> Options | None:
        """Return the next proposal of the first proposer that has one, as torchrec does."""
        while self._proposers:
            proposal: Options | None = self._proposers[0].propose()
            if proposal:
                return proposal
            del self._proposers[0]
        return None

    def feedback(self, *result: Any) -> None:
        """Tell the proposer."""
        self._proposers[0].feedback(*result)


@dataclass
class PlanFound:
    """The only proposal is the plan of the compiled search, with its ranks."""

    plan: Options | None
    rating: float  # milliseconds

    def propose(self) -> Options | None:
        """Return the plan, then None."""
        return self.plan

    def feedback(self, rating: float | None) -> None:
        """Take the plan; raises WrongPlan if torchrec rates it differently."""
        if rating != self.rating:
            raise WrongPlan(
                f"the compiled search rates its plan {self.rating} ms, torchrec {rating}"
            )
        self.plan = None


@dataclass
class NothingFound:
    """Proposals that the planner's partitioner rejects; torchrec's error has their memory."""

    proposals: list[Options]
    summed: bool  # each option has one shard with its whole memory, so it cannot be placed

    @classmethod
    def of(cls, space: SearchSpace, outcome: NotFound) -> "NothingFound":
        """Propose the smallest and the last failed proposal, `summed` from MOST_SHARDS on."""
        rows = [row.tolist() for row in (outcome.smallest, outcome.last) if row is not None]
        if rows[1:] == rows[:1]:
            rows = rows[:1]
        counts = np.diff(space.first_shard)
        summed = any(int(counts[row].sum()) > MOST_SHARDS for row in rows)
        return cls([[_copy(space, option, summed) for option in row] for row in rows], summed)

    def propose(self) -> Options | None:
        """Return the next proposal, or None after the last one."""
        return self.proposals[0] if self.proposals else None

    def feedback(self, rating: float | None) -> None:
        """Go to the next proposal; raises WrongPlan if torchrec places this one."""
        if rating is not None:
            raise WrongPlan("torchrec places a proposal that the compiled search does not")
        del self.proposals[0]


def _copy(space: SearchSpace, number: int, summed: bool) -> ShardingOption:
    option = space.options[number]
    if not summed:
        return copy_without_ranks(option, ShardingOption)
    perf = Perf(float(space.option_perf[number]), 0.0, 0.0, 0.0)
    whole = Shard([], [], Storage(*space.option_storage[number].tolist()), perf)
    return with_shards(option, [whole], ShardingOption)


def least_memory(space: SearchSpace) -> Ints:
    """Return each table's option with the least HBM, then DDR, then SSD, shape (T,)."""
    order = np.lexsort((*space.option_storage.T[::-1], space.table))
    return np.asarray(order[np.searchsorted(space.table[order], np.arange(space.tables))])
