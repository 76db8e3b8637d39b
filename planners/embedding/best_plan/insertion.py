"""Compiled insertion of a table into a plan, with the option and on the ranks that add least cost.

The cost of a plan is a sum over its ranks of a high power of the rank's perf, a power of its memory
with a small weight, and a penalty for memory beyond the capacity. The high power of perf
approximates the maximum (the slowest rank) but also rewards less load on the second slowest rank.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planners.embedding.search.compiling import inlined, subroutine
from planners.embedding.search.space import Floats, Floats2, Ints, Ints2, Placement

NOWHERE = 1e300
"""A number above the rating and the cost of any plan."""

BEST, TARGET, PENALTY, BOUND, PRICE, BUDGET, MOVED = 0, 1, 2, 3, 4, 5, 6
"""Indices of `State.figures`."""

WORK, DOUBLINGS, RANKS, HOSTS, KEEPING = 0, 1, 2, 3, 4
"""Indices of `State.counts`."""

_MEMORY_WEIGHT = 0.001  # memory within capacity decides only between plans of equal perf
_MOST_LOAD = 30.0  # highest load, times the target; more would overflow at the highest power


class Tables(NamedTuple):
    """The tables to place; numbers, and fields without a comment, are those of SearchSpace."""

    options: Ints  # the candidates' option numbers, table by table
    first: Ints  # the index of each table's first candidate
    size: Floats  # memory of each table's smallest option, as a part of all memory
    slot: Ints  # the index of each table's first shard in `State.ranks`, if it is not on all ranks
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
    everywhere: Ints  # all ranks: those of the shards of each uniform option
    owner: Ints  # the table of each shard in `State.ranks`


class State(NamedTuple):
    """The current plan of a local search, and the best plan that it has found."""

    chosen: Ints  # the option of each table
    ranks: Ints  # the rank of each shard that is not of a uniform option; table t's from slot[t]
    perf: Floats  # milliseconds of each rank
    memory: Ints2  # bytes used on each rank, shape (ranks, 3)
    cost: Floats  # the cost of each rank
    first_on: Ints  # the first shard in a list of those on a rank, -1 if none, shape (ranks,)
    following: Ints  # the next shard in the list, -1 after the last one
    taken: Ints  # how many parts of the table in hand are on each host, shape (ranks,)
    near_ranks: Ints  # the ranks and the hosts that a round rates; `counts` has their numbers
    near_hosts: Ints
    picked: Ints  # the tables that a round removes, shape (MOST_REMOVED,)
    kept_options: Ints  # their options and ranks before the round
    kept_ranks: Ints2
    best_chosen: Ints  # of the best plan; -1 if there is none
    best_ranks: Ints
    figures: Floats  # best rating, target, penalty, bound; price of a byte, budget, bytes moved
    counts: Ints  # ratings of a rank so far; perf's exponent is 12 * 2**doublings; near_*; keeping
    random: npt.NDArray[np.uint64]


@inlined
def ranks_of(tables: Tables, state: State, table: int) -> Ints:
    """Return the ranks of a table's shards, as a view."""
    option = state.chosen[table]
    ranks, begin = state.ranks, tables.slot[table]
    if tables.placement[option] == Placement.UNIFORM:
        ranks, begin = tables.everywhere, 0
    return ranks[begin : begin + tables.first_shard[option + 1] - tables.first_shard[option]]


@subroutine
def rank_cost(tables: Tables, state: State, rank: int, perf: float, hbm: int, ddr: int) -> float:
    """Return the cost of a rank with this perf and memory."""
    load = min(perf / state.figures[TARGET], _MOST_LOAD)
    load *= load
    load *= load
    cost = load * load * load  # load ** 12, squared `doublings` times below
    for _ in range(state.counts[DOUBLINGS]):
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
def _put(tables: Tables, state: State, shard: int, rank: int, sign: int) -> None:
    """Add a shard to a rank and its moved bytes to the plan's, or remove them if `sign` is -1."""
    estimate = tables.estimate[shard]
    state.perf[rank] += sign * tables.total[estimate]
    state.memory[rank, 0] += sign * tables.storage[estimate, 0]
    state.memory[rank, 1] += sign * tables.storage[estimate, 1]
    if len(tables.home) > 0 and tables.home[shard] != rank:
        state.figures[MOVED] += sign * tables.weight[shard]
    state.counts[WORK] += 1
    state.cost[rank] = rank_cost(
        tables, state, rank, state.perf[rank], state.memory[rank, 0], state.memory[rank, 1]
    )


