"""TorchRec's partitioner, compiled: it places rows of option numbers on devices and rates them.

Every sum of floats is taken in torchrec's order, and so agrees with it to the last bit. All of this
stays in one module: numba compiles a kept function anew only where its own file has changed.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from planners.embedding.search.same_plan.layout import Inputs, Ranks, Work
from planners.embedding.search.space import Floats, Ints, Placement

F = TypeVar("F", bound=Callable[..., Any])

# How far a rank's perf, summed by component, may be from its rating, summed by shard: such sums of
# n terms, none negative, are off by less than n * 2**-52, which is enough for a million shards.
_SLACK = 1 + 1e-9

# Without this, numba counts references to arrays in the innermost loops, eight times the work. It
# also means that nothing here can make an array.
_UNCOUNTED = {"_nrt": False}


def _inlined(function: F) -> F:
    # What a kept function calls is optimised again at each level of calls, and what is loaded from
    # disk is slower for it by two thirds than what has just been compiled. One function is not.
    return cast(F, numba.njit(inline="always", **_UNCOUNTED)(function))


@_inlined
def _copy(source: Ranks, target: Ranks, first: int, end: int) -> None:
    for rank in range(first, end):
        for kind in range(3):
            target.free[kind, rank] = source.free[kind, rank]
        for component in range(5):
            target.load[component, rank] = source.load[component, rank]
        target.total[rank] = source.total[rank]


@_inlined
def _fits(problem: Inputs, estimate: int, state: Ranks, rank: int) -> bool:
    return bool(
        problem.storage[estimate, 0] <= state.free[0, rank]
        and problem.storage[estimate, 1] <= state.free[1, rank]
        and problem.storage[estimate, 2] <= state.free[2, rank]
    )


@_inlined
def _put(problem: Inputs, estimate: int, state: Ranks, rank: int) -> None:
    for kind in range(3):
        state.free[kind, rank] -= problem.storage[estimate, kind]
    for component in range(5):
        state.load[component, rank] += problem.perf[estimate, component]
    state.total[rank] = _total(state.load, rank)


@_inlined
def _total(load: Floats, rank: int) -> float:
    return float(load[0, rank] + load[1, rank] + load[2, rank] + load[3, rank] + load[4, rank])


@_inlined
def _place_uniform(problem: Inputs, work: Work, row: Ints, hbm: int) -> bool:
    """Place row- and data-parallel options, which leave a rank no choice, on empty ranks.

    Ranks of one stretch have as much memory and load as each other, but for their capacity: of
    these, `free` has what is gone.
    """
    free, load, total = work.stretches
    free[:] = 0
    load[:] = 0.0
    some = False
    for column in range(row.size):
        option = row[column]
        if problem.placement[option] != Placement.UNIFORM:
            continue
        some = True
        if problem.first_shard[option + 1] - problem.first_shard[option] != work.state.total.size:
            return False
        start = 0
        for run in range(problem.first_run[option], problem.first_run[option + 1]):
            _add_run(problem, work.stretches, run, start, problem.run_end[run])
            start = problem.run_end[run]
        for rank in range(work.state.total.size):
            work.ranks[work.begin[column] + rank] = rank
    rank = 0
    for stretch in range(total.size):
        total[stretch] = _total(load, stretch)
        while rank < problem.stretch_end[stretch]:
            for kind in range(3):
                left = problem.capacity[kind, rank] + free[kind, stretch]
                if kind == 0 and hbm != 0:
                    left = hbm + free[kind, stretch]
                # No shard frees storage, so that one look after the last is enough.
                if some and left < 0:
                    return False
                work.state.free[kind, rank] = left
            for component in range(5):
                work.state.load[component, rank] = load[component, stretch]
            work.state.total[rank] = total[stretch]
            rank += 1
    return True


@_inlined
def _add_run(problem: Inputs, state: Ranks, run: int, first: int, end: int) -> None:
    """Put a shard of a run on each of some ranks, whose totals stay as they were."""
    estimate = problem.run_estimate[run]
    for rank in range(first, end):
        for kind in range(3):
            state.free[kind, rank] -= problem.storage[estimate, kind]
        for component in range(5):
            state.load[component, rank] += problem.perf[estimate, component]


@_inlined
def _collect_groups(problem: Inputs, work: Work, row: Ints) -> None:
    """Chain what is not uniform by group, and sum the groups in the order of the row."""
    key, storage = work.key, work.group_storage
    work.head[:] = -1
    key[:] = -np.inf
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


@_inlined
def _goes_before(work: Work, one: int, other: int) -> bool:
    """Whether a group is larger than another, or as large and earlier in the row."""
    part = 0
    while part < 3 and work.key[one, part] == work.key[other, part]:
        part += 1
    if work.key[one, part] != work.key[other, part]:
        return bool(work.key[one, part] > work.key[other, part])
    return bool(work.head[one] < work.head[other])


@_inlined
def _sort_groups(work: Work) -> None:
    """Sort by insertion: for a greedy proposer, the last row's order is nearly right."""
    order = work.order
    for place in range(1, order.size):
        group = order[place]
        if not _goes_before(work, group, order[place - 1]):
            continue
        low, high = 0, place - 1
        while low < high:
            middle = (low + high) // 2
            if _goes_before(work, group, order[middle]):
                high = middle
            else:
                low = middle + 1
        for moved in range(place, low, -1):
            order[moved] = order[moved - 1]
        order[low] = group


