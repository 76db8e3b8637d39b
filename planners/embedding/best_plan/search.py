"""The search for a plan near a proven bound."""

import math
from dataclasses import replace

import numpy as np
from torchrec.distributed.planner.proposers import (
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.types import Proposer

from planners.embedding.best_plan.bounds.bound import linear_bound, lower_bound
from planners.embedding.best_plan.bounds.presolve import presolved
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.exact.search import worth_exact
from planners.embedding.best_plan.local.runs import EXACT_SHARE, LocalSearch
from planners.embedding.same_plan.bin_proposer import BinProposer
from planners.embedding.same_plan.rules import PartitionRules
from planners.embedding.same_plan.search import SamePlan
from planners.embedding.search import warm_up
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Devices, Ints, SearchSpace, search_space

# Ratings of a rank in a second of CPU on one core of the cloud machine on which this was measured,
# where it was 120 to 175 million; and the part of a time limit that is left for them.
_WORK_PER_SECOND = 120e6
_SHARE_OF_LIMIT = 0.7
_MOST_SECONDS = 4.0

# Torchrec's own proposals are all tried where there are at most so many tables times ranks.
_MOST_PROPOSED = 10_000


def best_plan(
    space: SearchSpace, devices: Devices, deadline: Deadline | None = None, seed: int = 0
) -> Found | NotFound:
    """Return a plan as near the bound as the time allows; the same one for the same seed.

    How the options of a table are ordered makes no difference. It ends after a count of work
    (`usual_work`), or at the deadline, and then with the best plan so far or none. No plan is worse
    than those of torchrec's proposals: of the uniform ones on large problems, and of all on small
    ones and where nothing else is found.
    """
    warm_up.begin(warm_up.BEST_PLAN)
    order = canonical_order(space)
    reordered = search_space([space.options[number] for number in order.tolist()])
    outcome = _best_plan(reordered, devices, deadline or Deadline(), seed)
    if isinstance(outcome, Found):
        return replace(outcome, options=order[outcome.options])
    smallest, last = (
        None if row is None else order[row] for row in (outcome.smallest, outcome.last)
    )
    return NotFound(smallest, last, outcome.proposals, outcome.bound, outcome.tried)


def canonical_order(space: SearchSpace) -> Ints:
    """Return option numbers table after table, those of a table by name and figures, shape (O,).

    Up to torchrec 1.8.0 they are listed in the order of a set, which differs between processes.
    """
    types = [option.sharding_type for option in space.options]
    kernels = [option.compute_kernel for option in space.options]
    figures = (space.option_perf, space.largest_shard, *space.option_storage.T, space.placement)
    return np.lexsort([*reversed(figures), kernels, types, space.table])


def _best_plan(
    space: SearchSpace, devices: Devices, deadline: Deadline, seed: int
) -> Found | NotFound:
    local = can_be_placed_locally(space, devices)
    everything = not local or space.tables * devices.ranks <= _MOST_PROPOSED
    proposed = _proposed(space, devices, everything, deadline)
    done, proven, tried = 0, 0.0, []
    if not deadline.passed:
        found = presolved(candidates(space, devices))
        bound = linear_bound(found, deadline)
        if not math.isfinite(bound.milliseconds):
            return NotFound(None, None, 0, math.inf)
        proven = bound.milliseconds
        if local:
            work = usual_work(space, devices, deadline.seconds)
            if deadline.seconds is not None and worth_exact(found):
                work = math.ceil(work / (1 + EXACT_SHARE))
            search = LocalSearch(found, bound, proposed, work, seed)
            search.run(deadline)
            proposed, done, proven = search.outcome(), search.rounds, search.proven
            tried = search.tried
        else:
            tried = ["for a proof, the linear programme"]
    if isinstance(proposed, NotFound) and not everything:
        proposed = _proposed(space, devices, everything=True, deadline=deadline)
    if isinstance(proposed, NotFound):
        of_torchrec = f"{proposed.proposals} proposals of TorchRec"
        until = ["until the time was up"] if deadline.passed else []
        return replace(
            proposed,
            proposals=proposed.proposals + done,
            bound=proven,
            tried="; ".join([of_torchrec, *tried, *until]),
        )
    return replace(proposed, bound=min(proven, proposed.rating))


def best_bound(space: SearchSpace, devices: Devices) -> float:
    """Return the best bound on the rating of all plans that is worth its time.

    On small problems the search for the best plan proves more than the bounds that need no plan.
    """
    least = lower_bound(space, devices).milliseconds
    return max(least, searched_bound(space, devices)) if math.isfinite(least) else least


def searched_bound(space: SearchSpace, devices: Devices) -> float:
    """Return what the search for the best plan proves where it can be exact, else 0."""
    if not can_be_placed_locally(space, devices) or not worth_exact(candidates(space, devices)):
        return 0.0
    return best_plan(space, devices).bound


def usual_work(space: SearchSpace, devices: Devices, limit: float | None = None) -> int:
    """Return how many ratings of a rank are usually enough, or usually done within a limit."""
    if limit is not None:
        seconds = _SHARE_OF_LIMIT * limit
    else:
        seconds = min(0.5 + space.tables * (16 + devices.ranks) / 1500, _MOST_SECONDS)
    return int(seconds * _WORK_PER_SECOND) + 1


def can_be_placed_locally(space: SearchSpace, devices: Devices) -> bool:
    """Whether the local search can place this; the rest is left to torchrec's proposals.

    It places tables that do not depend on each other, and looks at HBM and DDR alone. A device that
    is overfull at first is one without memory to it, but torchrec puts not even a shard there that
    takes none.
    """
    one_by_one = (np.bincount(space.group) == 1).all()
    kept_off = (devices.storage >= 0).all() or space.storage.any(axis=1).all()
    return bool(one_by_one and not space.storage[:, 2].any() and kept_off)


def _proposed(
    space: SearchSpace, devices: Devices, everything: bool, deadline: Deadline
) -> Found | NotFound:
    """Return the best plan that torchrec's proposals lead to."""
    proposers: list[Proposer] = [UniformProposer()]
    if everything:
        greedy = (GreedyProposer(), GreedyProposer(use_depth=False))
        proposers += [*greedy, GridSearchProposer()]
        if (devices.storage.sum(0) >= 0).all():  # there is memory to cut into bins
            proposers.append(BinProposer())
    return SamePlan(proposers, PartitionRules(), deadline)(space, devices)
