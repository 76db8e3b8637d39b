"""Compiled insertion of a table into a plan, with the option and on the ranks that add least cost.

The cost of a plan is a sum over its ranks of a high power of the rank's perf, a power of its memory
with a small weight, and a penalty for memory beyond the capacity. The high power of perf
approximates the maximum (the slowest rank) but also rewards less load on the second slowest rank.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planners.embedding.best_plan.parts import ALL, HOST, RANK
from planners.embedding.search.compiling import subroutine
from planners.embedding.search.space import Floats, Floats2, Ints, Ints2, Placement

_MEMORY_WEIGHT = 0.001  # memory within capacity decides only between plans of equal perf
_MOST_LOAD = 30.0  # highest load, times the target; more would overflow at the highest power


class Figure(IntEnum):
    """Indices of `State.figures`."""

    BEST = 0  # milliseconds of the best plan, infinite if there is none
    TARGET = 1  # milliseconds that the cost compares ranks with
    PENALTY = 2  # on memory beyond the capacity, in parts of the capacity
    BOUND = 3  # milliseconds; no plan rates lower
    PRICE = 4  # of a moved byte
    BUDGET = 5  # most bytes that a plan may move
    MOVED = 6  # bytes that the current plan moves


class Count(IntEnum):
    """Indices of `State.counts`."""

    WORK = 0  # ratings of a rank so far
    DOUBLINGS = 1  # the exponent of perf in the cost is 12 * 2**DOUBLINGS
    KEEPING = 2  # until a plan fits, one round in so many may give tables other options
    ROUNDS = 3  # since the penalty and the price were tuned
    FITTING = 4  # of these, rounds with a plan that fits
    WITHIN = 5  # of these, rounds with a plan within the budget


class Tables(NamedTuple):
    """The tables to place; numbers, and fields without a comment, are those of SearchSpace."""

    options: Ints  # the candidates' option numbers, table by table
    first: Ints  # the index of each table's first candidate
    size: Floats  # memory of each table's smallest option, as a part of all memory
    slot: Ints  # the index of each table's first shard in `Plan.ranks`, if it is not on all ranks
    first_shard: Ints
    estimate: Ints
    storage: Ints2
    total: Floats
    placement: Ints
    largest: Floats  # milliseconds of each option's most expensive shard
    capacity: Ints2  # bytes of HBM, DDR and SSD of each rank, shape (ranks, 3)
    share: Floats2  # 1 / capacity; a capacity of 0 counts as one byte
    host_ranks: int
    home: Ints  # the previous rank of each shard, or -1; empty without a previous plan
    weight: Ints  # bytes moved if a shard is on any rank but its home
    everywhere: Ints  # all ranks
    owner: Ints  # the table of each shard in `Plan.ranks`


class Plan(NamedTuple):
    """A plan; table t's shards are in `ranks` from Tables.slot[t] on, those of uniform options not.

    A uniform option has shard i on rank i.
    """

    options: Ints  # the option of each table, or -1
    ranks: Ints  # the rank of each shard


class State(NamedTuple):
    """The current plan of a local search, and the best plan that it has found."""

    plan: Plan  # the current one
    kept: Plan  # the options and ranks, before the round, of the tables that it removes
    best: Plan  # its options are -1 if there is none
    perf: Floats  # milliseconds of each rank
    memory: Ints2  # bytes used on each rank, shape (ranks, 3)
    cost: Floats  # the cost of each rank
    first_on: Ints  # the first shard in a list of those on a rank, -1 if none, shape (ranks,)
    following: Ints  # the next shard in the list, -1 after the last one
    taken: Ints  # how many parts of the table in hand are on each host, shape (ranks,)
    near: Ints2  # the units that a round rates, by RANK, HOST and ALL, shape (3, ranks)
    near_count: Ints  # their number, shape (3,)
    picked: Ints  # the tables that a round removes, shape (MOST_REMOVED,)
    figures: Floats  # by Figure
    counts: Ints  # by Count
    random: npt.NDArray[np.uint64]


@subroutine
def rank_cost(tables: Tables, state: State, rank: int, perf: float, hbm: int, ddr: int) -> float:
    """Return the cost of a rank with this perf and memory."""
    # 1. Perf: load ** 12, squared `DOUBLINGS` times.
    load = min(perf / state.figures[Figure.TARGET], _MOST_LOAD)
    load *= load
    load *= load
    cost = load * load * load
    for _ in range(state.counts[Count.DOUBLINGS]):
        cost *= cost
    # 2. Memory: its 12th power; if it is too large, a penalty, and 1 as on a rank at the target.
    for kind, used in ((0, hbm), (1, ddr)):
        part = used * tables.share[rank, kind]
        squared = part * part
        squared *= squared
        cost += _MEMORY_WEIGHT * squared * squared * squared
        if used > tables.capacity[rank, kind]:
            cost += state.figures[Figure.PENALTY] * (part - 1.0) + 1.0
    return float(cost)


@subroutine
def _put(tables: Tables, state: State, shard: int, rank: int, sign: int) -> None:
    """Add a shard to a rank and its moved bytes to the plan's, or remove them if `sign` is -1."""
    estimate = tables.estimate[shard]
    state.perf[rank] += sign * tables.total[estimate]
    state.memory[rank, 0] += sign * tables.storage[estimate, 0]
    state.memory[rank, 1] += sign * tables.storage[estimate, 1]
    if len(tables.home) > 0 and tables.home[shard] != rank:
        state.figures[Figure.MOVED] += sign * tables.weight[shard]
    # Invariant: `cost` is that of the rank's perf and memory, so a round only adds up ranks.
    state.counts[Count.WORK] += 1
    state.cost[rank] = rank_cost(
        tables, state, rank, state.perf[rank], state.memory[rank, 0], state.memory[rank, 1]
    )


