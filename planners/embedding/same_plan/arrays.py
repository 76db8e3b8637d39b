"""The arrays that the compiled partitioner reads (`Inputs`) and writes (`Work`)."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planners.embedding.search.space import (
    Devices,
    Floats,
    Floats2,
    Ints,
    Ints2,
    Ints3,
    Placement,
    SearchSpace,
)

# What `Work.memory` has of each group of tables, in bytes.
TOTAL = 0  # all shards
ON_A_HOST = 1  # the most that a rank of a host gets if the host gets shards of the group
NEEDED = 2  # free bytes with which the group surely fits: on a rank, or on each rank of a host

Bools = npt.NDArray[np.bool_]


class Inputs(NamedTuple):
    """The arrays that the kernels read; arrays without a comment are copied from SearchSpace.

    A run is a series of equal shards within a uniform option, which has shard i on rank i; a
    stretch is a series of ranks on which every uniform option has equal shards.
    """

    first_shard: Ints
    estimate: Ints
    storage: Ints2
    perf: Floats2
    total: Floats
    option_storage: Ints2
    option_perf: Floats
    largest_shard: Floats
    placement: Ints  # NOWHERE also for options with a wrong number of shards
    needed: Ints2  # free bytes with which a rank, or each rank of a host, surely fits, shape (O, 3)
    group: Ints  # of each option
    key: Floats2  # groups are placed by descending sums of these keys of options, shape (O, 4)
    first_run: Ints  # option o has the runs first_run[o] to first_run[o + 1], shape (O + 1,)
    run_end: Ints  # run r ends after this many stretches
    run_estimate: Ints  # the estimate of the shards of run r
    stretch_end: Ints  # stretch s ends before this rank
    capacity: Ints2  # bytes of HBM, DDR and SSD, shape (3, ranks)
    room: Ints  # bytes of HBM, DDR and SSD of all ranks, without negative ones, shape (3,)
    local_ranks: int
    host_ranks: int


class Ranks(NamedTuple):
    """The free memory and the load of all ranks."""

    free: Ints2  # bytes of HBM, DDR and SSD, shape (3, ranks)
    load: Floats2  # milliseconds of each component of perf, shape (5, ranks)
    total: Floats  # milliseconds, the sum of the components, shape (ranks,)


class Work(NamedTuple):
    """The arrays that the kernels write for a row: R ranks, H whole hosts, G groups, T tables."""

    head: Ints  # the first column (index in the row) of each group, -1 if none, shape (G,)
    following: Ints  # the next column in the same group, or -1, shape (T,)
    memory: Ints3  # bytes of each group: TOTAL, ON_A_HOST and NEEDED, shape (G, 3, 3)
    by_host: Ints  # 1 for a group that needs a whole host, because it has HOST_ROWS, shape (G,)
    key: Floats2  # the sum of the keys of each group's options, shape (G, 4)
    order: Ints  # the sorted groups; sorting the next row starts from this order, shape (G,)
    uniform_bytes: Ints2  # bytes of the uniform options on each stretch, (3, stretches + 1)
    uniform_load: Floats2  # milliseconds of each component on each stretch, (5, stretches)
    state: Ranks
    saved: Ranks  # an earlier state of some ranks, restored if a placement fails
    leader: Ints  # the least loaded rank of each host, and of the ranks of no host, or -1, (H + 1,)
    host_total: Floats  # summed perf of each host's ranks, shape (H,)
    host_order: Ints  # host numbers, sorted by `host_total` when a group needs a host, shape (H,)
    most: (
        Ints2  # within `_surely_fit`: the most NEEDED of groups without and with HOST_ROWS, (2, 3)
    )
    added: Ints2  # within `_surely_fit`: the sums of TOTAL and of ON_A_HOST, shape (2, 3)
    ranks: Ints2  # the rank of each shard of each column, if not uniform, (T, most shards)
    rank_perf: Floats  # milliseconds of each rank, summed shard by shard, shape (R,)


def inputs_of(space: SearchSpace, devices: Devices, by_perf: bool, balance_modules: bool) -> Inputs:
    """Return the kernels' input arrays for a search space, devices and partitioner settings."""
    placement = _placements(space, devices)
    in_columns = (placement == Placement.HOST_COLUMNS)[:, np.newaxis]
    needed = np.where(in_columns, space.option_storage, space.largest_storage)
    # Groups of hosts, and options that fit nowhere, may not fit even on empty devices.
    needed[np.isin(placement, (Placement.HOSTS, Placement.NOWHERE))] = devices.storage.max() + 1
    key = np.zeros((len(placement), 4))
    if balance_modules:
        key[:, 0] = -np.bincount(space.module)[space.module][space.table]
    if by_perf:
        key[:, 1] = space.option_perf
    else:
        key[:, 1:] = space.option_storage  # whole bytes, exact up to 2**53
    first_run, run_end, run_estimate = _runs(space, placement == Placement.UNIFORM)
    stretch_end = np.union1d(run_end, devices.ranks)
    copied = Inputs._fields[: Inputs._fields.index("placement")]
    return Inputs(
        **{name: getattr(space, name) for name in copied},
        placement=placement,
        needed=needed,
        group=space.group[space.table],
        key=key,
        first_run=first_run,
        run_end=np.searchsorted(stretch_end, run_end) + 1,
        run_estimate=run_estimate,
        stretch_end=stretch_end,
        capacity=np.ascontiguousarray(devices.storage.T),
        room=np.maximum(devices.storage, 0).sum(0),
        local_ranks=devices.local_ranks,
        host_ranks=devices.host_ranks,
    )


