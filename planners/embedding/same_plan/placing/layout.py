"""The arrays that the compiled partitioner reads (`Inputs`) and writes (`Work`)."""

from typing import Any, NamedTuple

import numpy as np

from planners.embedding.search.space import (
    Devices,
    Floats,
    Floats2,
    Floats3,
    Ints,
    Ints2,
    Ints3,
    Placement,
    SearchSpace,
    of_options,
)

# A row's groups are placed in this many steps; the state of the ranks before each step is saved.
_STEPS = 16

# The loads of a row's uniform options are summed in this many parts; each sum so far is saved.
_PARTS = 16


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
    largest_shard: Floats
    shard_storage: Ints2  # bytes of each option's largest shard, by kind of memory, shape (O, 3)
    needed: Ints2  # free bytes with which a rank, or each rank of a host, surely fits, shape (O, 3)
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
    """The load, free memory and order of the hosts, and the ranks in the order of their loads."""

    total: Floats  # summed perf of a host's ranks, shape (hosts,)
    free: Ints2  # summed free memory of a host's ranks, shape (3, hosts)
    order: Ints  # host numbers, sorted by `total`, then by number, shape (hosts,)
    # Node n of a binary tree has the less loaded rank of nodes 2n and 2n + 1, or -1. The leaves are
    # the hosts; one more leaf has the ranks after the last whole host.
    leader: Ints


class Uniform(NamedTuple):
    """The row's uniform options, summed up for each stretch."""

    used: Ints2  # bytes, shape (3, stretches)
    load: Floats3  # milliseconds before each part of the row, shape (parts + 1, 5, stretches)
    summed: Ints  # the last valid index of `load`, shape (1,)
    columns: Ints  # the number of uniform columns, and of those without a shard per rank, (2,)
    columns_a_part: int


class Groups(NamedTuple):
    """The groups of the row's other options."""

    head: Ints  # the first column (index in the row) of each group, -1 if none, shape (G,)
    following: Ints  # the next column in the same group, or -1, shape (T,)
    memory: Ints3  # bytes of each group, see groups.py, shape (G, 5, 3)
    key: Floats2  # sort key of each group; larger keys are placed first, shape (G, 4)
    order: Ints  # the sorted groups; sorting the next row starts from this order, shape (G,)
    changed: Ints  # 1 for a group with an option that the current row changes, shape (G,)


class Steps(NamedTuple):
    """The steps of the last placement; the next row continues it from the step of a change."""

    size: int  # number of groups per step
    placed: Ints  # number of groups placed, -1 if the uniform options did not fit, shape (1,)
    loaded: Ints  # 1 if `ranks` has the loads of the uniform options, else only memory, shape (1,)
    hbm: Ints  # the `hbm` argument of that placement, in bytes per rank, shape (1,)
    ranks: Ranks  # the state of all ranks before each step, concatenated; hosts are recomputed
    hosts: Ints2  # the order of the hosts before each step, shape (steps, hosts)
    memory: Ints3  # sums and maxima of the memory of each step's groups, shape (steps, 5, 3)


class Work(NamedTuple):
    """The arrays that the kernels write for one row: R ranks, H hosts, G groups, T tables."""

    uniform: Uniform
    groups: Groups
    steps: Steps
    state: Ranks  # of all ranks
    saved: Ranks  # earlier state of some ranks, restored if a placement fails
    hosts: Hosts  # all whole hosts
    row: Ints  # the option of each column, -1 before the first row, shape (T,)
    needed: Ints  # bytes of each kind, only within `surely_fit`, shape (3,)
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
    same = Inputs._fields[: Inputs._fields.index("shard_storage")]
    largest = space.largest_storage
    return Inputs(
        **{name: getattr(space, name) for name in same},
        shard_storage=largest,
        needed=_needed(space, devices, largest),
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
    values = np.hstack([space.storage, space.perf])

    def begins(estimate: Ints, first: Ints) -> Any:
        begun = np.zeros(len(estimate), bool)
        begun[first] = True
        changes = np.flatnonzero(estimate[1:] != estimate[:-1])
        begun[changes + 1] |= (values[estimate[changes + 1]] != values[estimate[changes]]).any(1)
        return begun

    numbers = np.arange(len(values))
    start = np.flatnonzero(of_options(begins, numbers, space.estimate, space.first_shard))
    option = np.searchsorted(space.first_shard, start, side="right") - 1
    runs = np.isin(space.placement, (Placement.UNIFORM, Placement.HOST_ROWS))[option]
    end = np.append(start[1:], space.first_shard[-1])[runs]
    start, option = start[runs], option[runs]
    first_run = np.searchsorted(option, np.arange(len(space.placement) + 1))
    return first_run, end - space.first_shard[option], space.estimate[start]


def _needed(space: SearchSpace, devices: Devices, largest: Ints) -> Ints:
    """Return Inputs.needed; more than any rank has if an option may not fit on empty devices."""
    needed = np.where(
        (space.placement == Placement.HOST_COLUMNS)[:, np.newaxis], space.option_storage, largest
    )
    misfit = (space.placement == Placement.HOST_ROWS) & (
        np.diff(space.first_shard) != devices.host_ranks
    )
    misfit |= np.isin(space.placement, (Placement.HOSTS, Placement.NOWHERE))
    needed[misfit] = devices.storage.max() + 1
    return needed


def work_for(space: SearchSpace, devices: Devices, stretches: int) -> Work:
    """Return empty work arrays for the kernels; `stretches` is the length of Inputs.stretch_end."""
    groups = int(space.group.max()) + 1
    size = -(-groups // _STEPS)
    steps = -(-groups // size)
    columns_a_part = -(-space.tables // _PARTS)
    parts = -(-space.tables // columns_a_part)
    return Work(
        uniform=Uniform(
            used=np.zeros((3, stretches), np.int64),
            load=np.zeros((parts + 1, 5, stretches)),
            summed=np.zeros(1, np.int64),
            columns=np.zeros(2, np.int64),
            columns_a_part=columns_a_part,
        ),
        groups=Groups(
            head=np.full(groups, -1),
            following=np.full(space.tables, -1),
            memory=np.zeros((groups, 5, 3), np.int64),
            key=np.full((groups, 4), -np.inf),  # sorts groups without a column last
            order=np.arange(groups),
            changed=np.zeros(groups, np.int64),
        ),
        steps=Steps(
            size=size,
            placed=np.array([-1]),
            loaded=np.zeros(1, np.int64),
            hbm=np.zeros(1, np.int64),
            ranks=_state(devices.ranks * steps),
            hosts=np.tile(np.arange(devices.hosts), (steps, 1)),
            memory=np.zeros((steps, 5, 3), np.int64),
        ),
        state=_state(devices.ranks),
        saved=_state(devices.ranks),
        hosts=Hosts(
            total=np.zeros(devices.hosts),
            free=np.zeros((3, devices.hosts), np.int64),
            order=np.arange(devices.hosts),
            leader=np.full(2 << devices.hosts.bit_length(), -1),
        ),
        row=np.full(space.tables, -1),
        needed=np.zeros(3, np.int64),
        ranks=np.zeros((space.tables, np.diff(space.first_shard).max()), np.int64),
        rank_perf=np.zeros(devices.ranks),
    )


def _state(ranks: int) -> Ranks:
    return Ranks(np.zeros((3, ranks), np.int64), np.zeros((5, ranks)), np.zeros(ranks))
