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
def _part(state: Ranks, first: int, end: int) -> Ranks:
    return Ranks(state.free[:, first:end], state.load[:, first:end], state.total[first:end])


@_inlined
def _copy(source: Ranks, target: Ranks) -> None:
    for rank in range(source.total.size):
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
def _place_uniform(problem: Inputs, work: Work, row: Ints) -> bool:
    """Place row- and data-parallel options, which leave a rank no choice."""
    free, load, total = work.state
    some = False
    for column in range(row.size):
        option = row[column]
        if problem.placement[option] != Placement.UNIFORM:
            continue
        some = True
        if problem.first_shard[option + 1] - problem.first_shard[option] != total.size:
            return False
        start = 0
        for run in range(problem.first_run[option], problem.first_run[option + 1]):
            end = problem.run_end[run]
            estimate = problem.run_estimate[run]
            for kind in range(3):
                _add(free[kind, start:end], -problem.storage[estimate, kind])
            for component in range(5):
                _add(load[component, start:end], problem.perf[estimate, component])
            start = end
        ranks = work.ranks[work.begin[column] : work.begin[column + 1]]
        for rank in range(ranks.size):
            ranks[rank] = rank
    if some:
        for rank in range(total.size):
            # No shard frees storage, so that one look after the last is enough.
            if free[0, rank] < 0 or free[1, rank] < 0 or free[2, rank] < 0:
                return False
            total[rank] = _total(load, rank)
    return True


@_inlined
def _add(values: Floats | Ints, value: float) -> None:
    for index in range(values.size):
        values[index] += value


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
    problem: Inputs, state: Ranks, first: int, local_ranks: int, option: int, ranks: Ints
) -> bool:
    """Place each shard on the least loaded rank that it fits; the ranks start with `first`.

    Of equal ones it takes the first within its host of `local_ranks`, and then the first host.
    """
    for shard in range(ranks.size):
        estimate = problem.estimate[problem.first_shard[option] + shard]
        least = np.inf
        chosen = -1
        for local_rank in range(min(local_ranks, state.total.size)):
            for rank in range(local_rank, state.total.size, local_ranks):
                if state.total[rank] < least and _fits(problem, estimate, state, rank):
                    least = state.total[rank]
                    chosen = rank
        if chosen < 0:
            return False
        _put(problem, estimate, state, chosen)
        ranks[shard] = first + chosen
    return True


@_inlined
def _place_in_order(problem: Inputs, state: Ranks, first: int, option: int, ranks: Ints) -> bool:
    """Place a shard on each rank, or none where one does not fit; the ranks start with `first`."""
    estimates = problem.estimate[problem.first_shard[option] : problem.first_shard[option + 1]]
    if ranks.size != state.total.size:
        return False
    for shard in range(ranks.size):
        if not _fits(problem, estimates[shard], state, shard):
            return False
    for shard in range(ranks.size):
        _put(problem, estimates[shard], state, shard)
        ranks[shard] = first + shard
    return True


@_inlined
def _sort_hosts(problem: Inputs, work: Work, first: int, end: int) -> None:
    """Sort the hosts, stably, by the perf of their ranks, which has changed on some of them."""
    total, hosts = work.host_total, work.hosts
    for host in range(first, min(end, hosts.size)):
        ranks = work.state.total[host * problem.host_ranks : (host + 1) * problem.host_ranks]
        perf = 0.0
        for rank in range(ranks.size):
            perf += ranks[rank]
        total[host] = perf
    for place in range(1, hosts.size):
        host = hosts[place]
        while place > 0 and (total[host], host) < (total[hosts[place - 1]], hosts[place - 1]):
            hosts[place] = hosts[place - 1]
            place -= 1
        hosts[place] = host


