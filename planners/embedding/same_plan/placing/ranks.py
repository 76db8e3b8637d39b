"""Compiled functions that place shards on ranks."""

import numpy as np

from planners.embedding.same_plan.placing.layout import Inputs, Ranks, Work
from planners.embedding.search.compiling import merged, subroutine
from planners.embedding.search.space import Floats, Floats2, Floats3, Ints, Ints2, Placement


@merged
def shards_of(first_shard: Ints, option: int) -> int:
    """Return the number of shards of an option."""
    return int(first_shard[option + 1] - first_shard[option])


@subroutine
def copy(source: Ranks, begin: int, target: Ranks, start: int, count: int) -> None:
    """Copy the state of `count` ranks, from index `begin` of `source` to `start` of `target`."""
    for kind in range(3):
        for index in range(count):
            target.free[kind, start + index] = source.free[kind, begin + index]
    for component in range(5):
        for index in range(count):
            target.load[component, start + index] = source.load[component, begin + index]
    for index in range(count):
        target.total[start + index] = source.total[begin + index]


@merged
def fits(storage: Ints2, estimate: int, state: Ranks, rank: int) -> bool:
    """Whether a shard fits into the free memory of a rank."""
    return bool(
        storage[estimate, 0] <= state.free[0, rank]
        and storage[estimate, 1] <= state.free[1, rank]
        and storage[estimate, 2] <= state.free[2, rank]
    )


@merged
def put(storage: Ints2, perf: Floats2, estimate: int, state: Ranks, rank: int) -> None:
    """Put a shard on a rank; add up each component of perf separately, as torchrec does."""
    for kind in range(3):
        state.free[kind, rank] -= storage[estimate, kind]
    for component in range(5):
        state.load[component, rank] += perf[estimate, component]
    state.total[rank] = total_of(state.load, rank)


@merged
def total_of(load: Floats, rank: int) -> float:
    """Return a rank's perf: the sum of its components in the order of torchrec's `Perf.total`."""
    return float(load[0, rank] + load[1, rank] + load[2, rank] + load[3, rank] + load[4, rank])


@subroutine
def _add_run(
    storage: Ints2, perf: Floats2, estimate: int, state: Ranks, first: int, end: int
) -> None:
    """Add a run's shard to each rank in [first, end); leave `state.total` to the caller."""
    for kind in range(3):
        held = storage[estimate, kind]
        for rank in range(first, end):
            state.free[kind, rank] -= held
    for component in range(5):
        spent = perf[estimate, component]
        for rank in range(first, end):
            state.load[component, rank] += spent


@subroutine
def load_uniform(problem: Inputs, work: Work) -> None:
    """Set the ranks' loads before the first step: the uniform options', shard i on rank i.

    All ranks of a stretch get equal shards, so their load is summed once per stretch, in the order
    of the row. The sum goes on from the last part of the row before the first change.
    """
    load, summed = work.uniform.load, work.uniform.summed
    stretches, columns = problem.stretch_end.size, work.uniform.columns_a_part
    for part in range(summed[0], load.shape[0] - 1):
        for component in range(5):
            for stretch in range(stretches):
                load[part + 1, component, stretch] = load[part, component, stretch]
        for column in range(part * columns, min((part + 1) * columns, work.row.size)):
            option = work.row[column]
            if problem.placement[option] == Placement.UNIFORM:
                _add_shards(problem, load, part + 1, option)
    summed[0] = load.shape[0] - 1
    ranks, rank = work.steps.ranks, 0
    for stretch in range(stretches):
        first = rank
        for component in range(5):
            for rank in range(first, problem.stretch_end[stretch]):
                ranks.load[component, rank] = load[summed[0], component, stretch]
        total = total_of(ranks.load, first)
        for rank in range(first, problem.stretch_end[stretch]):
            ranks.total[rank] = total
        rank = problem.stretch_end[stretch]


@subroutine
def _add_shards(problem: Inputs, load: Floats3, part: int, option: int) -> None:
    start = 0
    for run in range(problem.first_run[option], problem.first_run[option + 1]):
        for component in range(5):
            spent = problem.perf[problem.run_estimate[run], component]
            if spent != 0.0:
                for stretch in range(start, problem.run_end[run]):
                    load[part, component, stretch] += spent
        start = problem.run_end[run]


@merged
def place_freely(
    problem: Inputs, work: Work, column: int, shard: int, first: int, end: int, local_ranks: int
) -> int:
    """Place a shard on the least loaded rank in [first, end) that it fits; return it, else -1.

    Of equal loads, the lowest rank modulo `local_ranks` wins, then the lowest rank, as in torchrec.
    """
    state = work.state
    estimate = problem.estimate[problem.first_shard[work.row[column]] + shard]
    least = np.inf
    chosen = -1
    for local_rank in range(first, min(first + local_ranks, end)):
        rank = local_rank
        while rank < end:  # `range` with a step needs a division, slower than this whole loop
            # Strictly less, so the first of equally loaded ranks is chosen.
            if state.total[rank] < least and fits(problem.storage, estimate, state, rank):
                least = state.total[rank]
                chosen = rank
            rank += local_ranks
    if chosen >= 0:
        put(problem.storage, problem.perf, estimate, state, chosen)
        work.ranks[column, shard] = chosen
    return chosen


@merged
def place_in_order(problem: Inputs, work: Work, column: int, first: int, end: int) -> bool:
    """Place shard i of an option on rank `first` + i; if one does not fit, place none."""
    state, option = work.state, work.row[column]
    if shards_of(problem.first_shard, option) != end - first:
        return False
    start = first
    for run in range(problem.first_run[option], problem.first_run[option + 1]):
        for rank in range(start, first + problem.run_end[run]):
            if not fits(problem.storage, problem.run_estimate[run], state, rank):
                return False
        start = first + problem.run_end[run]
    start = first
    for run in range(problem.first_run[option], problem.first_run[option + 1]):
        _add_run(
            problem.storage,
            problem.perf,
            problem.run_estimate[run],
            state,
            start,
            first + problem.run_end[run],
        )
        start = first + problem.run_end[run]
    for rank in range(first, end):
        state.total[rank] = total_of(state.load, rank)
        work.ranks[column, rank - first] = rank
    return True
