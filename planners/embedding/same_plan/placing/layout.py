"""The arrays that the compiled partitioner reads and writes."""

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

# A row is placed in this many steps; the state of the ranks is kept before each of them.
_STEPS = 8


class Inputs(NamedTuple):
    """The arrays that the kernels read; those without a comment are those of SearchSpace.

    Consecutive equal shards of an option that goes onto ranks in order are one run: option o has
    the runs first_run[o] to first_run[o + 1], each of estimate run_estimate up to shard run_end.
    Ranks between which no run of a uniform option ends are one stretch: stretch s is up to rank
    stretch_end[s], and run_end counts stretches where an option is uniform.
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
    precedence: Ints  # of each option: the larger goes first, whatever its size
    by_perf: bool  # groups are sorted by perf, not by storage
    first_run: Ints
    run_end: Ints
    run_estimate: Ints
    stretch_end: Ints
    capacity: Ints2  # shape (3, ranks)
    local_ranks: int
    host_ranks: int


class Ranks(NamedTuple):
    """The memory that some ranks have left, and how loaded they are."""

    free: Ints2  # storage, shape (3, ranks)
    load: Floats2  # perf by component, shape (5, ranks)
    total: Floats  # perf, shape (ranks,)


class Hosts(NamedTuple):
    """How loaded some hosts are, and their order."""

    total: Floats  # perf of all ranks of a host, shape (hosts,)
    least: Floats  # perf of its least loaded rank, shape (hosts,)
    free: Ints2  # memory that all of its ranks have left, shape (3, hosts)
    order: Ints  # the hosts, sorted by perf, shape (hosts,)


class Last(NamedTuple):
    """The last row; the next one starts from it as far as their first groups are equal."""

    placed: Ints  # number of groups placed, -1 if even uniform options were not, shape (1,)
    hbm: Ints  # bytes that each rank had, shape (1,)
    order: Ints  # of its groups, shape (G,)
    changed: Ints  # 1 for a group that the present row changes, shape (G,)
    ranks: Ranks  # before each step, one after the other; the hosts follow from them
    groups_a_step: int


class Work(NamedTuple):
    """The arrays that the kernels write for one row: R ranks, H hosts, G groups, T tables."""

    last: Last
    state: Ranks  # of all ranks
    stretches: Ranks  # of the first rank of each stretch
    saved: Ranks  # earlier state of some ranks, restored if a placement fails
    hosts: Hosts  # all whole ones
    head: Ints  # the first column of each group, -1 where it has none, shape (G,)
    tail: Ints  # its last column
    following: Ints  # the next column of a column's group, or -1, shape (T,)
    group_storage: Ints2  # shape (G, 3)
    key: Floats2  # of each group, sorted by it in descending order, shape (G, 4)
    order: Ints  # the sorted groups, from which the next row starts, shape (G,)
    row: Ints  # the option of each column, shape (T,)
    ranks: Ints2  # of the shards of each column, shape (T, most shards of an option)
    rank_perf: Floats  # shape (R,)


def inputs_of(space: SearchSpace, devices: Devices, by_perf: bool, balance_modules: bool) -> Inputs:
    """Lay out a search space and devices for a partitioner of these rules."""
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
    """Return the runs of options that go onto ranks in order: first_run, run_end, run_estimate."""
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
    """Return empty arrays for placing rows of a search space on ranks of `stretches` stretches."""
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
