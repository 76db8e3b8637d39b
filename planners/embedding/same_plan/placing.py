"""TorchRec's GreedyPerfPartitioner, compiled: places rows of options on ranks and rates them.

A row is a proposal: the option of each table, in the order of the plan. Floats are added in
torchrec's order, so that all sums are equal to the last bit. Ties are broken as by torchrec's
stable sorts: the earlier table in the row or the lower host comes first.
"""

import numpy as np

from planners.embedding.same_plan.arrays import TOTAL, Inputs, Ranks, Work
from planners.embedding.same_plan.room import SLACK, bound_of, surely_fit, take_memory
from planners.embedding.search.compiling import kernel, subroutine
from planners.embedding.search.space import (
    Floats,
    Ints,
    Ints2,
    Placement,
)

# A row is checked after this part of its groups, and after each doubling of it: can it be better?
_FIRST_CHECK = 1 / 16


@kernel
def place_rows(
    inputs: Inputs, work: Work, rows: Ints2, hbm: int, best: float, ratings: Floats
) -> None:
    """Place each row on empty ranks; set `ratings` in milliseconds, NaN if a row does not fit.

    Each rank has `hbm` bytes of HBM, or its own capacity if `hbm` is 0. A rating that is neither
    below `best` nor below that of an earlier row may be a lower bound, unless `best` is infinite:
    then all rows are rated exactly, and `work.ranks` are the ranks of the last one.
    """
    for index in range(rows.shape[0]):
        ratings[index] = _place(inputs, work, rows[index], hbm, best)
        if ratings[index] < best < np.inf:
            best = ratings[index]


@subroutine
def _place(inputs: Inputs, work: Work, row: Ints, hbm: int, best: float) -> float:
    """Place a row; return its rating, a lower bound of it that is at least `best`, or NaN."""
    # 1. Compare the row with all memory, then the uniform options with that of each rank.
    bound = bound_of(inputs, row, hbm)
    if np.isnan(bound) or not take_memory(inputs, work, row, hbm):
        return np.nan
    # 2. If the row is surely not better and surely fits, there is no need to place it.
    if bound >= best and surely_fit(inputs, work, 0):
        return bound
    # 3. Load the uniform options, then place the groups from the largest down. The more of them
    # are placed, the higher is the bound, and the smaller are the groups that must surely fit.
    _load_uniform(inputs, work, row)
    _sort_groups(inputs, work, row)
    check = int(work.order.size * _FIRST_CHECK) + 1
    for place in range(work.order.size):
        if place == check:
            bound = max(bound, _largest(work.state.total) / SLACK)
            if bound >= best and surely_fit(inputs, work, place):
                return bound
            check *= 2
        if work.head[work.order[place]] < 0:  # only groups of uniform tables follow
            break
        if not _place_group(inputs, work, row, work.order[place]):
            return np.nan
    # 4. Rate the plan as torchrec does, unless it is surely slower.
    slowest = _largest(work.state.total)
    return slowest if slowest > best * SLACK else _rating(inputs, work, row)


@subroutine
def _load_uniform(inputs: Inputs, work: Work, row: Ints) -> None:
    """Set the ranks' loads to those of the uniform options, added in the order of the row.

    All ranks of a stretch get equal shards, so their load is summed once.
    """
    work.uniform_load[:] = 0.0
    for option in row:
        if inputs.placement[option] != Placement.UNIFORM:
            continue
        start = 0
        for run in range(inputs.first_run[option], inputs.first_run[option + 1]):
            for component in range(5):
                spent = inputs.perf[inputs.run_estimate[run], component]
                if spent != 0.0:
                    for stretch in range(start, inputs.run_end[run]):
                        work.uniform_load[component, stretch] += spent
            start = inputs.run_end[run]
    rank = 0
    for stretch in range(inputs.stretch_end.size):
        while rank < inputs.stretch_end[stretch]:
            for component in range(5):
                work.state.load[component, rank] = work.uniform_load[component, stretch]
            work.state.total[rank] = _total(work.state, rank)
            rank += 1
    for host in range(work.leader.size):
        _sum_up_host(inputs, work, host)


@subroutine
def _sort_groups(inputs: Inputs, work: Work, row: Ints) -> None:
    """Sort the groups by descending key, then by their first columns.

    Insertion sort, because the order of the last row is almost that of this one.
    """
    for group in range(work.order.size):
        column = work.head[group]
        work.key[group, 0] = inputs.key[row[column], 0] if column >= 0 else -np.inf
        work.key[group, 1:] = 0.0
        while column >= 0:
            for part in range(1, 4):
                work.key[group, part] += inputs.key[row[column], part]
            column = work.following[column]
    order = work.order
    for place in range(1, order.size):
        group = order[place]
        while place > 0 and _goes_before(work, group, order[place - 1]):
            order[place] = order[place - 1]
            place -= 1
        order[place] = group


