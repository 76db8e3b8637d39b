"""TorchRec's GreedyPerfPartitioner, compiled: places rows of options on ranks and rates them.

A row is a proposal: the option of each table, in the order of the plan. Floats are added in
torchrec's order, so that all sums are equal to the last bit. Ties are broken as by torchrec's
stable sorts: the earlier table in the row or the lower host comes first.
"""

import numpy as np

from planners.embedding.same_plan.arrays import STEPS, Inputs, Work
from planners.embedding.same_plan.ranks import (
    copy_ranks,
    largest_of,
    least_loaded,
    least_loaded_on,
    put_shard,
    shard_fits,
    sum_up_host,
    total_of,
)
from planners.embedding.same_plan.row_proofs import (
    SLACK,
    bound_of,
    surely_fit,
    surely_overflow,
    take_memory,
)
from planners.embedding.search.compiling import kernel, subroutine
from planners.embedding.search.space import Floats, Ints, Ints2, Placement


@kernel
def place_rows(inputs: Inputs, work: Work, rows: Ints2, best: float, ratings: Floats) -> None:
    """Place each row on empty ranks; set `ratings` in milliseconds, NaN if a row does not fit.

    A rating that is neither below `best` nor below that of an earlier row may be a lower bound,
    unless `best` is infinite: then all rows are rated exactly, and `work.ranks` are the ranks of
    the last one.
    """
    work.kept_end[:] = 0
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
    # 3. Go on from the last row's state where the first columns are the same, or load the uniform
    # options; then place the groups from the largest down. The more of them are placed, the higher
    # is the bound, and the smaller are the groups that must surely fit.
    _sort_columns(inputs, work, row)
    place, uniform = _resume(inputs, work, row), work.first.size - 1
    step = row.size // STEPS + 1
    check = place or step
    while place < row.size and work.group[work.order[place]] != uniform:
        if place >= check:
            _keep(work, place)
            bound = max(bound, largest_of(work.state.total) / SLACK)
            if bound >= best and surely_fit(inputs, work, row, place):
                return bound
            check = place + step
        end = place + 1
        while end < row.size and work.group[work.order[end]] == work.group[work.order[place]]:
            end += 1
        if not _place_group(inputs, work, row, place, end):
            return np.nan
        place = end
    # 4. Rate the plan as torchrec does, unless it is surely slower.
    slowest = largest_of(work.state.total)
    return slowest if slowest > best * SLACK else _rating(inputs, work, row)


@subroutine
def _resume(inputs: Inputs, work: Work, row: Ints) -> int:
    """Set the ranks to the last kept state that this row shares; return its number of columns.

    If there is none, load the uniform options, and return 0. Most rows of greedy proposers differ
    in a single table from the row before.
    """
    # 1. How many of the first columns are as in the last row that was placed?
    same, last = True, work.last_row
    for column in range(row.size):
        if row[column] != last[column]:
            before, now = inputs.placement[last[column]], inputs.placement[row[column]]
            same = same and before != Placement.UNIFORM and now != Placement.UNIFORM
    columns = 0
    while same and columns < row.size:
        column = work.order[columns]
        same = column == work.last_order[columns] and row[column] == last[column]
        columns += int(same)
    # 2. Which states are still right?
    kept = 0
    while kept < work.kept_end.size and 0 < work.kept_end[kept] <= columns:
        kept += 1
    work.kept_end[kept:] = 0
    for column in range(row.size):
        last[column], work.last_order[column] = row[column], work.order[column]
    # 3. Return to the last of them.
    if kept == 0:
        _load_uniform(inputs, work, row)
        return 0
    copy_ranks(work.kept, (kept - 1) * work.state.total.size, work.state, 0, work.state.total.size)
    for host in range(work.leader.size):
        sum_up_host(inputs, work, host)
    return int(work.kept_end[kept - 1])


@subroutine
def _keep(work: Work, place: int) -> None:
    """Keep the state of the ranks with the columns before `place`, unless it is kept already."""
    kept, ranks = 0, work.state.total.size
    while kept < work.kept_end.size and 0 < work.kept_end[kept] < place:
        kept += 1
    if kept < work.kept_end.size and work.kept_end[kept] == 0:
        work.kept_end[kept] = place
        copy_ranks(work.state, 0, work.kept, kept * ranks, ranks)


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
            state.total[rank] = total_of(state, rank)
            rank += 1
    for host in range(work.leader.size):
        sum_up_host(inputs, work, host)


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
            first = order[(start + part) % hosts] * inputs.host_ranks
            copy_ranks(work.state, first, work.saved, first, inputs.host_ranks)
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
            first = host * inputs.host_ranks
            copy_ranks(work.saved, first, work.state, first, inputs.host_ranks)
            sum_up_host(inputs, work, host)
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
            rank = least_loaded(inputs, work, estimate)
        elif placement == Placement.HOST_COLUMNS:
            rank = least_loaded_on(inputs, work, estimate, host)
        else:  # shard i of a part is on rank i of the host
            rank = host * inputs.host_ranks + shard - first
            if not shard_fits(inputs, work, estimate, rank):
                return False
        if rank < 0:
            return False
        put_shard(inputs, work, estimate, rank)
        work.ranks[column, shard] = rank
        if placement == Placement.DEVICE:  # else all shards are on one host, which is summed below
            sum_up_host(inputs, work, rank // inputs.host_ranks)
    if placement != Placement.DEVICE:
        sum_up_host(inputs, work, host)
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
def _rating(inputs: Inputs, work: Work, row: Ints) -> float:
    """Return the slowest rank's milliseconds, added shard by shard as torchrec's NoopPerfModel."""
    work.rank_perf[:] = 0.0
    for column in range(row.size):
        first, end = inputs.first_shard[row[column]], inputs.first_shard[row[column] + 1]
        uniform = inputs.placement[row[column]] == Placement.UNIFORM
        for shard in range(end - first):
            rank = shard if uniform else work.ranks[column, shard]
            work.rank_perf[rank] += inputs.total[inputs.estimate[first + shard]]
    return largest_of(work.rank_perf)
