"""Compiled functions that place a table where it adds the least cost, or remove it again."""

from planners.embedding.best_plan.local.ranks import (
    cost_with,
    count_moves,
    estimates_of,
    move_cost,
    put,
    put_all,
    ranks_of,
    recount,
    sum_of,
)
from planners.embedding.best_plan.local.state import NOWHERE, State, Tables
from planners.embedding.search.compiling import subroutine
from planners.embedding.search.space import Ints, Placement


@subroutine
def _spread(tables: Tables, state: State, option: int, start: int, end: int, ranks: Ints) -> float:
    """Put shards on the ranks in [start, end) where each adds least cost; return the added cost.

    `ranks` is set to the chosen ranks.
    """
    added = 0.0
    estimates, shard = estimates_of(tables, option), tables.first_shard[option]
    state.work[0] += len(estimates) * (end - start)
    for index in range(len(estimates)):
        least, chosen = NOWHERE, start
        for rank in range(start, end):
            more = cost_with(tables, state, rank, estimates[index]) - state.cost[rank]
            more += move_cost(tables, state, shard + index, rank)
            if more < least:
                least, chosen = more, rank
        added += least
        ranks[index] = chosen
        put(tables, state, chosen, estimates[index], 1)
        state.cost[chosen] += least - move_cost(tables, state, shard + index, chosen)
    return added


@subroutine
def _least_host(tables: Tables, state: State, shard: int, blocks: int) -> tuple[float, int]:
    """Return the host where a block of shards adds the least cost, preceded by that cost.

    A block has one shard per device of a host, from `shard` on. `blocks` of the option are already
    placed: torchrec gives no host a second block before every host has one, and so on.
    """
    hosts = len(state.taken)
    least, chosen = NOWHERE, 0
    for host in range(hosts):
        if state.taken[host] > blocks // hosts:
            continue
        added = 0.0
        state.work[0] += tables.host_ranks
        for device in range(tables.host_ranks):
            rank = host * tables.host_ranks + device
            added += cost_with(tables, state, rank, tables.estimate[shard + device])
            added -= state.cost[rank]
            added += move_cost(tables, state, shard + device, rank)
        if added < least:
            least, chosen = added, host
    return least, chosen


@subroutine
def _put_in_order(tables: Tables, state: State, estimates: Ints, start: int, ranks: Ints) -> None:
    """Put shards on consecutive ranks from `start` on, and write these to `ranks`."""
    for index in range(len(estimates)):
        put(tables, state, start + index, estimates[index], 1)
        recount(tables, state, start + index)
        ranks[index] = start + index


@subroutine
def _place_by_rows(tables: Tables, state: State, option: int, ranks: Ints) -> float:
    """Put each block on its cheapest host, one shard per device; return the cost added."""
    estimates = estimates_of(tables, option)
    added = 0.0
    state.taken[:] = 0
    for block in range(len(estimates) // tables.host_ranks):
        begin = block * tables.host_ranks
        shards = estimates[begin : begin + tables.host_ranks]
        more, host = _least_host(tables, state, tables.first_shard[option] + begin, block)
        added += more
        state.taken[host] += 1
        _put_in_order(tables, state, shards, host * tables.host_ranks, ranks[begin:])
    return added


@subroutine
def _place_on_one_host(tables: Tables, state: State, option: int, ranks: Ints) -> float:
    """Put all shards on devices of the single host where they add least cost; return that cost."""
    least, chosen = NOWHERE, 0
    for host in range(len(state.taken)):
        start = host * tables.host_ranks
        added = _spread(tables, state, option, start, start + tables.host_ranks, ranks)
        put_all(tables, state, option, ranks, -1)
        if added < least:
            least, chosen = added, host
    start = chosen * tables.host_ranks
    return _spread(tables, state, option, start, start + tables.host_ranks, ranks)


@subroutine
def place(tables: Tables, state: State, option: int, ranks: Ints) -> float:
    """Place an option where it adds least cost, write its ranks, and return the added cost."""
    placement = tables.placement[option]
    if placement == Placement.DEVICE:
        return _spread(tables, state, option, 0, len(tables.capacity), ranks)
    if placement == Placement.HOST_COLUMNS:
        return _place_on_one_host(tables, state, option, ranks)
    if placement != Placement.UNIFORM:
        return _place_by_rows(tables, state, option, ranks)
    before = sum_of(state.cost)
    state.work[0] += len(tables.capacity)
    _put_in_order(tables, state, estimates_of(tables, option), 0, ranks)
    return sum_of(state.cost) - before


@subroutine
def _would_add(tables: Tables, state: State, option: int, least: float) -> float:
    """Return the cost that an option would add; may return early with a value of at least `least`.

    This leaves the plan unchanged, up to rounding.
    """
    placement, shard = tables.placement[option], tables.first_shard[option]
    if placement == Placement.UNIFORM:
        added = 0.0
        for rank in range(len(tables.capacity)):
            state.work[0] += 1
            added += cost_with(tables, state, rank, tables.estimate[shard + rank])
            added -= state.cost[rank]
            added += move_cost(tables, state, shard + rank, rank)
            if added >= least:
                break
        return added
    if placement == Placement.HOST_ROWS:
        state.taken[:] = 0
        return _least_host(tables, state, shard, 0)[0]
    added = place(tables, state, option, state.scratch)
    put_all(tables, state, option, state.scratch, -1)
    return added


@subroutine
def insert(tables: Tables, state: State, table: int, limit: float) -> None:
    """Place a table with the option and on the ranks that add the least cost.

    Skip options with a shard of `limit` milliseconds or more, because they cannot improve a plan of
    that rating. If this skips all options, take the one with the cheapest largest shard.
    """
    least, chosen = NOWHERE, -1
    smallest, fallback = NOWHERE, -1
    for index in range(tables.first[table], tables.first[table + 1]):
        option = tables.options[index]
        if tables.largest[option] < smallest:
            smallest, fallback = tables.largest[option], option
        if tables.largest[option] >= limit:
            continue
        added = _would_add(tables, state, option, least)
        if added < least:
            least, chosen = added, option
    if chosen < 0:
        chosen = fallback
    state.chosen[table] = chosen
    place(tables, state, chosen, ranks_of(tables, state, table))
    count_moves(tables, state, table, 1)


@subroutine
def remove(tables: Tables, state: State, table: int) -> None:
    """Remove a table's shards from their ranks."""
    count_moves(tables, state, table, -1)
    put_all(tables, state, state.chosen[table], ranks_of(tables, state, table), -1)