@subroutine
def _goes_before(work: Work, group: int, other: int) -> bool:
    part = 0
    while part < 3 and work.key[group, part] == work.key[other, part]:
        part += 1
    if work.key[group, part] != work.key[other, part]:
        return bool(work.key[group, part] > work.key[other, part])
    return bool(work.head[group] < work.head[other])


@subroutine
def _place_group(inputs: Inputs, work: Work, row: Ints, group: int) -> bool:
    """Place the tables of a group; return False if they do not fit."""
    column = work.head[group]
    placement = inputs.placement[row[column]]
    if placement == Placement.DEVICE:
        return _place_on_ranks(inputs, work, row, column)
    if placement in (Placement.HOST_ROWS, Placement.HOST_COLUMNS):
        return _place_on_host(inputs, work, row, group)
    if placement == Placement.HOSTS and work.following[column] < 0:
        return _place_on_hosts(inputs, work, row, column)
    return False


@subroutine
def _place_on_ranks(inputs: Inputs, work: Work, row: Ints, column: int) -> bool:
    """Place each shard on the least loaded rank that it fits; return False if it fits on none."""
    first, local = inputs.first_shard[row[column]], inputs.local_ranks
    for shard in range(inputs.first_shard[row[column] + 1] - first):
        estimate, rank = inputs.estimate[first + shard], -1
        for leader in work.leader:
            if leader >= 0 and (rank < 0 or _is_before(work.state, leader, rank, local)):
                rank = leader
        if not _fits(inputs, work, estimate, rank):
            rank = _least_loaded(inputs, work, estimate, 0, work.state.total.size, local)
            if rank < 0:
                return False
        _put(inputs, work, estimate, rank)
        work.ranks[column, shard] = rank
        _sum_up_host(inputs, work, rank // inputs.host_ranks)
    return True


@subroutine
def _place_on_host(inputs: Inputs, work: Work, row: Ints, group: int) -> bool:
    """Place a group of tables on the least loaded host on which all of it fits, or return False."""
    _sort_hosts(work)
    for host in work.host_order:
        first = host * inputs.host_ranks
        if not _has_memory(inputs, work, group, first):
            continue
        _copy(work.state, work.saved, first, first + inputs.host_ranks)
        column = work.head[group]
        while column >= 0 and _place_on_this_host(inputs, work, row, column, first):
            column = work.following[column]
        if column < 0:
            _sum_up_host(inputs, work, host)
            return True
        _copy(work.saved, work.state, first, first + inputs.host_ranks)
    return False


@subroutine
def _has_memory(inputs: Inputs, work: Work, group: int, first: int) -> bool:
    """Whether the sum of a host's free memory, which torchrec checks first, is enough."""
    for kind in range(3):
        free = 0
        for rank in range(first, first + inputs.host_ranks):
            free += work.state.free[kind, rank]
        if free < work.memory[group, TOTAL, kind]:
            return False
    return True


@subroutine
def _place_on_this_host(inputs: Inputs, work: Work, row: Ints, column: int, first: int) -> bool:
    """Place an option on the host of rank `first`; if False, it may be partly placed."""
    option, end = row[column], first + inputs.host_ranks
    placement = inputs.placement[option]
    if placement not in (Placement.HOST_ROWS, Placement.HOST_COLUMNS):
        return False
    for shard in range(inputs.first_shard[option + 1] - inputs.first_shard[option]):
        estimate = inputs.estimate[inputs.first_shard[option] + shard]
        if placement == Placement.HOST_COLUMNS:
            rank = _least_loaded(inputs, work, estimate, first, end, inputs.host_ranks)
        else:
            rank = first + shard if _fits(inputs, work, estimate, first + shard) else -1
        if rank < 0:
            return False
        _put(inputs, work, estimate, rank)
        work.ranks[column, shard] = rank
    return True


@subroutine
def _place_on_hosts(inputs: Inputs, work: Work, row: Ints, column: int) -> bool:
    """Place a grid-sharded option on consecutive hosts of the sorted order, or return False.

    An option with more shards than the hosts have ranks continues at the first host.
    """
    first, hosts = inputs.first_shard[row[column]], work.host_order.size
    count = inputs.first_shard[row[column] + 1] - first
    _sort_hosts(work)
    _copy(work.state, work.saved, 0, work.state.total.size)
    for start in range(max(1, hosts - count // inputs.host_ranks + 1)):
        placed = 0
        while placed < count:
            host = work.host_order[(start + placed // inputs.host_ranks) % hosts]
            rank = host * inputs.host_ranks + placed % inputs.host_ranks
            if not _fits(inputs, work, inputs.estimate[first + placed], rank):
                break
            _put(inputs, work, inputs.estimate[first + placed], rank)
            work.ranks[column, placed] = rank
            placed += 1
        if placed == count:
            for host in range(hosts):
                _sum_up_host(inputs, work, host)
            return True
        _copy(work.saved, work.state, 0, work.state.total.size)
    return False


@subroutine
def _sort_hosts(work: Work) -> None:
    """Sort the hosts by perf, then by number: insertion sort of an order that is almost sorted."""
    order, total = work.host_order, work.host_total
    for place in range(1, order.size):
        host = order[place]
        while place > 0:
            before = order[place - 1]
            if total[before] < total[host] or (total[before] == total[host] and before < host):
                break
            order[place] = before
            place -= 1
        order[place] = host


@subroutine
def _sum_up_host(inputs: Inputs, work: Work, host: int) -> None:
    """Sum up the perf of a host's ranks, and choose its leader, after a rank's load has changed.

    All ranks are added, because adding only the difference could round differently.
    """
    total, leader, perf = work.state.total, -1, 0.0
    first = host * inputs.host_ranks
    for rank in range(first, min(first + inputs.host_ranks, total.size)):
        perf += total[rank]
        if leader < 0 or _is_before(work.state, rank, leader, inputs.local_ranks):
            leader = rank
    work.leader[host] = leader
    if host < work.host_total.size:
        work.host_total[host] = perf


@subroutine
def _is_before(state: Ranks, rank: int, other: int, local_ranks: int) -> bool:
    """Whether torchrec prefers `rank` to a lower one: it is less loaded, or has a lower place."""
    if state.total[rank] != state.total[other]:
        return bool(state.total[rank] < state.total[other])
    return bool(rank % local_ranks < other % local_ranks)


@subroutine
def _least_loaded(
    inputs: Inputs, work: Work, estimate: int, first: int, end: int, local_ranks: int
) -> int:
    """Return the least loaded rank in [first, end) that a shard fits, or -1."""
    chosen = -1
    for rank in range(first, end):
        better = chosen < 0 or _is_before(work.state, rank, chosen, local_ranks)
        if better and _fits(inputs, work, estimate, rank):
            chosen = rank
    return chosen


@subroutine
def _fits(inputs: Inputs, work: Work, estimate: int, rank: int) -> bool:
    """Whether a shard fits into the free memory of a rank."""
    return bool(
        inputs.storage[estimate, 0] <= work.state.free[0, rank]
        and inputs.storage[estimate, 1] <= work.state.free[1, rank]
        and inputs.storage[estimate, 2] <= work.state.free[2, rank]
    )


@subroutine
def _put(inputs: Inputs, work: Work, estimate: int, rank: int) -> None:
    """Put a shard on a rank; add up each component of perf separately, as torchrec does."""
    for kind in range(3):
        work.state.free[kind, rank] -= inputs.storage[estimate, kind]
    for component in range(5):
        work.state.load[component, rank] += inputs.perf[estimate, component]
    work.state.total[rank] = _total(work.state, rank)


@subroutine
def _total(state: Ranks, rank: int) -> float:
    """Return a rank's perf: the sum of its components in the order of torchrec's `Perf.total`."""
    load = state.load
    return float(load[0, rank] + load[1, rank] + load[2, rank] + load[3, rank] + load[4, rank])


@subroutine
def _copy(source: Ranks, target: Ranks, first: int, end: int) -> None:
    """Copy the state of the ranks in [first, end)."""
    for rank in range(first, end):
        for kind in range(3):
            target.free[kind, rank] = source.free[kind, rank]
        for component in range(5):
            target.load[component, rank] = source.load[component, rank]
        target.total[rank] = source.total[rank]


@subroutine
def _largest(values: Floats) -> float:
    largest = 0.0
    for value in values:
        largest = max(largest, value)
    return largest


@subroutine
def _rating(inputs: Inputs, work: Work, row: Ints) -> float:
    """Return the slowest rank's milliseconds, added shard by shard as torchrec's NoopPerfModel."""
    work.rank_perf[:] = 0.0
    for column in range(row.size):
        first, end = inputs.first_shard[row[column]], inputs.first_shard[row[column] + 1]
        uniform = inputs.placement[row[column]] == Placement.UNIFORM
        for shard in range(end - first):
            rank = shard if uniform else work.ranks[column, shard]
            work.rank_perf[rank] += inputs.total[inputs.estimate[first + shard]]
    return _largest(work.rank_perf)
