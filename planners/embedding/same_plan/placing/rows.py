"""TorchRec's partitioner, compiled: it places rows of option numbers on devices and rates them.

It adds floats in torchrec's order, so all sums are equal to the last bit. It breaks ties as
torchrec's stable sorts do: the earlier table in the row or the lower host wins.
"""

import numpy as np

from planners.embedding.same_plan.placing.groups import sort_groups, take_row
from planners.embedding.same_plan.placing.hosts import (
    place_on_devices,
    place_on_host,
    place_on_hosts,
    sort_hosts,
)
from planners.embedding.same_plan.placing.layout import Inputs, Work
from planners.embedding.same_plan.placing.ranks import copy, load_uniform, shards_of
from planners.embedding.same_plan.placing.room import has_too_large_shard, leave_room, surely_fit
from planners.embedding.search.compiling import inlined, kernel, merged, subroutine
from planners.embedding.search.space import Floats, Ints, Ints2, Placement

# Bounds the ratio of a rank's perf summed shard by shard to the one summed by component. A float
# sum of n non-negative terms has a relative error below n * 2**-52: enough for a million shards.
_SLACK = 1 + 1e-9


@merged
def _largest(values: Floats) -> float:
    largest = 0.0
    for value in values:
        largest = max(largest, value)
    return largest


@subroutine
def _keep(work: Work, step: int) -> None:
    """Save the state of the ranks and the order of the hosts before a step."""
    ranks = work.state.total.size
    copy(work.state, 0, work.steps.ranks, step * ranks, ranks)
    for place in range(work.hosts.order.size):
        work.steps.hosts[step, place] = work.hosts.order[place]


@subroutine
def _return_to(problem: Inputs, work: Work, step: int) -> None:
    """Restore the state before a step."""
    ranks = work.state.total.size
    if work.steps.loaded[0] == 0:
        load_uniform(problem, work)
        work.steps.loaded[0] = 1
    copy(work.steps.ranks, step * ranks, work.state, 0, ranks)
    for place in range(work.hosts.order.size):
        work.hosts.order[place] = work.steps.hosts[step, place]
    sort_hosts(problem, work)


@merged
def _place_group(problem: Inputs, work: Work, group: int) -> bool:
    column = work.groups.head[group]
    placement = problem.placement[work.row[column]]
    if placement == Placement.DEVICE:
        return place_on_devices(problem, work, column)
    if placement in (Placement.HOST_ROWS, Placement.HOST_COLUMNS):
        return place_on_host(problem, work, group)
    if placement == Placement.HOSTS and work.groups.following[column] < 0:
        return place_on_hosts(problem, work, column)
    return False


@subroutine
def _first_step(problem: Inputs, work: Work, row: Ints, hbm: int) -> int:
    """Store a new row; return its first step that the last row did not have, or -1.

    A greedy proposer changes one table at a time. If neither the table's old nor its new option is
    uniform, the groups placed before that table's group keep their ranks and are not placed again.
    -1 means that the uniform options do not fit, or that a shard is larger than all free memory.
    """
    steps = work.steps
    uniform_changed = take_row(problem, work, row)
    first_change = sort_groups(work)
    if uniform_changed or steps.placed[0] < 0 or steps.hbm[0] != hbm:
        steps.placed[0], steps.loaded[0], steps.hbm[0] = -1, 0, hbm
        if not leave_room(problem, work, hbm):
            return -1
        steps.placed[0] = 0
    step = min(first_change, steps.placed[0]) // steps.size
    if step == 0 and has_too_large_shard(work):
        steps.placed[0] = 0
        return -1
    return int(step)


# Inlined, because LLVM optimizes a cached function again at each level of calls, and then code
# loaded from disk is slower by two thirds than freshly compiled code.
@inlined
def _place(problem: Inputs, work: Work, row: Ints, hbm: int, best: float) -> float:
    """Place uniform options, then groups from the largest down; return NaN if one does not fit.

    Return infinity if all are placed. If some are placed, the rating is surely not below `best`,
    and all others surely fit, they are not placed; then return a lower bound of the rating.
    """
    order, steps = work.groups.order, work.steps
    step = _first_step(problem, work, row, hbm)
    if step < 0:
        return np.nan
    bound, returned = 0.0, False
    for option in row:
        bound = max(bound, problem.largest_shard[option])
    while step * steps.size < order.size and work.groups.head[order[step * steps.size]] >= 0:
        steps.placed[0] = step * steps.size
        if bound >= best and surely_fit(problem, work, step):
            return bound
        if not returned:
            _return_to(problem, work, step)
            returned = True
        for place in range(step * steps.size, min((step + 1) * steps.size, order.size)):
            steps.placed[0] = place
            if work.groups.head[order[place]] < 0:  # only groups without a column follow
                break
            if not _place_group(problem, work, order[place]):
                return np.nan
        step += 1
        if step * steps.size < order.size:
            _keep(work, step)
            bound = max(bound, _largest(work.state.total) / _SLACK)
    if not returned:
        _return_to(problem, work, step)
    return np.inf


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
    below. Unless `exact`, a rating that is not a new best may be a lower bound.
    """
    chosen = -1
    for index in range(rows.shape[0]):
        row = rows[index]
        ratings[index] = _place(problem, work, row, hbm, np.inf if exact else best)
        if ratings[index] == np.inf:
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
