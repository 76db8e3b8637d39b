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
    runs,
)

STEPS = 16
"""The steps in which a row is placed. Between two steps, the state of the ranks is kept."""


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
    largest: Ints2  # most bytes of HBM, DDR and SSD of a shard of each option, shape (O, 3)
    needed: Ints2  # free bytes with which a rank, or each rank of a host, surely fits, shape (O, 3)
    group: Ints  # of each option
    key: Floats2  # groups are placed by descending sums of these keys of options, shape (O, 4)
    first_run: Ints  # option o has the runs first_run[o] to first_run[o + 1], shape (O + 1,)
    run_end: Ints  # run r ends before this stretch
    run_estimate: Ints  # the estimate of the shards of run r
    stretch_end: Ints  # stretch s ends before this rank
    capacity: Ints2  # bytes of HBM, DDR and SSD, shape (3, ranks)
    place: Ints  # of equally loaded ranks, torchrec prefers the one with the lowest, shape (ranks,)
    host_ranks: int


class Ranks(NamedTuple):
    """The free memory and the load of all ranks."""

    free: Ints2  # bytes of HBM, DDR and SSD, shape (3, ranks)
    load: Floats2  # milliseconds of each component of perf, shape (5, ranks)
    total: Floats  # milliseconds, the sum of the components, shape (ranks,)


class Work(NamedTuple):
    """The arrays that the kernels write for a row.

    There are R ranks, H whole hosts, S stretches, G groups and T columns. A column is a table's
    index in the row. All uniform columns are in a group of their own, G.
    """

    group: Ints  # the group of each column, shape (T,)
    first: Ints  # the first column of each group, -1 if none, shape (G + 1,)
    key: Floats2  # the sum of the keys of each group's options, shape (G + 1, 4)
    order: Ints  # the columns, sorted by group; sorting the next row starts from it, shape (T,)
    uniform_used: Ints2  # bytes by which those of uniform options rise at a stretch, (3, S + 1)
    uniform_load: Floats2  # milliseconds of each component on each stretch, shape (5, S)
    state: Ranks
    saved: Ranks  # an earlier state of some ranks, restored if a placement fails
    last_row: Ints  # the last row that was placed, shape (T,)
    last_order: Ints  # its `order`, shape (T,)
    kept: Ranks  # states of all ranks, one after the other, with ever more columns of `last_row`
    kept_end: Ints  # the columns that are placed in each kept state, 0 if there is none, (STEPS,)
    leader: Ints  # the least loaded rank of each host, and of the ranks of no host, or -1, (H + 1,)
    host_total: Floats  # summed perf of each host's ranks, shape (H,)
    host_order: Ints  # host numbers, sorted by `host_total` when a group needs a host, shape (H,)
    most: Ints2  # within `surely_fit`: the most bytes needed on any rank, on each of a host, (2, 3)
    added: Ints2  # within `surely_fit`: bytes added to all ranks, to each rank of a host, (2, 3)
    ranks: Ints2  # the rank of each shard of each column, if not uniform, (T, most shards)
    rank_perf: Floats  # milliseconds of each rank, summed shard by shard, shape (R,)


def inputs_of(space: SearchSpace, devices: Devices, by_perf: bool, balance_modules: bool) -> Inputs:
    """Return the kernels' input arrays for a search space, devices and partitioner settings."""
    placement, shards = space.placement.copy(), np.diff(space.first_shard)
    wrong = (placement == Placement.UNIFORM) & (shards != devices.ranks)
    wrong |= (placement == Placement.HOST_ROWS) & (shards != devices.host_ranks)
    wrong |= (placement == Placement.HOSTS) & (shards % devices.host_ranks != 0)
    placement[wrong] = Placement.NOWHERE
    largest = space.largest_storage
    in_columns = (placement == Placement.HOST_COLUMNS)[:, np.newaxis]
    needed = np.where(in_columns, space.option_storage, largest)
    # For these there is no proof: they may not fit even on empty devices.
    together = np.bincount(space.group)[space.group[space.table]] > 1
    no_proof = together | np.isin(placement, (Placement.HOSTS, Placement.NOWHERE))
    needed[no_proof] = devices.storage.max() + 1
    key = np.zeros((len(placement), 4))
    if balance_modules:
        key[:, 0] = -np.bincount(space.module)[space.module][space.table]
    if by_perf:
        key[:, 1] = space.option_perf
    else:
        key[:, 1:] = space.option_storage  # whole bytes, exact up to 2**53
    run_estimate, length, first_run = runs(space.first_shard, space.estimate)
    first_run = np.append(first_run, len(length))
    option = np.repeat(np.arange(len(placement)), np.diff(first_run))
    run_end = np.cumsum(length) - space.first_shard[option]  # in shards of the option
    stretch_end = np.union1d(run_end[placement[option] == Placement.UNIFORM], devices.ranks)
    copied = Inputs._fields[: Inputs._fields.index("placement")]
    return Inputs(
        **{name: getattr(space, name) for name in copied},
        placement=placement,
        largest=largest,
        needed=needed,
        group=space.group[space.table],
        key=key,
        first_run=first_run,
        run_end=np.searchsorted(stretch_end, run_end) + 1,
        run_estimate=run_estimate,
        stretch_end=stretch_end,
        capacity=np.ascontiguousarray(devices.storage.T),
        place=np.arange(devices.ranks) % devices.local_ranks,
        host_ranks=devices.host_ranks,
    )


def work_for(space: SearchSpace, devices: Devices, inputs: Inputs) -> Work:
    """Return the kernels' work arrays; `place_rows` sets all but those set here."""
    tables, groups, hosts = space.tables, int(space.group.max()) + 1, devices.hosts
    shards = np.diff(space.first_shard)[inputs.placement != Placement.UNIFORM]
    key = np.zeros((groups + 1, 4))
    key[groups] = -np.inf  # uniform columns are sorted behind all others
    return Work(
        group=np.empty(tables, np.int64),
        first=np.empty(groups + 1, np.int64),
        key=key,
        order=np.arange(tables),
        uniform_used=np.empty((3, len(inputs.stretch_end) + 1), np.int64),
        uniform_load=np.empty((5, len(inputs.stretch_end))),
        state=_ranks(devices.ranks),
        saved=_ranks(devices.ranks),
        last_row=np.zeros(tables, np.int64),
        last_order=np.zeros(tables, np.int64),
        kept=_ranks(devices.ranks * STEPS),
        kept_end=np.empty(STEPS, np.int64),
        leader=np.empty(hosts + 1, np.int64),
        host_total=np.empty(hosts),
        host_order=np.arange(hosts),
        most=np.empty((2, 3), np.int64),
        added=np.empty((2, 3), np.int64),
        ranks=np.empty((tables, shards.max(initial=1)), np.int64),
        rank_perf=np.empty(devices.ranks),
    )


def _ranks(ranks: int) -> Ranks:
    return Ranks(np.empty((3, ranks), np.int64), np.empty((5, ranks)), np.empty(ranks))