@_inlined
def _place_on_devices(problem: Inputs, work: Work, option: int, ranks: Ints) -> bool:
    if not _place_freely(problem, work.state, 0, problem.local_ranks, option, ranks):
        return False
    for rank in ranks:
        _sort_hosts(problem, work, rank // problem.host_ranks, rank // problem.host_ranks + 1)
    return True


@_inlined
def _can_hold(state: Ranks, storage: Ints) -> bool:
    for kind in range(3):
        free = 0
        for rank in range(state.total.size):
            free += state.free[kind, rank]
        if storage[kind] > free:
            return False
    return True


@_inlined
def _place_on_host(problem: Inputs, work: Work, row: Ints, group: int) -> bool:
    """Place all of a group on the least loaded host that takes it."""
    head = work.head[group]
    one_shard = work.begin[head + 1] - work.begin[head] == 1
    whole = one_shard or problem.placement[row[head]] == Placement.HOST_ROWS
    in_steps = work.following[head] >= 0 or not whole  # a host may take a part and then no more
    saved = _part(work.saved, 0, problem.host_ranks)
    for host in work.hosts:
        first = host * problem.host_ranks
        state = _part(work.state, first, first + problem.host_ranks)
        if not _can_hold(state, work.group_storage[group]):
            continue
        if in_steps:
            _copy(state, saved)
        column = head
        while column >= 0:
            option = row[column]
            ranks = work.ranks[work.begin[column] : work.begin[column + 1]]
            placed = False
            if problem.placement[option] == Placement.HOST_ROWS:
                placed = _place_in_order(problem, state, first, option, ranks)
            elif problem.placement[option] == Placement.HOST_COLUMNS:
                placed = _place_freely(problem, state, first, problem.host_ranks, option, ranks)
            if not placed:
                break
            column = work.following[column]
        if column < 0:
            _sort_hosts(problem, work, host, host + 1)
            return True
        if in_steps:
            _copy(saved, state)
    return False


@_inlined
def _place_on_hosts(problem: Inputs, work: Work, option: int, ranks: Ints) -> bool:
    """Place a grid on neighbours in the order of hosts, or on all of them, in turns."""
    if ranks.size % problem.host_ranks != 0:
        return False
    _copy(work.state, work.saved)
    for start in range(max(1, work.hosts.size - ranks.size // problem.host_ranks + 1)):
        placed = 0
        while placed < ranks.size:
            host = work.hosts[(start + placed // problem.host_ranks) % work.hosts.size]
            rank = host * problem.host_ranks + placed % problem.host_ranks
            estimate = problem.estimate[problem.first_shard[option] + placed]
            if not _fits(problem, estimate, work.state, rank):
                break
            _put(problem, estimate, work.state, rank)
            ranks[placed] = rank
            placed += 1
        if placed == ranks.size:
            _sort_hosts(problem, work, 0, work.hosts.size)
            return True
        _copy(work.saved, work.state)
    return False


@_inlined
def _place(problem: Inputs, work: Work, row: Ints, hbm: int) -> bool:
    for rank in range(work.state.total.size):
        for kind in range(3):
            work.state.free[kind, rank] = problem.capacity[kind, rank]
        if hbm != 0:
            work.state.free[0, rank] = hbm
    work.state.load[:] = 0.0
    work.state.total[:] = 0.0
    if not _place_uniform(problem, work, row):
        return False
    _sort_hosts(problem, work, 0, work.hosts.size)
    _collect_groups(problem, work, row)
    _sort_groups(work)
    for group in work.order:
        column = work.head[group]
        if column < 0:  # the groups without a column are last
            break
        option = row[column]
        ranks = work.ranks[work.begin[column] : work.begin[column + 1]]
        placement = problem.placement[option]
        placed = False
        if placement == Placement.DEVICE:
            placed = _place_on_devices(problem, work, option, ranks)
        elif placement in (Placement.HOST_ROWS, Placement.HOST_COLUMNS):
            placed = _place_on_host(problem, work, row, group)
        elif placement == Placement.HOSTS and work.following[column] < 0:
            placed = _place_on_hosts(problem, work, option, ranks)
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
        ranks = work.ranks[work.begin[column] : work.begin[column + 1]]
        for shard in range(ranks.size):
            estimate = problem.estimate[problem.first_shard[row[column]] + shard]
            work.rank_perf[ranks[shard]] += problem.total[estimate]
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