@subroutine
def put_table(tables: Tables, state: State, table: int, sign: int) -> None:
    """Add all shards of a table to their ranks, or remove them if `sign` is -1."""
    shard, ranks = tables.first_shard[state.chosen[table]], ranks_of(tables, state, table)
    for index in range(len(ranks)):
        _put(tables, state, shard + index, ranks[index], sign)


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
def _cheapest(
    tables: Tables, state: State, shard: int, size: int, units: Ints, most: int, limit: float
) -> tuple[float, int]:
    """Return the least cost that a part of shards from `shard` on can add, and the unit for it.

    Shard i of the part is on rank i of the unit, which has `size` ranks; a unit with more than
    `most` parts of the option is left out. The cost is `limit` if no unit adds less.
    """
    least, chosen = limit, -1
    state.counts[WORK] += len(units) * size
    for unit in units:
        if state.taken[unit] > most:
            continue
        added = 0.0
        for index in range(size):
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
            if len(tables.home) > 0 and tables.home[shard + index] != rank:
                added += state.figures[PRICE] * tables.weight[shard + index]
            if added >= least:
                break
        if added < least:
            least, chosen = added, unit
    return least, chosen


@inlined
def _units(tables: Tables, state: State, option: int) -> Ints:
    """Return the ranks, the hosts or the only unit on which a round rates an option's parts."""
    placement = tables.placement[option]
    if placement == Placement.UNIFORM:
        units = tables.everywhere[:1]
    elif placement == Placement.DEVICE:
        units = state.near_ranks[: state.counts[RANKS]]
    else:
        units = state.near_hosts[: state.counts[HOSTS]]
    return units


@subroutine
def _place_parts(tables: Tables, state: State, table: int, units: Ints) -> float:
    """Put each part of a table on the unit where it adds least cost; return the added cost."""
    option, slot = state.chosen[table], tables.slot[table]
    begin, size = tables.first_shard[option], _part_size(tables, option)
    parts = (tables.first_shard[option + 1] - begin) // size
    placement, hosts = tables.placement[option], len(state.near_hosts)
    total = 0.0
    for part in range(parts):
        shard, most = begin + part * size, 0
        if placement == Placement.HOSTS:  # no host gets a second part before every host has one
            most = part // hosts
        added, unit = _cheapest(tables, state, shard, size, units, most, NOWHERE)
        if unit < 0:  # the rated hosts are taken
            every = tables.everywhere[:hosts]
            added, unit = _cheapest(tables, state, shard, size, every, most, NOWHERE)
        total += added
        for index in range(size):
            _put(tables, state, shard + index, unit * size + index, 1)
            if placement != Placement.UNIFORM:
                state.ranks[slot + part * size + index] = unit * size + index
        if placement == Placement.HOSTS:
            state.taken[unit] += 1
    if placement == Placement.HOSTS:
        state.taken[:hosts] = 0
    return total


@subroutine
def place(tables: Tables, state: State, table: int, option: int) -> float:
    """Place a table with this option where it adds least cost; return the added cost."""
    state.chosen[table] = option
    units = _units(tables, state, option)
    if tables.placement[option] != Placement.HOST_COLUMNS:
        return _place_parts(tables, state, table, units)
    least, best = NOWHERE, 0
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
    least, best = NOWHERE, -1
    smallest, fallback = NOWHERE, -1
    hosts = len(state.near_hosts)
    for index in range(tables.first[table], tables.first[table + 1]):
        option = tables.options[index]
        if tables.largest[option] < smallest:
            smallest, fallback = tables.largest[option], option
        if tables.largest[option] >= limit:
            continue
        placement, size = tables.placement[option], _part_size(tables, option)
        begin, end = tables.first_shard[option], tables.first_shard[option + 1]
        if end - begin == size and placement != Placement.HOST_COLUMNS:  # one part
            units = _units(tables, state, option)
            added, _ = _cheapest(tables, state, begin, size, units, 0, least)
        elif min((end - begin) // size, hosts) > state.counts[HOSTS] and size > 1:
            continue  # rating all hosts would take too long
        else:
            added = place(tables, state, table, option)
            put_table(tables, state, table, -1)
        if added < least:
            least, best = added, option
    place(tables, state, table, best if best >= 0 else fallback)
