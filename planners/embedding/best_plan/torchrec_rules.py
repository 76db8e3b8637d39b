"""Rules of torchrec for the best plan: its accepted options, proposals, and order of types."""

from dataclasses import replace
from itertools import chain, combinations

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

from planners.embedding.best_plan.candidates import (
    Bools,
    all_candidates,
    dominates,
    fitting,
    sums_of,
)
from planners.embedding.same_plan.bin_proposer import BinProposer
from planners.embedding.same_plan.proposals import PartitionRules
from planners.embedding.same_plan.search import SamePlan
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Devices, Ints, SearchSpace, load_of, torchrecs_order


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


def can_be_placed_locally(space: SearchSpace, devices: Devices) -> bool:
    """Whether the local search can handle a problem; otherwise only torchrec's proposals are tried.

    It requires tables that do not depend on each other and use no SSD. It treats a device with
    negative free memory as one without memory and, unlike torchrec, may put a shard of 0 bytes on
    it; so a problem with such a device must have no such shard.
    """
    independent = (np.bincount(space.group) == 1).all()
    kept_off = (devices.storage >= 0).all() or space.storage.any(axis=1).all()
    return bool(independent and not space.storage[:, 2].any() and kept_off)


def least_uniform(space: SearchSpace, devices: Devices) -> float:
    """Return a lower bound in ms on the plans of UniformProposer; each has one sharding type."""
    types, kind = np.unique([o.sharding_type for o in space.options], return_inverse=True)
    least = np.full((2, len(types), space.tables), np.inf)
    fits = fitting(space, devices)
    for known, cost in zip(least, (space.option_perf, space.largest_shard), strict=True):
        np.minimum.at(known, (kind, space.table), np.where(fits, cost, np.inf))
    least[~np.isfinite(least)] = 0  # a table without options of this type
    mean, largest = least[0].sum(axis=1) / devices.ranks, least[1].max(axis=1)
    return float(np.maximum(mean * (1 - 1e-9), largest).min())


def proposed(
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


def with_fewest_types(space: SearchSpace, devices: Devices, plan: Found) -> Found:
    """Return a plan on the same ranks that rates at most as much, with the fewest sharding types.

    For each sharding type of a module, TorchRec makes a lookup of its own, and all-to-alls of their
    own for its inputs and outputs. The estimates ignore this, so such plans are rated equal.
    Of sets of types in a module that are as small, it takes the one that is first in TorchRec's
    list; of options with a type in the set, the first.
    """
    sums, types = sums_of(space), torchrecs_order(space.options)[:, 0]
    fitting = all_candidates(space, devices)
    of_table = [own.tolist() for own in np.split(fitting.options, fitting.first[1:-1])]
    # 1. The options that fit in the place of each option of the plan, shard by shard.
    table = space.table[plan.options]
    choices = [
        [other for other in of_table[number] if dominates(space, sums, other, option)]
        for number, option in zip(table.tolist(), plan.options.tolist(), strict=True)
    ]
    # 2. For each module, the smallest set of types with an option for each of its tables.
    options, module = plan.options.copy(), space.module[table]
    for number in range(module.max() + 1):
        own = np.flatnonzero(module == number).tolist()
        possible = [set(types[choices[place]].tolist()) for place in own]
        every = sorted(set().union(*possible))
        sets = chain.from_iterable(combinations(every, count + 1) for count in range(len(every)))
        kept = next(
            chosen for chosen in sets if all(not kinds.isdisjoint(chosen) for kinds in possible)
        )
        for place in own:
            options[place] = next(o for o in choices[place] if types[o] in kept)
    rating = load_of(space, options, plan.ranks, devices.ranks).rating
    return replace(plan, options=options, rating=rating)