def _placements(space: SearchSpace, devices: Devices) -> Ints:
    """Return each option's placement, NOWHERE if its number of shards fits no ranks."""
    placement, shards = space.placement.copy(), np.diff(space.first_shard)
    wrong = (placement == Placement.UNIFORM) & (shards != devices.ranks)
    wrong |= (placement == Placement.HOST_ROWS) & (shards != devices.host_ranks)
    wrong |= (placement == Placement.HOSTS) & (shards % devices.host_ranks != 0)
    placement[wrong] = Placement.NOWHERE
    return placement


def _runs(space: SearchSpace, uniform: Bools) -> tuple[Ints, Ints, Ints]:
    """Return Inputs.first_run, the number of shards before each run's end, and run_estimate."""
    starts = np.ones(len(space.estimate), bool)
    np.not_equal(space.estimate[1:], space.estimate[:-1], out=starts[1:])
    starts[space.first_shard[:-1]] = True
    start = np.flatnonzero(starts)
    end = np.append(start[1:], len(starts))
    option = np.searchsorted(space.first_shard, start, side="right") - 1
    start, end, option = start[uniform[option]], end[uniform[option]], option[uniform[option]]
    first_run = np.searchsorted(option, np.arange(len(uniform) + 1))
    return first_run, end - space.first_shard[option], space.estimate[start]


def work_for(space: SearchSpace, devices: Devices, inputs: Inputs) -> Work:
    """Return empty work arrays for the kernels."""
    tables, groups, hosts = space.tables, int(space.group.max()) + 1, devices.hosts
    stretches = len(inputs.stretch_end)
    shards = np.diff(space.first_shard)[inputs.placement != Placement.UNIFORM]
    return Work(
        head=np.zeros(groups, np.int64),
        following=np.zeros(tables, np.int64),
        memory=np.zeros((groups, 3, 3), np.int64),
        by_host=np.zeros(groups, np.int64),
        key=np.zeros((groups, 4)),
        order=np.arange(groups),
        uniform_bytes=np.zeros((3, stretches + 1), np.int64),
        uniform_load=np.zeros((5, stretches)),
        state=_ranks(devices.ranks),
        saved=_ranks(devices.ranks),
        leader=np.full(hosts + 1, -1),
        host_total=np.zeros(hosts),
        host_order=np.arange(hosts),
        most=np.zeros((2, 3), np.int64),
        added=np.zeros((2, 3), np.int64),
        ranks=np.zeros((tables, shards.max(initial=1)), np.int64),
        rank_perf=np.zeros(devices.ranks),
    )


def _ranks(ranks: int) -> Ranks:
    return Ranks(np.zeros((3, ranks), np.int64), np.zeros((5, ranks)), np.zeros(ranks))
