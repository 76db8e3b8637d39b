"""TorchRec's partitioner, compiled: it places rows of option numbers on devices and rates them.

It adds floats in torchrec's order, so all sums are equal to the last bit. It breaks ties as
torchrec's stable sorts do: the earlier table in the row or the lower host wins.
"""

import numpy as np

from planners.embedding.same_plan.placing.hosts import (
    place_on_devices,
    place_on_host,
    place_on_hosts,
    sort_hosts,
)
from planners.embedding.same_plan.placing.layout import Inputs, Work
from planners.embedding.same_plan.placing.ranks import copy, place_uniform, shards_of
from planners.embedding.search.compiling import inlined, kernel, merged, subroutine
from planners.embedding.search.space import Floats, Floats2, Ints, Ints2, Placement

# Bounds the ratio of a rank's perf summed shard by shard to the one summed by component. A float
# sum of n non-negative terms has a relative error below n * 2**-52: enough for a million shards.
_SLACK = 1 + 1e-9


@subroutine
def _take_row(problem: Inputs, work: Work, row: Ints, hbm: int) -> bool:
    """Store the new row; return whether the last row's placement of uniform options is reusable.

    A greedy proposer changes one table at a time. If neither the table's old nor its new option is
    uniform, the groups placed before that table's group keep their ranks and are not placed again.
    """
    last = work.last
    reusable = bool(last.placed[0] >= 0 and last.hbm[0] == hbm)
    last.hbm[0] = hbm
    for place in range(work.order.size):
        last.order[place] = work.order[place]
        last.changed[place] = 0
    for column in range(row.size):
        before, option = work.row[column], row[column]
        if before == option:
            continue
        work.row[column] = option
        last.changed[problem.group[before]] = last.changed[problem.group[option]] = 1
        if (
            problem.placement[before] == Placement.UNIFORM
            or problem.placement[option] == Placement.UNIFORM
        ):
            reusable = False
    return reusable