@subroutine
def put_table(tables: Tables, state: State, table: int, sign: int) -> None:
    """Add all shards of a table to their ranks, or remove them if `sign` is -1."""
    option, slot = state.plan.options[table], tables.slot[table]
    begin, end = tables.first_shard[option], tables.first_shard[option + 1]
    uniform = tables.placement[option] == Placement.UNIFORM
    for index in range(end - begin):
        rank = index if uniform else state.plan.ranks[slot + index]
        _put(tables, state, begin + index, rank, sign)


@subroutine
def slots(tables: Tables, plan: Plan, table: int) -> tuple[int, int]:
    """Return the first index of a table's shards in `plan.ranks`, and the one after the last."""
    option, begin = plan.options[table], tables.slot[table]
    if tables.placement[option] == Placement.UNIFORM:
        return begin, begin
    return begin, begin + tables.first_shard[option + 1] - tables.first_shard[option]


@subroutine
def link(tables: Tables, state: State, table: int) -> None:
    """Enter a table's shards into the lists of their ranks, unless they are on all ranks."""
    begin, end = slots(tables, state.plan, table)
    for slot in range(begin, end):
        rank = state.plan.ranks[slot]
        state.following[slot] = state.first_on[rank]
        state.first_on[rank] = slot


@subroutine
def unlink(tables: Tables, state: State, table: int) -> None:
    """Remove a table's shards from the lists of their ranks."""
    begin, end = slots(tables, state.plan, table)
    for slot in range(begin, end):
        rank = state.plan.ranks[slot]
        if state.first_on[rank] == slot:
            state.first_on[rank] = state.following[slot]
        else:
            before = state.first_on[rank]
            while state.following[before] != slot:
                before = state.following[before]
            state.following[before] = state.following[slot]


@subroutine
def _part_size(tables: Tables, option: int) -> int:
    """Return the shards of each part of an option: 1, the ranks of a host, or all ranks."""
    placement = tables.placement[option]
    if placement == Placement.UNIFORM:
        return len(tables.capacity)
    if placement == Placement.HOST_ROWS or placement == Placement.HOSTS:
        return tables.host_ranks
    return 1


@subroutine
def _unit_of(tables: Tables, option: int) -> int:
    """Return the unit that takes a part of an option, or all parts of HOST_COLUMNS."""
    placement = tables.placement[option]
    if placement == Placement.UNIFORM:
        return ALL
    return RANK if placement == Placement.DEVICE else HOST


@subroutine
def _cheapest(
    tables: Tables, state: State, shard: int, size: int, units: Ints, most: int, limit: float
) -> tuple[float, int]:
    """Return the least cost that a part of shards from `shard` on can add, and the unit for it.

    Shard i of the part is on rank i of the unit, which has `size` ranks; a unit with more than
    `most` parts of the option is left out. The cost is `limit` if no unit adds less.
    """
    least, chosen = limit, -1
    state.counts[Count.WORK] += len(units) * size
    for unit in units:
        if state.taken[unit] > most:
            continue
        added = 0.0
        for index in range(size):
            # 1. What the shard adds to its rank's cost. No shard lowers the cost of a rank, so the
            # sum so far is a lower bound of what the unit adds.
            rank, estimate = unit * size + index, tables.estimate[shard + index]
            added -= state.cost[rank]
            added += rank_cost(
                tables,
                state,
                rank,
                state.perf[rank] + tables.total[estimate],
                state.memory[rank, 0] + tables.storage[estimate, 0],
                state.memory[rank, 1] + tables.storage[estimate, 1],
            )
            # 2. The price of its bytes, unless it stays at home.
            if len(tables.home) > 0 and tables.home[shard + index] != rank:
                added += state.figures[Figure.PRICE] * tables.weight[shard + index]
            if added >= least:
                break
        # 3. Of equally cheap units, the first one.
        if added < least:
            least, chosen = added, unit
    return least, chosen


