"""Compiled functions for the load and the cost of ranks, and for the bytes that a plan moves.

The cost of a plan is a sum over its ranks of a high power of the rank's perf, a power of its
memory with a small weight, and a penalty for memory beyond the capacity. The high power of perf
approximates the maximum (the slowest rank) but also rewards less load on the second slowest rank.
"""

from typing import Any

import numpy.typing as npt

from planners.embedding.best_plan.local.state import (
    MOVED,
    PENALTY,
    PRICE,
    TARGET,
    State,
    Tables,
)
from planners.embedding.search.compiling import inlined, subroutine
from planners.embedding.search.space import Floats, Ints, Ints2, Placement

_MEMORY_WEIGHT = 0.1  # memory within capacity decides only between plans of about equal perf
_MOST_LOAD = 100.0  # highest load, times the target; more would overflow at the highest power


@subroutine
def sum_of(values: Floats) -> float:
    """Return the sum of the values, added from first to last."""
    total = 0.0
    for value in values:
        total += value
    return total


@subroutine
def copy(target: npt.NDArray[Any], source: npt.NDArray[Any]) -> None:
    """Copy the first values of `source` to `target`, up to the length of the shorter array."""
    for index in range(min(len(target), len(source))):
        target[index] = source[index]


@subroutine
def copy_rows(target: Ints2, source: Ints2) -> None:
    """Copy each row of `source` to `target`, up to the length of the shorter rows."""
    for row in range(len(source)):
        copy(target[row], source[row])


@subroutine
def where_largest(values: Floats) -> int:
    """Return the index of the largest value, the first if several are equal."""
    largest = 0
    for index in range(len(values)):
        if values[index] > values[largest]:
            largest = index
    return largest


@inlined
def estimates_of(tables: Tables, option: int) -> Ints:
    """Return the estimate numbers of an option's shards, as a view."""
    return tables.estimate[tables.first_shard[option] : tables.first_shard[option + 1]]


@inlined
def ranks_of(tables: Tables, state: State, table: int) -> Ints:
    """Return the ranks of a table's shards, as a view."""
    option = state.chosen[table]
    ranks, begin = state.ranks, tables.slot[table]
    if tables.placement[option] == Placement.UNIFORM:
        ranks, begin = tables.everywhere, 0
    return ranks[begin : begin + len(estimates_of(tables, option))]


@subroutine
def rank_cost(tables: Tables, state: State, rank: int, perf: float, hbm: int, ddr: int) -> float:
    """Return the cost of a rank with this perf and memory."""
    load = min(perf / state.figures[TARGET], _MOST_LOAD)
    load *= load
    load *= load
    cost = load * load * load  # load ** 12, squared `doublings` times below
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
    """Return the cost of a rank with one more shard."""
    return rank_cost(
        tables,
        state,
        rank,
        state.perf[rank] + tables.total[estimate],
        state.memory[rank, 0] + tables.storage[estimate, 0],
        state.memory[rank, 1] + tables.storage[estimate, 1],
    )


@subroutine
def put(tables: Tables, state: State, rank: int, estimate: int, sign: int) -> None:
    """Add a shard to a rank, or remove it if `sign` is -1.

    The caller must then update the cost with `recount`.
    """
    state.perf[rank] += sign * tables.total[estimate]
    state.memory[rank, 0] += sign * tables.storage[estimate, 0]
    state.memory[rank, 1] += sign * tables.storage[estimate, 1]


@subroutine
def fits_on(tables: Tables, state: State, rank: int) -> bool:
    """Whether the shards on a rank fit in its memory."""
    used, capacity = state.memory[rank], tables.capacity[rank]
    return bool(used[0] <= capacity[0] and used[1] <= capacity[1])


@subroutine
def recount(tables: Tables, state: State, rank: int) -> None:
    """Update the cost of a rank from its perf and memory."""
    state.cost[rank] = rank_cost(
        tables, state, rank, state.perf[rank], state.memory[rank, 0], state.memory[rank, 1]
    )


@subroutine
def move_cost(tables: Tables, state: State, shard: int, rank: int) -> float:
    """Return the price of moving a shard to this rank; 0 if this is its previous rank."""
    if len(tables.home) == 0 or tables.home[shard] == rank:
        return 0.0
    return float(state.figures[PRICE] * tables.weight[shard])


@subroutine
def count_moves(tables: Tables, state: State, table: int, sign: int) -> None:
    """Add the bytes that a table moves to the state's total, or subtract them if `sign` is -1."""
    if len(tables.home) == 0:
        return
    ranks, shard = ranks_of(tables, state, table), tables.first_shard[state.chosen[table]]
    for index in range(len(ranks)):
        if tables.home[shard + index] != ranks[index]:
            state.figures[MOVED] += sign * tables.weight[shard + index]


@subroutine
def all_cost(state: State) -> float:
    """Return the cost of a plan: the sum of its ranks' costs and the price of its moved bytes."""
    return float(sum_of(state.cost) + state.figures[PRICE] * state.figures[MOVED])


@subroutine
def put_all(tables: Tables, state: State, option: int, ranks: Ints, sign: int) -> None:
    """Add all shards of an option to these ranks, or remove them if `sign` is -1; update costs."""
    estimates = estimates_of(tables, option)
    state.work[0] += len(estimates)
    for index in range(len(estimates)):
        put(tables, state, ranks[index], estimates[index], sign)
    for index in range(len(estimates)):
        recount(tables, state, ranks[index])
