"""TorchRec's GreedyPerfPartitioner, compiled: places rows of options on ranks and rates them.

A row is a proposal: the option of each table, in the order of the plan. Floats are added in
torchrec's order, so that all sums are equal to the last bit. Ties are broken as by torchrec's
stable sorts: the earlier table in the row or the lower host comes first.
"""

import numpy as np

from planners.embedding.same_plan.arrays import Inputs, Ranks, Work
from planners.embedding.same_plan.row_proofs import (
    SLACK,
    bound_of,
    surely_fit,
    surely_overflow,
    take_memory,
)
from planners.embedding.search.compiling import kernel, subroutine
from planners.embedding.search.space import Floats, Ints, Ints2, Placement

# A row is checked after this part of its columns, and after each doubling of it: can it be better?
_FIRST_CHECK = 1 / 16


@kernel
def place_rows(inputs: Inputs, work: Work, rows: Ints2, best: float, ratings: Floats) -> None:
    """Place each row on empty ranks; set `ratings` in milliseconds, NaN if a row does not fit.

    A rating that is neither below `best` nor below that of an earlier row may be a lower bound,
    unless `best` is infinite: then all rows are rated exactly, and `work.ranks` are the ranks of
    the last one.
    """
    for index in range(rows.shape[0]):
        ratings[index] = _place(inputs, work, rows[index], best)
        if ratings[index] < best < np.inf:
            best = ratings[index]


@subroutine
def _place(inputs: Inputs, work: Work, row: Ints, best: float) -> float:
    """Place a row; return its rating, a lower bound of it that is at least `best`, or NaN."""
    # 1. Compare the uniform options with all memory, and the others with what these leave.
    if not take_memory(inputs, work, row) or surely_overflow(inputs, work, row):
        return np.nan
    # 2. If the row is surely not better and surely fits, there is no need to place it.
    bound = bound_of(inputs, row)
    if bound >= best and surely_fit(inputs, work, row, 0):
        return bound
    # 3. Load the uniform options, then place the groups from the largest down. The more of them
    # are placed, the higher is the bound, and the smaller are the groups that must surely fit.
    _load_uniform(inputs, work, row)
    _sort_columns(inputs, work, row)
    place, check, uniform = 0, int(row.size * _FIRST_CHECK) + 1, work.first.size - 1
    while place < row.size and work.group[work.order[place]] != uniform:
        if place >= check:
            bound = max(bound, _largest(work.state.total) / SLACK)
            if bound >= best and surely_fit(inputs, work, row, place):
                return bound
            check *= 2
        end = place + 1
        while end < row.size and work.group[work.order[end]] == work.group[work.order[place]]:
            end += 1
        if not _place_group(inputs, work, row, place, end):
            return np.nan
        place = end
    # 4. Rate the plan as torchrec does, unless it is surely slower.
    slowest = _largest(work.state.total)
    return slowest if slowest > best * SLACK else _rating(inputs, work, row)


@subroutine
def _load_uniform(inputs: Inputs, work: Work, row: Ints) -> None:
    """Set the ranks' loads to those of the uniform options, added in the order of the row."""
    load, state = work.uniform_load, work.state
    load[:] = 0.0
    for option in row:
        if inputs.placement[option] == Placement.UNIFORM:
            first = 0
            for run in range(inputs.first_run[option], inputs.first_run[option + 1]):
                for component in range(5):
                    spent = inputs.perf[inputs.run_estimate[run], component]
                    for stretch in range(first, inputs.run_end[run]):
                        load[component, stretch] += spent
                first = inputs.run_end[run]
    rank = 0
    for stretch in range(inputs.stretch_end.size):
        while rank < inputs.stretch_end[stretch]:
            for component in range(5):
                state.load[component, rank] = load[component, stretch]
            state.total[rank] = _total(state, rank)
            rank += 1
    for host in range(work.leader.size):
        _sum_up_host(inputs, work, host)


@subroutine
def _sort_columns(inputs: Inputs, work: Work, row: Ints) -> None:
    """Sort the columns by the descending keys of their groups.

    Insertion sort, because the order of the last row is almost that of this one.
    """
    work.first[:] = -1
    for column in range(row.size):
        option = row[column]
        group = inputs.group[option]
        if inputs.placement[option] == Placement.UNIFORM:
            group = work.first.size - 1
        elif work.first[group] < 0:
            work.first[group] = column
            for part in range(4):
                work.key[group, part] = inputs.key[option, part]
        else:
            for part in range(1, 4):
                work.key[group, part] += inputs.key[option, part]
        work.group[column] = group
    order = work.order
    for place in range(1, order.size):
        column = order[place]
        while place > 0 and _goes_before(work, column, order[place - 1]):
            order[place] = order[place - 1]
            place -= 1
        order[place] = column


@subroutine
def _goes_before(work: Work, column: int, other: int) -> bool:
    group, another = work.group[column], work.group[other]
    if group == another:
        return column < other
    for part in range(4):
        if work.key[group, part] != work.key[another, part]:
            return bool(work.key[group, part] > work.key[another, part])
    return bool(work.first[group] < work.first[another])


@subroutine
def _place_group(inputs: Inputs, work: Work, row: Ints, place: int, end: int) -> bool:
    """Place the columns order[place] to order[end], a group; return False if they do not fit."""
    column = work.order[place]
    if inputs.placement[row[column]] == Placement.DEVICE:
        return _place_part(inputs, work, row, column, 0, 0)
    # Only tables that are each on a single host are placed together.
    for placed in range(place, end):
        placement = inputs.placement[row[work.order[placed]]]
        if placement == Placement.NOWHERE or (placement == Placement.HOSTS and end > place + 1):
            return False
    return _place_on_hosts(inputs, work, row, place, end)