@subroutine
def _place_parts(tables: Tables, state: State, table: int, units: Ints) -> float:
    """Put each part of a table on the unit where it adds least cost; return the added cost."""
    option, slot = state.plan.options[table], tables.slot[table]
    begin, size = tables.first_shard[option], _part_size(tables, option)
    parts = (tables.first_shard[option + 1] - begin) // size
    placement, hosts = tables.placement[option], len(tables.capacity) // tables.host_ranks
    total = 0.0
    for part in range(parts):
        # 1. The cheapest unit. No host gets a second part before every host has one, so the hosts
        # that the round rates may all be taken; then every host is rated.
        shard, most = begin + part * size, 0
        if placement == Placement.HOSTS:
            most = part // hosts
        added, unit = _cheapest(tables, state, shard, size, units, most, np.inf)
        if unit < 0:
            every = tables.everywhere[:hosts]
            added, unit = _cheapest(tables, state, shard, size, every, most, np.inf)
        # 2. Put its shards there, before the next part is rated.
        total += added
        for index in range(size):
            _put(tables, state, shard + index, unit * size + index, 1)
            if placement != Placement.UNIFORM:
                state.plan.ranks[slot + part * size + index] = unit * size + index
        if placement == Placement.HOSTS:
            state.taken[unit] += 1
    # Invariant: between tables, no host is taken.
    if placement == Placement.HOSTS:
        state.taken[:hosts] = 0
    return total


@subroutine
def place(tables: Tables, state: State, table: int, option: int) -> float:
    """Place a table with this option where it adds least cost; return the added cost."""
    state.plan.options[table] = option
    unit = _unit_of(tables, option)
    units = state.near[unit, : state.near_count[unit]]
    if tables.placement[option] != Placement.HOST_COLUMNS:
        return _place_parts(tables, state, table, units)
    # The shards are on any ranks of one host: try each host, and keep the cheapest.
    least, best = np.inf, 0
    for host in units:
        ranks = tables.everywhere[host * tables.host_ranks : (host + 1) * tables.host_ranks]
        added = _place_parts(tables, state, table, ranks)
        put_table(tables, state, table, -1)
        if added < least:
            least, best = added, host
    ranks = tables.everywhere[best * tables.host_ranks : (best + 1) * tables.host_ranks]
    return _place_parts(tables, state, table, ranks)


@subroutine
def insert(tables: Tables, state: State, table: int, limit: float) -> None:
    """Place a table with the option and on the rated ranks that add the least cost.

    Skip options with a shard of `limit` milliseconds or more, because they cannot improve a plan of
    that rating. If this skips all options, take the one with the cheapest largest shard.
    """
    least, best = np.inf, -1
    smallest, fallback = np.inf, -1
    hosts = len(tables.capacity) // tables.host_ranks
    for index in range(tables.first[table], tables.first[table + 1]):
        # 1. Skip options with too expensive a shard.
        option = tables.options[index]
        if tables.largest[option] < smallest:
            smallest, fallback = tables.largest[option], option
        if tables.largest[option] >= limit:
            continue
        # 2. Rate an option of one part without placing it.
        size, unit = _part_size(tables, option), _unit_of(tables, option)
        begin, end = tables.first_shard[option], tables.first_shard[option + 1]
        if end - begin == size and tables.placement[option] != Placement.HOST_COLUMNS:
            units = state.near[unit, : state.near_count[unit]]
            added, _ = _cheapest(tables, state, begin, size, units, 0, least)
        elif min((end - begin) // size, hosts) > state.near_count[HOST] and size > 1:
            continue  # rating all hosts would take too long
        # 3. Place one of several parts, since each changes where the next ones are cheapest.
        else:
            added = place(tables, state, table, option)
            put_table(tables, state, table, -1)
        # 4. Of equally cheap options, the first one.
        if added < least:
            least, best = added, option
    place(tables, state, table, best if best >= 0 else fallback)