@_inlined
def _place_freely(
    problem: Inputs, work: Work, column: int, shard: int, first: int, end: int, local_ranks: int
) -> int:
    """Place a shard on the least loaded rank from `first` up to `end` that it fits, or on -1.

    Of equal ones it takes the first within its host of `local_ranks`, and then the first host.
    """
    state = work.state
    estimate = problem.estimate[problem.first_shard[work.row[column]] + shard]
    least = np.inf
    chosen = -1
    for local_rank in range(first, min(first + local_ranks, end)):
        rank = local_rank
        while rank < end:  # a range with steps divides, which takes longer than all of this
            if state.total[rank] < least and _fits(problem, estimate, state, rank):
                least = state.total[rank]
                chosen = rank
            rank += local_ranks
    if chosen >= 0:
        _put(problem, estimate, state, chosen)
        work.ranks[work.begin[column] + shard] = chosen
    return chosen


@_inlined
def _place_in_order(problem: Inputs, work: Work, column: int, first: int, end: int) -> bool:
    """Place a shard on each rank from `first` up to `end`, or none where one does not fit."""
    state, option, begin = work.state, work.row[column], work.begin[column]
    if work.begin[column + 1] - begin != end - first:
        return False
    start = first
    for run in range(problem.first_run[option], problem.first_run[option + 1]):
        for rank in range(start, first + problem.run_end[run]):
            if not _fits(problem, problem.run_estimate[run], state, rank):
                return False
        start = first + problem.run_end[run]
    start = first
    for run in range(problem.first_run[option], problem.first_run[option + 1]):
        _add_run(problem, state, run, start, first + problem.run_end[run])
        start = first + problem.run_end[run]
    for rank in range(first, end):
        state.total[rank] = _total(state.load, rank)
        work.ranks[begin + rank - first] = rank
    return True


@_inlined
def _sum_up_host(problem: Inputs, work: Work, host: int) -> None:
    perf = 0.0
    least = np.inf
    for rank in range(host * problem.host_ranks, (host + 1) * problem.host_ranks):
        perf += work.state.total[rank]
        least = min(least, work.state.total[rank])
    work.host_total[host] = perf
    work.host_least[host] = least


@_inlined
def _sort_hosts(problem: Inputs, work: Work) -> None:
    """Sort the hosts, stably, by the perf of their ranks."""
    total, hosts = work.host_total, work.hosts
    for host in range(hosts.size):
        _sum_up_host(problem, work, host)
        for kind in range(3):
            free = 0
            for rank in range(host * problem.host_ranks, (host + 1) * problem.host_ranks):
                free += work.state.free[kind, rank]
            work.host_free[kind, host] = free
    for place in range(1, hosts.size):
        host = hosts[place]
        while place > 0 and (total[host], host) < (total[hosts[place - 1]], hosts[place - 1]):
            hosts[place] = hosts[place - 1]
            place -= 1
        hosts[place] = host


