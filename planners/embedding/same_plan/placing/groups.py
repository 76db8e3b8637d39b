"""Compiled upkeep of a row's groups and uniform options: only what differs from the last row.

A proposal of the greedy proposer differs from the last one in one table. So sums of integers are
updated, and sums of floats, which depend on their order, are repeated for the changed groups alone.

`Groups.memory` and `Steps.memory` have a row for each of the constants below; for a step, the first
two are sums and the others maxima over its groups, -1 if there is no such group.
"""

import numpy as np

from planners.embedding.same_plan.placing.layout import Groups, Inputs, Work
from planners.embedding.search.compiling import merged, subroutine
from planners.embedding.search.space import Floats2, Ints, Placement

TOTAL = 0  # bytes of all shards
ON_A_HOST = 1  # the most bytes that a rank of a host gets if the host gets the group or a part
EACH_RANK = 2  # free bytes on each rank of a host with which a group with a HOST_ROWS option fits
ONE_RANK = 3  # free bytes on one rank with which another group fits
SHARD = 4  # bytes of the largest shard


@subroutine
def take_row(problem: Inputs, work: Work, row: Ints) -> bool:
    """Store the new row and update its groups; return whether uniform options have changed."""
    groups, uniform_changed = work.groups, False
    groups.changed[:] = 0
    for column in range(row.size):
        before, option = work.row[column], row[column]
        if before == option:
            continue
        work.row[column] = option
        if before >= 0:
            if problem.placement[before] == Placement.UNIFORM:
                uniform_changed = True
                _add_uniform(problem, work, before, column, -1)
            else:
                groups.changed[problem.group[before]] = 1
                _unlink(groups, problem.group[before], column)
        if problem.placement[option] == Placement.UNIFORM:
            uniform_changed = True
            _add_uniform(problem, work, option, column, 1)
        else:
            groups.changed[problem.group[option]] = 1
            _link(groups, problem.group[option], column)
    for group in range(groups.changed.size):
        if groups.changed[group] != 0:
            _sum_up(problem, work, group)
    return uniform_changed


@subroutine
def _add_uniform(problem: Inputs, work: Work, option: int, column: int, times: int) -> None:
    """Add a uniform option to the memory of the stretches, or subtract it if `times` is -1."""
    uniform = work.uniform
    uniform.summed[0] = min(uniform.summed[0], column // uniform.columns_a_part)
    uniform.columns[0] += times
    if problem.first_shard[option + 1] - problem.first_shard[option] != work.state.total.size:
        uniform.columns[1] += times
    start = 0
    for run in range(problem.first_run[option], problem.first_run[option + 1]):
        for kind in range(3):
            held = times * problem.storage[problem.run_estimate[run], kind]
            if held != 0:
                for stretch in range(start, problem.run_end[run]):
                    uniform.used[kind, stretch] += held
        start = problem.run_end[run]


@merged
def _link(groups: Groups, group: int, column: int) -> None:
    """Insert a column into its group; columns are sorted."""
    before, after = -1, groups.head[group]
    while 0 <= after < column:
        before, after = after, groups.following[after]
    groups.following[column] = after
    if before < 0:
        groups.head[group] = column
    else:
        groups.following[before] = column


@merged
def _unlink(groups: Groups, group: int, column: int) -> None:
    if groups.head[group] == column:
        groups.head[group] = groups.following[column]
        return
    before = groups.head[group]
    while groups.following[before] != column:
        before = groups.following[before]
    groups.following[before] = groups.following[column]


@subroutine
def _sum_up(problem: Inputs, work: Work, group: int) -> None:
    """Sum the memory and the perf of a group's columns in row order; set its sort key."""
    groups, key, memory = work.groups, work.groups.key, work.groups.memory
    column = groups.head[group]
    key[group, 0] = problem.precedence[work.row[column]] if column >= 0 else -np.inf
    for part in range(1, 4):
        key[group, part] = 0.0 if column >= 0 else -np.inf
    memory[group] = 0
    by_host = False
    while column >= 0:
        option = work.row[column]
        in_rows = problem.placement[option] == Placement.HOST_ROWS
        by_host = by_host or in_rows
        for kind in range(3):
            total, needed = problem.option_storage[option, kind], problem.needed[option, kind]
            memory[group, TOTAL, kind] += total
            memory[group, ON_A_HOST, kind] += needed if in_rows else total
            memory[group, ONE_RANK, kind] += needed
            shard = problem.shard_storage[option, kind]
            memory[group, SHARD, kind] = max(memory[group, SHARD, kind], shard)
            if not problem.by_perf:  # whole bytes, exact up to 2**53
                key[group, 1 + kind] = memory[group, TOTAL, kind]
        if problem.by_perf:
            key[group, 1] += problem.option_perf[option]
        column = groups.following[column]
    for kind in range(3):
        memory[group, EACH_RANK, kind] = memory[group, ONE_RANK, kind] if by_host else -1
        if by_host:
            memory[group, ONE_RANK, kind] = -1


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
def sort_groups(work: Work) -> int:
    """Sort the changed groups in among the others; return the first place that has changed."""
    groups, order = work.groups, work.groups.order
    low_change, high_change = order.size, -1
    for place in range(order.size):
        group = order[place]
        before = order[max(place - 1, 0)]
        if groups.changed[group] == 0 and groups.changed[before] == 0:
            continue
        low = place
        if place > 0 and _goes_before(groups.key, groups.head, group, before):
            low, high = 0, place - 1
            # Most groups change places with their neighbour, which goes down the order.
            if place > 1 and not _goes_before(groups.key, groups.head, group, order[place - 2]):
                low = high
            while low < high:
                middle = (low + high) // 2
                if _goes_before(groups.key, groups.head, group, order[middle]):
                    high = middle
                else:
                    low = middle + 1
            for moved in range(place, low, -1):
                order[moved] = order[moved - 1]
            order[low] = group
        if low < place or groups.changed[group] != 0:
            low_change, high_change = min(low_change, low), max(high_change, place)
    size = work.steps.size
    for step in range(low_change // size, high_change // size + 1):
        _sum_up_step(work, step)
    return low_change


@merged
def _sum_up_step(work: Work, step: int) -> None:
    groups, memory, size = work.groups, work.steps.memory, work.steps.size
    for part in range(5):
        for kind in range(3):
            memory[step, part, kind] = 0 if part <= ON_A_HOST else -1
    for place in range(step * size, min((step + 1) * size, groups.order.size)):
        group = groups.order[place]
        if groups.head[group] < 0:  # only groups without a column follow
            break
        for kind in range(3):
            for part in range(2):
                memory[step, part, kind] += groups.memory[group, part, kind]
            for part in range(2, 5):
                most = groups.memory[group, part, kind]
                memory[step, part, kind] = max(memory[step, part, kind], most)
