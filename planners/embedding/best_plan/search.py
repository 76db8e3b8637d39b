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

from planners.embedding.best_plan.bounds.bound import linear_bound
from planners.embedding.best_plan.bounds.presolve import presolved
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.strategy import CertifiedSearch, lower_bound, worth_exact
from planners.embedding.same_plan.bin_proposer import BinProposer
from planners.embedding.same_plan.rules import PartitionRules
from planners.embedding.same_plan.search import SamePlan
from planners.embedding.search import warm_up
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Devices, Ints, SearchSpace, search_space

# All of torchrec's proposals are tried up to this number of tables times ranks: there they take a
# small part of a second, and beyond it more than the local search.
_MOST_PROPOSED = 10_000


def best_plan(
    space: SearchSpace, devices: Devices, deadline: Deadline | None = None, seed: int = 0
) -> Found | NotFound:
    """Return a plan as near the bound as the work allows; the same one for the same seed.

    The order of a table's options makes no difference. The search ends after its work, or at the
    deadline with the best plan so far or none. No plan is worse than those of torchrec's proposals:
    of the uniform ones on large problems, of all on small ones and where nothing else is found.
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
    """Return option numbers table by table, those of a table by name and figures, shape (O,).

    Up to torchrec 1.8.0 their own order is that of a set, which differs between processes.
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
    outcome = _proposed(space, devices, everything, deadline)
    done, proven, tried = 0, 0.0, []
    if not deadline.passed:
        found = presolved(candidates(space, devices))
        proven = linear_bound(found, deadline).milliseconds
        if not math.isfinite(proven):
            return NotFound(None, None, 0, math.inf)
        tried = ["for a proof, the linear programme"]
        if local:
            search = CertifiedSearch(found, proven, outcome, seed, deadline)
            outcome = search.run()
            done, proven, tried = search.rounds, search.proven, search.tried
    if isinstance(outcome, NotFound) and not everything:
        outcome = _proposed(space, devices, everything=True, deadline=deadline)
    if isinstance(outcome, Found):
        return replace(outcome, bound=min(proven, outcome.rating))
    words = [f"{outcome.proposals} proposals of TorchRec", *tried]
    if deadline.passed:
        words.append("until the time was up")
    proposals = outcome.proposals + done
    return replace(outcome, proposals=proposals, bound=proven, tried="; ".join(words))


def best_bound(space: SearchSpace, devices: Devices) -> float:
    """Return the best lower bound on all plans' milliseconds that is worth its time.

    On small problems the search for the best plan proves more than the bounds that need no plan.
    """
    least = lower_bound(space, devices).milliseconds
    return max(least, searched_bound(space, devices)) if math.isfinite(least) else least


def searched_bound(space: SearchSpace, devices: Devices) -> float:
    """Return the bound that the search proves on problems small enough to be solved, else 0."""
    if not can_be_placed_locally(space, devices) or not worth_exact(candidates(space, devices)):
        return 0.0
    return best_plan(space, devices).bound


def can_be_placed_locally(space: SearchSpace, devices: Devices) -> bool:
    """Whether the local search can place this; other problems are left to torchrec's proposals.

    It places tables that do not depend on each other, and only knows HBM and DDR. It treats a
    device that is overfull at first as one without memory. Torchrec also keeps shards of no bytes
    off such a device, so there must be none.
    """
    independent = (np.bincount(space.group) == 1).all()
    kept_off = (devices.storage >= 0).all() or space.storage.any(axis=1).all()
    return bool(independent and not space.storage[:, 2].any() and kept_off)


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
