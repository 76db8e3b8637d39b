"""The ranks of a plan, compiled: what is on each, what it costs, and what of it has moved.

A plan is judged by the sum over ranks of a steep power of the rank's perf, of a mild one of its
memory, and of a penalty on memory that is missing. The steep power stands for the slowest rank and
still shows which of the others would be next.
"""

from planners.embedding.best_plan.local.arrays import sum_of
from planners.embedding.best_plan.local.state import (
    MOVED,
    PENALTY,
    PRICE,
    TARGET,
    State,
    Tables,
)
from planners.embedding.search.compiling import inlined, subroutine
from planners.embedding.search.space import Ints

_MEMORY_WEIGHT = 0.1
_MOST_LOAD = 100.0  # of the target; more of it would overflow at the steepest power


@inlined
def estimates_of(tables: Tables, option: int) -> Ints:
    """Return the estimates of an option's shards."""
    return tables.estimate[tables.first_shard[option] : tables.first_shard[option + 1]]


@inlined
def ranks_of(tables: Tables, state: State, table: int) -> Ints:
    """Return the ranks of a table's shards, as a view."""
    begin, count = tables.slot[table], len(estimates_of(tables, state.chosen[table]))
    return state.ranks[begin : begin + count]


@subroutine
def _rank_cost(tables: Tables, state: State, rank: int, perf: float, hbm: int, ddr: int) -> float:
    """Rate a rank that has this much on it."""
    load = min(perf / state.figures[TARGET], _MOST_LOAD)
    load *= load
    load *= load
    cost = load * load * load
    for _ in range(state.doublings[0]):
        cost *= cost
    for kind, used in ((0, hbm), (1, ddr)):
        part = used * tables.share[rank, kind]
        squared = part * part
        squared *= squared
        cost += _MEMORY_WEIGHT * squared * squared * squared
        if used > tables.capacity[rank, kind]:
            cost += state.figures[PENALTY] * (part - 1.0) + 1.0
    return float(cost)


@subroutine
def cost_with(tables: Tables, state: State, rank: int, estimate: int) -> float:
    """Return what a rank would cost with one more shard."""
    return _rank_cost(
        tables,
        state,
        rank,
        state.perf[rank] + tables.total[estimate],
        state.memory[rank, 0] + tables.storage[estimate, 0],
        state.memory[rank, 1] + tables.storage[estimate, 1],
    )


@subroutine
def put(tables: Tables, state: State, rank: int, estimate: int, sign: int) -> None:
    """Put a shard on a rank, or with sign -1 take it off; the rank's cost is left as it was."""
    state.perf[rank] += sign * tables.total[estimate]
    state.memory[rank, 0] += sign * tables.storage[estimate, 0]
    state.memory[rank, 1] += sign * tables.storage[estimate, 1]


@subroutine
def recount(tables: Tables, state: State, rank: int) -> None:
    """Rate a rank by what is on it now."""
    state.cost[rank] = _rank_cost(
        tables, state, rank, state.perf[rank], state.memory[rank, 0], state.memory[rank, 1]
    )


@subroutine
def move_cost(tables: Tables, state: State, shard: int, rank: int) -> float:
    """Return what it costs that a shard moves to a rank; nothing where it was there."""
    if len(tables.home) == 0 or tables.home[shard] == rank:
        return 0.0
    return float(state.figures[PRICE] * tables.weight[shard])


@subroutine
def count_moves(tables: Tables, state: State, table: int, sign: int) -> None:
    """Count the bytes that a table moves, or with sign -1 count them no more."""
    if len(tables.home) == 0:
        return
    ranks, shard = ranks_of(tables, state, table), tables.first_shard[state.chosen[table]]
    for index in range(len(ranks)):
        if tables.home[shard + index] != ranks[index]:
            state.figures[MOVED] += sign * tables.weight[shard + index]


@subroutine
def all_cost(state: State) -> float:
    """Return what all ranks cost, and all bytes that are moved."""
    return float(sum_of(state.cost) + state.figures[PRICE] * state.figures[MOVED])


@subroutine
def put_all(tables: Tables, state: State, option: int, ranks: Ints, sign: int) -> None:
    """Put all shards of an option on their ranks, or take them off."""
    estimates = estimates_of(tables, option)
    state.work[0] += len(estimates)
    for index in range(len(estimates)):
        put(tables, state, ranks[index], estimates[index], sign)
    for index in range(len(estimates)):
        recount(tables, state, ranks[index])
