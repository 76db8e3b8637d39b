"""TorchRec's partitioner, compiled: it places rows of option numbers on devices and rates them.

Every sum of floats is taken in torchrec's order, and so agrees with it to the last bit. All that is
called is inlined: what a kept function calls is optimised again at each level of calls, and what is
loaded from disk is slower for it by two thirds than what has just been compiled.
"""

import numpy as np

from planners.embedding.same_plan.placing.groups import collect_groups, sort_groups
from planners.embedding.same_plan.placing.hosts import (
    place_on_devices,
    place_on_host,
    place_on_hosts,
    sort_hosts,
)
from planners.embedding.same_plan.placing.layout import Inputs, Work
from planners.embedding.same_plan.placing.ranks import place_uniform, shards_of
from planners.embedding.same_plan.placing.steps import go_back, keep, steps_alike, take_row
from planners.embedding.search.compiling import inlined, kernel, merged, subroutine
from planners.embedding.search.space import Floats, Ints, Ints2, Placement

# How far a rank's perf, summed by component, may be from its rating, summed by shard: such sums of
# n terms, none negative, are off by less than n * 2**-52, which is enough for a million shards.
_SLACK = 1 + 1e-9


@inlined
def _place(problem: Inputs, work: Work, row: Ints, hbm: int) -> bool:
    last = work.last
    alike = take_row(problem, work, row, hbm)
    collect_groups(problem, work, row)
    sort_groups(work)
    first = steps_alike(work) if alike else 0
    if alike:
        go_back(work, first)
    else:
        last.placed[0] = -1
        if not place_uniform(problem, work, row, hbm):
            return False
        sort_hosts(problem, work)
    for step in range(first, last.ranks.total.size // work.state.total.size):
        keep(work, step)
        start = step * last.groups_a_step
        for place in range(start, min(start + last.groups_a_step, work.order.size)):
            last.placed[0] = place
            column = work.head[work.order[place]]
            if column < 0:  # the groups without a column are last
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
    """Return the perf of the slowest rank, as NoopPerfModel adds it."""
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
    """Place each row as GreedyPerfPartitioner does, `hbm` bytes on each rank where that is not 0.

    Returns the row that rates lowest, below `best`, and sets `best_ranks` to its ranks; -1 where
    none does. `ratings` gets NaN for each row without a place, and only nearly the rating of a row
    that rates no lower than those before it, unless `exact`.
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