@subroutine
def _place_on_hosts(inputs: Inputs, work: Work, row: Ints, place: int, end: int) -> bool:
    """Place a group on the least loaded host that it fits, or a grid on consecutive hosts.

    Hosts are in the order of their perf. A grid has a part for each host; if it has more parts
    than there are hosts, it continues at the first host.
    """
    order, hosts, parts = work.host_order, work.host_order.size, 1
    option = row[work.order[place]]
    if inputs.placement[option] == Placement.HOSTS:
        shards = inputs.first_shard[option + 1] - inputs.first_shard[option]
        parts = shards // inputs.host_ranks
    _sort_hosts(work)
    for start in range(max(hosts - parts + 1, min(hosts, 1))):
        # 1. Try a series of hosts: place part after part and column after column.
        if parts == 1 and not _has_memory(inputs, work, row, place, end, order[start]):
            continue
        for part in range(min(parts, hosts)):
            _copy(inputs, work.state, work.saved, order[(start + part) % hosts])
        fits = True
        for placed in range(place, end):
            for part in range(parts):
                host = order[(start + part) % hosts]
                fits = fits and _place_part(inputs, work, row, work.order[placed], part, host)
        if fits:
            return True
        # 2. Take back what was placed, and go on from the next host.
        for part in range(min(parts, hosts)):
            host = order[(start + part) % hosts]
            _copy(inputs, work.saved, work.state, host)
            _sum_up_host(inputs, work, host)
    return False


@subroutine
def _has_memory(inputs: Inputs, work: Work, row: Ints, place: int, end: int, host: int) -> bool:
    """Whether the sum of a host's free memory, which torchrec checks first, is enough."""
    first = host * inputs.host_ranks
    for kind in range(3):
        room = 0
        for rank in range(first, first + inputs.host_ranks):
            room += work.state.free[kind, rank]
        for placed in range(place, end):
            room -= inputs.option_storage[row[work.order[placed]], kind]
        if room < 0:
            return False
    return True


@subroutine
def _place_part(inputs: Inputs, work: Work, row: Ints, column: int, part: int, host: int) -> bool:
    """Place an option, or a part of a grid, on a host; place one by device on any ranks.

    If it does not fit, return False; then some of its shards are placed.
    """
    option = row[column]
    placement = inputs.placement[option]
    first, end = 0, inputs.first_shard[option + 1] - inputs.first_shard[option]
    if placement == Placement.HOSTS:
        first, end = part * inputs.host_ranks, (part + 1) * inputs.host_ranks
    for shard in range(first, end):
        estimate = inputs.estimate[inputs.first_shard[option] + shard]
        if placement == Placement.DEVICE:
            rank = _least_loaded_leader(inputs, work)
            if not _fits(inputs, work, estimate, rank):
                rank = _least_loaded(inputs, work, estimate, -1)
        elif placement == Placement.HOST_COLUMNS:
            rank = _least_loaded(inputs, work, estimate, host)
        else:  # shard i of a part is on rank i of the host
            rank = host * inputs.host_ranks + shard - first
            if not _fits(inputs, work, estimate, rank):
                return False
        if rank < 0:
            return False
        _put(inputs, work, estimate, rank)
        work.ranks[column, shard] = rank
    return True


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
        if leader < 0 or _is_before(inputs, work, rank, leader):
            leader = rank
    work.leader[host] = leader
    if host < work.host_total.size:
        work.host_total[host] = perf


@subroutine
def _least_loaded_leader(inputs: Inputs, work: Work) -> int:
    """Return the least loaded of all ranks."""
    chosen = -1
    for leader in work.leader:
        if leader >= 0 and (chosen < 0 or _is_before(inputs, work, leader, chosen)):
            chosen = leader
    return chosen


@subroutine
def _least_loaded(inputs: Inputs, work: Work, estimate: int, host: int) -> int:
    """Return the least loaded rank of a host, or of all ranks if it is -1, that a shard fits.

    Return -1 if it fits on none. Equally loaded ranks of a host are in their order.
    """
    chosen, total = -1, work.state.total
    first, end = host * inputs.host_ranks, (host + 1) * inputs.host_ranks
    if host < 0:
        first, end = 0, total.size
    for rank in range(first, end):
        better = chosen < 0 or total[rank] < total[chosen]
        if host < 0:
            better = better or _is_before(inputs, work, rank, chosen)
        if better and _fits(inputs, work, estimate, rank):
            chosen = rank
    return chosen


@subroutine
def _is_before(inputs: Inputs, work: Work, rank: int, other: int) -> bool:
    """Whether torchrec prefers `rank` to a lower one: it is less loaded, or has a lower place."""
    total, place = work.state.total, inputs.place
    return bool(
        total[rank] < total[other] or (total[rank] == total[other] and place[rank] < place[other])
    )


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
    _sum_up_host(inputs, work, rank // inputs.host_ranks)


@subroutine
def _total(state: Ranks, rank: int) -> float:
    """Return a rank's perf: the sum of its components in the order of torchrec's `Perf.total`."""
    load = state.load
    return float(load[0, rank] + load[1, rank] + load[2, rank] + load[3, rank] + load[4, rank])


@subroutine
def _copy(inputs: Inputs, source: Ranks, target: Ranks, host: int) -> None:
    """Copy the state of a host's ranks."""
    for rank in range(host * inputs.host_ranks, (host + 1) * inputs.host_ranks):
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
