"""The arrays that the compiled partitioner reads (`Inputs`) and writes (`Work`)."""

from typing import NamedTuple

import numpy as np

from planners.embedding.search.space import (
    Devices,
    Floats,
    Floats2,
    Ints,
    Ints2,
    Placement,
    SearchSpace,
)

# A row's groups are placed in this many steps; the state of the ranks before each step is saved.
_STEPS = 8


class Inputs(NamedTuple):
    """The arrays that the kernels read; arrays without a comment are copied from SearchSpace.

    A run is a series of equal shards within an option that places shard i on rank i (uniform) or on
    a host's i-th rank (HOST_ROWS). Option o has the runs first_run[o] to first_run[o + 1]. Run r
    ends before shard run_end[r], and its shards have the estimate run_estimate[r].
    A stretch is a series of ranks on which every uniform option has equal shards. Stretch s ends
    before rank stretch_end[s]. For uniform options, run_end counts stretches instead of shards.
    """

    first_shard: Ints
    estimate: Ints
    storage: Ints2
    perf: Floats2
    total: Floats
    placement: Ints
    option_storage: Ints2
    option_perf: Floats
    group: Ints  # of each option
    precedence: Ints  # of each option: a group of larger precedence is placed before larger groups
    by_perf: bool  # sort groups by perf, not by storage
    first_run: Ints
    run_end: Ints
    run_estimate: Ints
    stretch_end: Ints
    capacity: Ints2  # shape (3, ranks)
    local_ranks: int
    host_ranks: int


class Ranks(NamedTuple):
    """The free memory and the load of some ranks."""

    free: Ints2  # bytes of HBM, DDR and SSD, shape (3, ranks)
    load: Floats2  # milliseconds of each component of perf, shape (5, ranks)
    total: Floats  # milliseconds, the sum of the components, shape (ranks,)


class Hosts(NamedTuple):
    """The load, free memory and order of the hosts."""

    total: Floats  # summed perf of a host's ranks, shape (hosts,)
    least: Floats  # perf of a host's least loaded rank, shape (hosts,)
    free: Ints2  # summed free memory of a host's ranks, shape (3, hosts)
    order: Ints  # host numbers, sorted by `total`, shape (hosts,)


class Last(NamedTuple):
    """The last row's placement; the next row continues it from the step of the first change."""

    placed: Ints  # number of groups placed, -1 if the uniform options did not fit, shape (1,)
    hbm: Ints  # the `hbm` argument of that placement, in bytes per rank, shape (1,)
    order: Ints  # the order in which its groups were placed, shape (G,)
    changed: Ints  # 1 for a group with an option that the current row changes, shape (G,)
    ranks: Ranks  # the state of all ranks before each step, concatenated; hosts are recomputed
    groups_a_step: int  # number of groups per step


class Work(NamedTuple):
    """The arrays that the kernels write for one row: R ranks, H hosts, G groups, T tables."""

    last: Last
    state: Ranks  # of all ranks
    stretches: Ranks  # of one rank per stretch, with uniform options only
    saved: Ranks  # earlier state of some ranks, restored if a placement fails
    hosts: Hosts  # all whole hosts
    head: Ints  # the first column (index in the row) of each group, -1 if none, shape (G,)
    tail: Ints  # the last column of each group, shape (G,)
    following: Ints  # the next column in the same group, or -1, shape (T,)
    group_storage: Ints2  # bytes of HBM, DDR and SSD of each group, shape (G, 3)
    key: Floats2  # sort key of each group; larger keys are placed first, shape (G, 4)
    order: Ints  # the sorted groups; sorting the next row starts from this order, shape (G,)
    row: Ints  # the option of each column, shape (T,)
    ranks: Ints2  # the rank of each shard of each column, shape (T, most shards of an option)
    rank_perf: Floats  # milliseconds of each rank, summed shard by shard, shape (R,)


def inputs_of(space: SearchSpace, devices: Devices, by_perf: bool, balance_modules: bool) -> Inputs:
    """Return the kernels' input arrays for a search space, devices and partitioner settings."""
    first_run, run_end, run_estimate = _runs(space)
    uniform = np.repeat(space.placement == Placement.UNIFORM, np.diff(first_run))
    rank_end = np.minimum(run_end[uniform], devices.ranks)  # longer options are refused
    stretch_end = np.union1d(rank_end, devices.ranks)
    run_end[uniform] = np.searchsorted(stretch_end, rank_end) + 1
    precedence = -np.bincount(space.module)[space.module] * balance_modules
    same = Inputs._fields[: Inputs._fields.index("group")]
    return Inputs(
        **{name: getattr(space, name) for name in same},
        group=space.group[space.table],
        precedence=precedence[space.table],
        by_perf=by_perf,
        first_run=first_run,
        run_end=run_end,
        run_estimate=run_estimate,
        stretch_end=stretch_end,
        capacity=np.ascontiguousarray(devices.storage.T),
        local_ranks=devices.local_ranks,
        host_ranks=devices.host_ranks,
    )


def _runs(space: SearchSpace) -> tuple[Ints, Ints, Ints]:
    """Return first_run, run_end and run_estimate (see Inputs), with run_end counted in shards."""
    counts = np.diff(space.first_shard)
    option = np.repeat(np.arange(len(counts)), counts)
    shard = np.flatnonzero(
        np.isin(space.placement, (Placement.UNIFORM, Placement.HOST_ROWS))[option]
    )
    option, estimate = option[shard], space.estimate[shard]
    rank = shard - space.first_shard[option]
    values = np.hstack([space.storage, space.perf])
    begins = rank == 0
    changes = np.flatnonzero(estimate[1:] != estimate[:-1])
    begins[changes + 1] |= (values[estimate[changes + 1]] != values[estimate[changes]]).any(1)
    start = np.flatnonzero(begins)
    end = np.append(start, len(option))[1:]
    first_run = np.searchsorted(option[start], np.arange(len(counts) + 1))
    return first_run, rank[end - 1] + 1, estimate[start]


def work_for(space: SearchSpace, devices: Devices, stretches: int) -> Work:
    """Return empty work arrays for the kernels; `stretches` is the length of Inputs.stretch_end."""
    groups = int(space.group.max()) + 1
    groups_a_step = -(-groups // _STEPS)
    steps = -(-groups // groups_a_step)
    return Work(
        last=Last(
            placed=np.array([-1]),
            hbm=np.zeros(1, np.int64),
            order=np.zeros(groups, np.int64),
            changed=np.zeros(groups, np.int64),
            ranks=_state(devices.ranks * steps),
            groups_a_step=groups_a_step,
        ),
        state=_state(devices.ranks),
        stretches=_state(stretches),
        saved=_state(devices.ranks),
        hosts=Hosts(
            total=np.zeros(devices.hosts),
            least=np.zeros(devices.hosts),
            free=np.zeros((3, devices.hosts), np.int64),
            order=np.arange(devices.hosts),
        ),
        head=np.zeros(groups, np.int64),
        tail=np.zeros(groups, np.int64),
        following=np.zeros(space.tables, np.int64),
        group_storage=np.zeros((groups, 3), np.int64),
        key=np.zeros((groups, 4)),
        order=np.arange(groups),
        row=np.zeros(space.tables, np.int64),
        ranks=np.zeros((space.tables, np.diff(space.first_shard).max()), np.int64),
        rank_perf=np.zeros(devices.ranks),
    )


def _state(ranks: int) -> Ranks:
    return Ranks(np.zeros((3, ranks), np.int64), np.zeros((5, ranks)), np.zeros(ranks))