@subroutine
def _reusable_steps(work: Work) -> int:
    """Return the number of leading steps that place the same unchanged groups as the last row."""
    last, place = work.last, 0
    while (
        place < last.placed[0]
        and work.order[place] == last.order[place]
        and last.changed[work.order[place]] == 0
    ):
        place += 1
    return int(place // last.groups_a_step)


@subroutine
def _collect_groups(problem: Inputs, work: Work, row: Ints) -> None:
    """Link the non-uniform columns of each group, and sum their storage and perf in row order."""
    key, storage = work.key, work.group_storage
    work.head[:] = -1
    key[:] = -np.inf  # sorts groups without a column last
    for column in range(row.size):
        option = row[column]
        if problem.placement[option] == Placement.UNIFORM:
            continue
        group = problem.group[option]
        work.following[column] = -1
        if work.head[group] >= 0:
            work.following[work.tail[group]] = column
        else:
            work.head[group] = column
            key[group, 0] = problem.precedence[option]
            key[group, 1] = 0.0
            for kind in range(3):
                storage[group, kind] = 0
        work.tail[group] = column
        for kind in range(3):
            storage[group, kind] += problem.option_storage[option, kind]
            if not problem.by_perf:
                key[group, 1 + kind] = storage[group, kind]  # whole bytes, exact up to 2**53
        if problem.by_perf:
            key[group, 1] += problem.option_perf[option]


@merged
def _goes_before(key: Floats2, head: Ints, one: int, other: int) -> bool:
    """Whether group `one` has the larger key, or an equal key and an earlier first column."""
    part = 0
    while part < 3 and key[one, part] == key[other, part]:
        part += 1
    if key[one, part] != key[other, part]:
        return bool(key[one, part] > key[other, part])
    return bool(head[one] < head[other])


@subroutine
def _sort_groups(work: Work) -> None:
    """Sort the groups by insertion: a greedy proposer's last order is nearly right."""
    order = work.order
    for place in range(1, order.size):
        group = order[place]
        if not _goes_before(work.key, work.head, group, order[place - 1]):
            continue
        low, high = 0, place - 1
        while low < high:
            middle = (low + high) // 2
            if _goes_before(work.key, work.head, group, order[middle]):
                high = middle
            else:
                low = middle + 1
        for moved in range(place, low, -1):
            order[moved] = order[moved - 1]
        order[low] = group


# Inlined, because LLVM optimizes a cached function again at each level of calls, and then code
# loaded from disk is slower by two thirds than freshly compiled code.
@inlined
def _place(problem: Inputs, work: Work, row: Ints, hbm: int) -> bool:
    """Place uniform options, then groups from the largest down; return whether all are placed."""
    last, ranks = work.last, work.state.total.size
    reusable = _take_row(problem, work, row, hbm)
    _collect_groups(problem, work, row)
    _sort_groups(work)
    first = _reusable_steps(work) if reusable else 0
    if reusable:
        copy(last.ranks, first * ranks, work.state, 0, ranks)
    else:
        last.placed[0] = -1
        if not place_uniform(problem, work, row, hbm):
            return False
    sort_hosts(problem, work)
    for step in range(first, last.ranks.total.size // ranks):
        copy(work.state, 0, last.ranks, step * ranks, ranks)
        start = step * last.groups_a_step
        for place in range(start, min(start + last.groups_a_step, work.order.size)):
            last.placed[0] = place
            column = work.head[work.order[place]]
            if column < 0:  # only groups without a column follow
                return True
            placement = problem.placement[row[column]]
            placed = False
            if placement == Placement.DEVICE:
                placed = place_on_devices(problem, work, column)
            elif placement in (Placement.HOST_ROWS, Placement.HOST_COLUMNS):
                placed = place_on_host(problem, work, work.order[place])
            elif placement == Placement.HOSTS and work.following[column] < 0:
                placed = place_on_hosts(problem, work, column)
            if not placed:
                return False
    return True


@merged
def _largest(values: Floats) -> float:
    largest = 0.0
    for value in values:
        largest = max(largest, value)
    return largest


@subroutine
def _rate(problem: Inputs, work: Work, row: Ints) -> float:
    """Return the slowest rank's milliseconds, added shard by shard as torchrec's NoopPerfModel."""
    work.rank_perf[:] = 0.0
    for column in range(row.size):
        option = row[column]
        uniform = problem.placement[option] == Placement.UNIFORM
        for shard in range(shards_of(problem.first_shard, option)):
            if uniform:
                work.ranks[column, shard] = shard
            estimate = problem.estimate[problem.first_shard[option] + shard]
            work.rank_perf[work.ranks[column, shard]] += problem.total[estimate]
    return _largest(work.rank_perf)


@kernel
def place_rows(
    problem: Inputs,
    work: Work,
    rows: Ints2,
    hbm: int,
    exact: bool,
    best: float,
    ratings: Floats,
    best_ranks: Ints2,
) -> int:
    """Place each row as GreedyPerfPartitioner does; set `ratings`, NaN if it cannot be placed.

    Each rank has `hbm` bytes of HBM, or its own capacity if `hbm` is 0. Return the index of the
    row with the lowest rating below `best`, and set `best_ranks` to its ranks; return -1 if none is
    below. Unless `exact`, a rating that is not a new best may differ in the last bits.
    """
    chosen = -1
    for index in range(rows.shape[0]):
        row = rows[index]
        if not _place(problem, work, row, hbm):
            ratings[index] = np.nan
            continue
        ratings[index] = _largest(work.state.total)
        if exact or ratings[index] <= best * _SLACK:
            ratings[index] = _rate(problem, work, row)
        if ratings[index] < best:
            best = ratings[index]
            chosen = index
            for column in range(row.size):
                for shard in range(shards_of(problem.first_shard, row[column])):
                    best_ranks[column, shard] = work.ranks[column, shard]
    return chosen