@_inlined
def _move_host(problem: Inputs, work: Work, place: int) -> None:
    """Move the host in this place, on whose ranks the load has grown, to where it is in order."""
    total, hosts = work.host_total, work.hosts
    host = hosts[place]
    _sum_up_host(problem, work, host)
    while place + 1 < hosts.size and (
        total[hosts[place + 1]] < total[host]
        or (total[hosts[place + 1]] == total[host] and hosts[place + 1] < host)
    ):
        hosts[place] = hosts[place + 1]
        place += 1
    hosts[place] = host


@_inlined
def _least_loaded(problem: Inputs, work: Work) -> int:
    """Return the rank that `_place_freely` tries first."""
    least = np.inf
    for host in range(work.host_least.size):
        if work.host_least[host] < least:
            least = work.host_least[host]
    total = work.state.total
    for rank in range(work.host_least.size * problem.host_ranks, total.size):
        if total[rank] < least:
            least = total[rank]
    chosen = -1
    for host in range(work.host_least.size + 1):
        if host < work.host_least.size and work.host_least[host] != least:
            continue
        first = host * problem.host_ranks
        for rank in range(first, min(first + problem.host_ranks, total.size)):
            if total[rank] == least and (
                chosen < 0 or rank % problem.local_ranks < chosen % problem.local_ranks
            ):
                chosen = rank
    return chosen


@_inlined
def _place_on_devices(problem: Inputs, work: Work, column: int) -> bool:
    option, begin = work.row[column], work.begin[column]
    for shard in range(work.begin[column + 1] - begin):
        estimate = problem.estimate[problem.first_shard[option] + shard]
        rank = _least_loaded(problem, work)
        if _fits(problem, estimate, work.state, rank):
            _put(problem, estimate, work.state, rank)
            work.ranks[begin + shard] = rank
        else:
            ranks = work.state.total.size
            rank = _place_freely(problem, work, column, shard, 0, ranks, problem.local_ranks)
            if rank < 0:
                return False
        host = rank // problem.host_ranks
        if host < work.hosts.size:
            for kind in range(3):
                work.host_free[kind, host] -= problem.storage[estimate, kind]
            place = 0
            while work.hosts[place] != host:
                place += 1
            _move_host(problem, work, place)
    return True


@_inlined
def _place_on_one_host(problem: Inputs, work: Work, column: int, first: int) -> bool:
    """Place an option on the host whose ranks start with `first`, maybe not all of it."""
    placement = problem.placement[work.row[column]]
    end = first + problem.host_ranks
    placed = False
    if placement == Placement.HOST_ROWS:
        placed = _place_in_order(problem, work, column, first, end)
    elif placement == Placement.HOST_COLUMNS:
        placed = True
        for shard in range(work.begin[column + 1] - work.begin[column]):
            placed = placed and (
                _place_freely(problem, work, column, shard, first, end, problem.host_ranks) >= 0
            )
    return placed


@_inlined
def _place_on_host(problem: Inputs, work: Work, group: int) -> bool:
    """Place all of a group on the least loaded host that takes it."""
    head = work.head[group]
    one_shard = work.begin[head + 1] - work.begin[head] == 1
    whole = one_shard or problem.placement[work.row[head]] == Placement.HOST_ROWS
    in_steps = work.following[head] >= 0 or not whole  # a host may take a part and then no more
    for place in range(work.hosts.size):
        host = work.hosts[place]
        first = host * problem.host_ranks
        if (
            work.group_storage[group, 0] > work.host_free[0, host]
            or work.group_storage[group, 1] > work.host_free[1, host]
            or work.group_storage[group, 2] > work.host_free[2, host]
        ):
            continue
        if in_steps:
            _copy(work.state, work.saved, first, first + problem.host_ranks)
        column = head
        while column >= 0 and _place_on_one_host(problem, work, column, first):
            column = work.following[column]
        if column < 0:
            for kind in range(3):
                work.host_free[kind, host] -= work.group_storage[group, kind]
            _move_host(problem, work, place)
            return True
        if in_steps:
            _copy(work.saved, work.state, first, first + problem.host_ranks)
    return False


