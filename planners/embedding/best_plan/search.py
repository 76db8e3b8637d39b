"""Searches for a plan with a rating close to a proven lower bound."""

import math
from dataclasses import replace

import numpy as np
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner import planners
from torchrec.distributed.planner.proposers import (
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.types import Proposer, ShardingOption
from torchrec.distributed.types import ShardingType

from planners.embedding.best_plan.bounds.bound import linear_bound
from planners.embedding.best_plan.bounds.presolve import presolved
from planners.embedding.best_plan.bounds.sizes import MOST_FOR_ALL_PROPOSALS, worth_exact
from planners.embedding.best_plan.candidates import Bools, all_candidates, candidates, fitting
from planners.embedding.best_plan.local.state import NOWHERE
from planners.embedding.best_plan.sharding_types import with_fewest_types
from planners.embedding.best_plan.strategy import CertifiedSearch, lower_bound, usual_work
from planners.embedding.same_plan.bin_proposer import BinProposer
from planners.embedding.same_plan.rules import PartitionRules
from planners.embedding.same_plan.search import SamePlan
from planners.embedding.search import warm_up
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import (
    Devices,
    Ints,
    SearchSpace,
    search_space,
    torchrecs_order,
)

# Up to this number of tables times ranks, all of torchrec's proposals are tried, in a fraction of a
# second. On larger problems they would take more time than the local search.
_MOST_PROPOSED = 10_000

# Part of all work, for each set of fewer sharding types.
_WORK_OF_TYPES = 0.05


def best_plan(
    space: SearchSpace, devices: Devices, deadline: Deadline | None = None, seed: int = 0
) -> Found | NotFound:
    """Search for the plan with the lowest rating, and for a lower bound on all ratings.

    The same seed gives the same plan, for any order of a table's options. The search ends after a
    fixed amount of work, or at the deadline with the best plan so far, if any. The plan is never
    worse than those of torchrec's UniformProposer; on small problems, or if nothing else is found
    with up to MOST_FOR_ALL_PROPOSALS tables times ranks, never worse than those of all torchrec's
    proposers. Of plans with equal ratings, it prefers those with few sharding types in each module.
    """
    warm_up.begin(warm_up.BEST_PLAN)
    order = canonical_order(space)
    reordered = search_space([space.options[number] for number in order.tolist()])
    outcome = search_in_order(reordered, devices, deadline or Deadline(), seed, few_types=True)
    if isinstance(outcome, Found):
        return replace(outcome, options=order[outcome.options])
    smallest, last = (
        None if row is None else order[row] for row in (outcome.smallest, outcome.last)
    )
    return NotFound(smallest, last, outcome.proposals, outcome.bound, outcome.tried)


def canonical_order(space: SearchSpace) -> Ints:
    """Return the numbers of `acceptable` options, sorted by table, type, kernel and estimates.

    Up to torchrec 1.8.0 the options of a table come from a set, whose order differs by process.
    """
    types, kernels = torchrecs_order(space.options).T
    figures = (space.option_perf, space.largest_shard, *space.option_storage.T, space.placement)
    order = np.lexsort([*reversed(figures), kernels, types, space.table])
    return order[acceptable(space)[order]]


def acceptable(space: SearchSpace) -> Bools:
    """Return for each option whether torchrec accepts a plan with it, shape (O,).

    All options of a table are acceptable if otherwise none were, since torchrec's error then says
    why. Releases without `validate_compute_kernels` accept every option.
    """
    if not hasattr(planners, "validate_compute_kernels"):
        return np.ones(len(space.options), bool)
    accepted = np.array([_is_accepted(option) for option in space.options], bool)
    return accepted | ~np.isin(space.table, space.table[accepted])


def _is_accepted(option: ShardingOption) -> bool:
    """Whether torchrec's `validate_compute_kernels` accepts an option; memory is checked before."""
    factor = option.cache_load_factor
    if option.compute_kernel in planners._CACHING_KERNELS and factor is not None:
        return not (factor <= 0 or factor >= 1)
    is_dense = option.compute_kernel == EmbeddingComputeKernel.DENSE.value
    return not is_dense or option.sharding_type == ShardingType.DATA_PARALLEL.value


def search_in_order(
    space: SearchSpace,
    devices: Devices,
    deadline: Deadline,
    seed: int = 0,
    known: Found | None = None,
    few_types: bool = False,
) -> Found | NotFound:
    """Search as `best_plan` does, for options in canonical order; `known` is a plan that fits.

    It reads the arrays alone, so a caller may change the estimates in them. With `few_types`, the
    plan then gets as few sharding types as its rating allows.
    """
    local = can_be_placed_locally(space, devices)
    size = space.tables * devices.ranks
    everything = not local or size <= _MOST_PROPOSED
    outcome: Found | NotFound = known or NotFound(None, None, 0)
    if everything and known is None:
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
    if not everything:
        rating = outcome.rating if isinstance(outcome, Found) else math.inf
        if max(_least_uniform(space, devices), proven) < rating:
            uniform = _proposed(space, devices, everything=False, deadline=deadline)
            if isinstance(uniform, Found) and uniform.rating < rating:
                outcome = uniform
    if isinstance(outcome, NotFound) and size <= MOST_FOR_ALL_PROPOSALS and not everything:
        outcome = _proposed(space, devices, everything=True, deadline=deadline)
    if isinstance(outcome, Found):
        if few_types:
            every, work = all_candidates(space, devices), usual_work(space, devices)
            work = math.ceil(_WORK_OF_TYPES * work) if local else 0
            outcome = with_fewest_types(every, outcome, seed, work, deadline)
        return replace(outcome, bound=min(proven, outcome.rating))
    words = [f"{outcome.proposals} proposals of TorchRec", *tried]
    if deadline.passed:
        words.append("until the time was up")
    proposals = outcome.proposals + done
    return replace(outcome, proposals=proposals, bound=proven, tried="; ".join(words))


def best_bound(space: SearchSpace, devices: Devices) -> float:
    """Return the best lower bound on all plans' milliseconds from provers worth their run time.

    On small problems, searching for the best plan proves a higher bound than `lower_bound` does.
    """
    least = lower_bound(space, devices).milliseconds
    return max(least, searched_bound(space, devices)) if math.isfinite(least) else least


def searched_bound(space: SearchSpace, devices: Devices) -> float:
    """Return the bound that `best_plan` proves, or 0 if the problem is too big for exact search."""
    if not can_be_placed_locally(space, devices) or not worth_exact(candidates(space, devices)):
        return 0.0
    return best_plan(space, devices).bound


def can_be_placed_locally(space: SearchSpace, devices: Devices) -> bool:
    """Whether the local search can handle a problem; otherwise only torchrec's proposals are tried.

    It requires tables that do not depend on each other and use no SSD. It treats a device with
    negative free memory as one without memory and, unlike torchrec, may put a shard of 0 bytes on
    it; so a problem with such a device must have no such shard.
    """
    independent = (np.bincount(space.group) == 1).all()
    kept_off = (devices.storage >= 0).all() or space.storage.any(axis=1).all()
    return bool(independent and not space.storage[:, 2].any() and kept_off)


def _least_uniform(space: SearchSpace, devices: Devices) -> float:
    """Return a lower bound in ms on the plans of UniformProposer; each has one sharding type."""
    types, kind = np.unique([o.sharding_type for o in space.options], return_inverse=True)
    least = np.full((2, len(types), space.tables), np.inf)
    fits = fitting(space, devices)
    for known, cost in zip(least, (space.option_perf, space.largest_shard), strict=True):
        np.minimum.at(known, (kind, space.table), np.where(fits, cost, NOWHERE))
    least[~np.isfinite(least)] = 0  # a table without options of this type
    mean, largest = least[0].sum(axis=1) / devices.ranks, least[1].max(axis=1)
    return float(np.maximum(mean * (1 - 1e-9), largest).min())


def _proposed(
    space: SearchSpace, devices: Devices, everything: bool, deadline: Deadline
) -> Found | NotFound:
    """Return the best plan from torchrec's proposals: the uniform ones, or `everything`."""
    proposers: list[Proposer] = [UniformProposer()]
    if everything:
        greedy = (GreedyProposer(), GreedyProposer(use_depth=False))
        proposers += [*greedy, GridSearchProposer()]
        if (devices.storage.sum(0) >= 0).all():  # bins need non-negative memory
            proposers.append(BinProposer())
    return SamePlan(proposers, PartitionRules(), deadline)(space, devices)
