"""TorchRec's partitioner, compiled: it places rows of option numbers on devices and rates them.

Every sum of floats is taken in torchrec's order, and so agrees with it to the last bit. All that is
called is inlined: what a kept function calls is optimised again at each level of calls, and what is
loaded from disk is slower for it by two thirds than what has just been compiled.
"""

import numpy as np

from planners.embedding.search.compiling import compiled, inlined
from planners.embedding.search.same_plan.placing.groups import collect_groups, sort_groups
from planners.embedding.search.same_plan.placing.hosts import (
    place_on_devices,
    place_on_host,
    place_on_hosts,
    sort_hosts,
)
from planners.embedding.search.same_plan.placing.layout import Inputs, Work
from planners.embedding.search.same_plan.placing.ranks import place_uniform
from planners.embedding.search.space import Floats, Ints, Placement

# How far a rank's perf, summed by component, may be from its rating, summed by shard: such sums of
# n terms, none negative, are off by less than n * 2**-52, which is enough for a million shards.
_SLACK = 1 + 1e-9


@inlined
def _place(problem: Inputs, work: Work, row: Ints, hbm: int) -> bool:
    if not place_uniform(problem, work, row, hbm):
        return False
    sort_hosts(problem, work)
    collect_groups(problem, work, row)
    sort_groups(work)
    for group in work.order:
        column = work.head[group]
        if column < 0:  # the groups without a column are last
            break
        placement = problem.placement[row[column]]
        placed = False
        if placement == Placement.DEVICE:
            placed = place_on_devices(problem, work, column)
        elif placement in (Placement.HOST_ROWS, Placement.HOST_COLUMNS):
            placed = place_on_host(problem, work, group)
        elif placement == Placement.HOSTS and work.following[column] < 0:
            placed = place_on_hosts(problem, work, column)
        if not placed:
            return False
    return True


@inlined
def _largest(values: Floats) -> float:
    largest = 0.0
    for value in values:
        largest = max(largest, value)
    return largest


@inlined
def _rate(problem: Inputs, work: Work, row: Ints) -> float:
    """Return the perf of the slowest rank, as NoopPerfModel adds it."""
    work.rank_perf[:] = 0.0
    for column in range(row.size):
        begin, first = work.begin[column], problem.first_shard[row[column]]
        for shard in range(work.begin[column + 1] - begin):
            estimate = problem.estimate[first + shard]
            work.rank_perf[work.ranks[begin + shard]] += problem.total[estimate]
    return _largest(work.rank_perf)


@compiled
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