@_inlined
def _place_on_hosts(problem: Inputs, work: Work, column: int) -> bool:
    """Place a grid on neighbours in the order of hosts, or on all of them, in turns."""
    begin, count = work.begin[column], work.begin[column + 1] - work.begin[column]
    ranks = work.state.total.size
    if count % problem.host_ranks != 0:
        return False
    _copy(work.state, work.saved, 0, ranks)
    for start in range(max(1, work.hosts.size - count // problem.host_ranks + 1)):
        placed = 0
        while placed < count:
            host = work.hosts[(start + placed // problem.host_ranks) % work.hosts.size]
            rank = host * problem.host_ranks + placed % problem.host_ranks
            estimate = problem.estimate[problem.first_shard[work.row[column]] + placed]
            if not _fits(problem, estimate, work.state, rank):
                break
            _put(problem, estimate, work.state, rank)
            work.ranks[begin + placed] = rank
            placed += 1
        if placed == count:
            _sort_hosts(problem, work)
            return True
        _copy(work.saved, work.state, 0, ranks)
    return False


@_inlined
def _place(problem: Inputs, work: Work, row: Ints, hbm: int) -> bool:
    if not _place_uniform(problem, work, row, hbm):
        return False
    _sort_hosts(problem, work)
    _collect_groups(problem, work, row)
    _sort_groups(work)
    for group in work.order:
        column = work.head[group]
        if column < 0:  # the groups without a column are last
            break
        placement = problem.placement[row[column]]
        placed = False
        if placement == Placement.DEVICE:
            placed = _place_on_devices(problem, work, column)
        elif placement in (Placement.HOST_ROWS, Placement.HOST_COLUMNS):
            placed = _place_on_host(problem, work, group)
        elif placement == Placement.HOSTS and work.following[column] < 0:
            placed = _place_on_hosts(problem, work, column)
        if not placed:
            return False
    return True


@_inlined
def _largest(values: Floats) -> float:
    largest = 0.0
    for value in values:
        largest = max(largest, value)
    return largest


@_inlined
def _rate(problem: Inputs, work: Work, row: Ints) -> float:
    """Return the perf of the slowest rank, as NoopPerfModel adds it."""
    work.rank_perf[:] = 0.0
    for column in range(row.size):
        begin, first = work.begin[column], problem.first_shard[row[column]]
        for shard in range(work.begin[column + 1] - begin):
            estimate = problem.estimate[first + shard]
            work.rank_perf[work.ranks[begin + shard]] += problem.total[estimate]
    return _largest(work.rank_perf)


@numba.njit(cache=True, **_UNCOUNTED)  # type: ignore[untyped-decorator]  # numba has no types
def place_rows(
    problem: Inputs,
    work: Work,
    rows: Ints,
    hbm: int,
    exact: bool,
    best: float,
    ratings: Floats,
    best_ranks: Ints,
) -> int:
    """Place each row as GreedyPerfPartitioner does, `hbm` bytes on each rank where that is not 0.

    Returns the row that rates lowest, below `best`, and sets `best_ranks` to its ranks; -1 where
    none does. `ratings` gets NaN for each row without a place, and only nearly the rating of a row
    that rates no lower than those before it, unless `exact`.
    """
    chosen = -1
    for index in range(rows.shape[0]):
        row = rows[index]
        for column in range(row.size):
            shards = problem.first_shard[row[column] + 1] - problem.first_shard[row[column]]
            work.begin[column + 1] = work.begin[column] + shards
            work.row[column] = row[column]
        if not _place(problem, work, row, hbm):
            ratings[index] = np.nan
            continue
        ratings[index] = _largest(work.state.total)
        if exact or ratings[index] <= best * _SLACK:
            ratings[index] = _rate(problem, work, row)
        if ratings[index] < best:
            best = ratings[index]
            chosen = index
            for shard in range(work.begin[row.size]):
                best_ranks[shard] = work.ranks[shard]
    return chosen
