"""Local search over plans, compiled: tables are taken out and put back where they cost least.

A plan is judged by the sum over ranks of a steep power of the rank's perf, of a mild one of its
memory, and of a penalty on memory that is missing. The steep power stands for the slowest rank and
still shows which of the others would be next. The penalty is raised while plans do not fit and
lowered while they do, so that the search goes back and forth over the edge of what fits. So is the
price of a byte that is moved, where there is a plan to stay near.

All of this stays in one module: numba compiles a kept function anew only where its own file has
changed.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from planners.embedding.search.best_plan.local_state import (
    BEST,
    BOUND,
    BUDGET,
    MOST_REMOVED,
    MOVED,
    NOWHERE,
    PENALTY,
    PRICE,
    TARGET,
    State,
    Tables,
    target_of,
)
from planners.embedding.search.space import Floats, Ints, Placement

F = TypeVar("F", bound=Callable[..., Any])

_MEMORY_WEIGHT = 0.1
_MOST_LOAD = 100.0  # of the target; more of it would overflow at the steepest power

# The penalty on missing memory: tuned while searching, every so many rounds, by this factor.
_TUNING_ROUNDS = 512
_TUNING = 1.5
_LEAST_PENALTY, _MOST_PENALTY = 30.0, 1e6
_FITTING_SHARE = 0.2
_LEAST_PRICE, _MOST_PRICE = 1e-16, 1e6  # of a byte that is moved

_ROUND = 500  # what a round takes beside rating ranks, in ratings of a rank


def _inlined(function: F) -> F:
    # A function that is called may not return a part of an array.
    return cast(F, numba.njit(inline="always", _nrt=False)(function))


def _compiled(function: F) -> F:
    return cast(F, numba.njit(cache=True, _nrt=False)(function))


_target_of = _compiled(target_of)


@_compiled
def _sum(values: Floats) -> float:
    total = 0.0
    for value in values:
        total += value
    return total


@_compiled
def _copy(target: npt.NDArray[Any], source: npt.NDArray[Any]) -> None:
    """Copy as much as both have room for."""
    for index in range(min(len(target), len(source))):
        target[index] = source[index]


@_compiled
def _copy_rows(target: Ints, source: Ints) -> None:
    for row in range(len(source)):
        _copy(target[row], source[row])


@_compiled
def _where_largest(values: Floats) -> int:
    largest = 0
    for index in range(len(values)):
        if values[index] > values[largest]:
            largest = index
    return largest


@_inlined
def _estimates_of(tables: Tables, option: int) -> Ints:
    """Return the estimates of an option's shards."""
    return tables.estimate[tables.first_shard[option] : tables.first_shard[option + 1]]


@_inlined
def _ranks_of(tables: Tables, state: State, table: int) -> Ints:
    """Return the ranks of a table's shards, as a view."""
    begin, count = tables.slot[table], len(_estimates_of(tables, state.chosen[table]))
    return state.ranks[begin : begin + count]


@_compiled
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


@_compiled
def _with(tables: Tables, state: State, rank: int, estimate: int) -> float:
    """Return what a rank would cost with one more shard."""
    return _rank_cost(
        tables,
        state,
        rank,
        state.perf[rank] + tables.total[estimate],
        state.memory[rank, 0] + tables.storage[estimate, 0],
        state.memory[rank, 1] + tables.storage[estimate, 1],
    )


@_compiled
def _put(tables: Tables, state: State, rank: int, estimate: int, sign: int) -> None:
    """Put a shard on a rank, or with sign -1 take it off; the rank's cost is left as it was."""
    state.perf[rank] += sign * tables.total[estimate]
    state.memory[rank, 0] += sign * tables.storage[estimate, 0]
    state.memory[rank, 1] += sign * tables.storage[estimate, 1]


@_compiled
def _recount(tables: Tables, state: State, rank: int) -> None:
    state.cost[rank] = _rank_cost(
        tables, state, rank, state.perf[rank], state.memory[rank, 0], state.memory[rank, 1]
    )


@_compiled
def _move_cost(tables: Tables, state: State, shard: int, rank: int) -> float:
    """Return what it costs that a shard moves to a rank; nothing where it was there."""
    if len(tables.home) == 0 or tables.home[shard] == rank:
        return 0.0
    return float(state.figures[PRICE] * tables.weight[shard])


@_compiled
def _count_moves(tables: Tables, state: State, table: int, sign: int) -> None:
    """Count the bytes that a table moves, or with sign -1 count them no more."""
    if len(tables.home) == 0:
        return
    ranks, shard = _ranks_of(tables, state, table), tables.first_shard[state.chosen[table]]
    for index in range(len(ranks)):
        if tables.home[shard + index] != ranks[index]:
            state.figures[MOVED] += sign * tables.weight[shard + index]


@_compiled
def _all_cost(state: State) -> float:
    return float(_sum(state.cost) + state.figures[PRICE] * state.figures[MOVED])


@_compiled
def _put_all(tables: Tables, state: State, option: int, ranks: Ints, sign: int) -> None:
    """Put all shards of an option on their ranks, or take them off."""
    estimates = _estimates_of(tables, option)
    state.work[0] += len(estimates)
    for index in range(len(estimates)):
        _put(tables, state, ranks[index], estimates[index], sign)
    for index in range(len(estimates)):
        _recount(tables, state, ranks[index])


@_compiled
def _spread(tables: Tables, state: State, option: int, start: int, end: int, ranks: Ints) -> float:
    """Put each shard of an option on the rank from start to end where it adds least."""
    added = 0.0
    estimates, shard = _estimates_of(tables, option), tables.first_shard[option]
    state.work[0] += len(estimates) * (end - start)
    for index in range(len(estimates)):
        least, chosen = NOWHERE, start
        for rank in range(start, end):
            more = _with(tables, state, rank, estimates[index]) - state.cost[rank]
            more += _move_cost(tables, state, shard + index, rank)
            if more < least:
                least, chosen = more, rank
        added += least
        ranks[index] = chosen
        _put(tables, state, chosen, estimates[index], 1)
        state.cost[chosen] += least - _move_cost(tables, state, shard + index, chosen)
    return added


@_compiled
def _least_host(tables: Tables, state: State, shard: int, blocks: int) -> tuple[float, int]:
    """Return what a block from a shard on, one per device, adds on the host where it adds least.

    The option has `blocks` on hosts already; none gets another one before all have as many.
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
            added += _with(tables, state, rank, tables.estimate[shard + device])
            added -= state.cost[rank]
            added += _move_cost(tables, state, shard + device, rank)
        if added < least:
            least, chosen = added, host
    return least, chosen


@_compiled
def _put_in_order(tables: Tables, state: State, estimates: Ints, start: int, ranks: Ints) -> None:
    """Put shard after shard on rank after rank from `start` on."""
    for index in range(len(estimates)):
        _put(tables, state, start + index, estimates[index], 1)
        _recount(tables, state, start + index)
        ranks[index] = start + index


@_compiled
def _place_by_rows(tables: Tables, state: State, option: int, ranks: Ints) -> float:
    """Put the shards of an option on hosts, block after block, one shard per device."""
    estimates = _estimates_of(tables, option)
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


@_compiled
def _place_on_one_host(tables: Tables, state: State, option: int, ranks: Ints) -> float:
    """Put the shards of an option on any devices of the host where they add least."""
    least, chosen = NOWHERE, 0
    for host in range(len(state.taken)):
        start = host * tables.host_ranks
        added = _spread(tables, state, option, start, start + tables.host_ranks, ranks)
        _put_all(tables, state, option, ranks, -1)
        if added < least:
            least, chosen = added, host
    start = chosen * tables.host_ranks
    return _spread(tables, state, option, start, start + tables.host_ranks, ranks)


@_compiled
def _place(tables: Tables, state: State, option: int, ranks: Ints) -> float:
    """Put an option where it adds least, write its ranks, and return what it adds."""
    placement = tables.placement[option]
    if placement == Placement.DEVICE:
        return _spread(tables, state, option, 0, len(tables.capacity), ranks)
    if placement == Placement.HOST_COLUMNS:
        return _place_on_one_host(tables, state, option, ranks)
    if placement != Placement.UNIFORM:
        return _place_by_rows(tables, state, option, ranks)
    before = _sum(state.cost)
    state.work[0] += len(tables.capacity)
    _put_in_order(tables, state, _estimates_of(tables, option), 0, ranks)
    return _sum(state.cost) - before


@_compiled
def _would_add(tables: Tables, state: State, option: int, least: float) -> float:
    """Return what an option would add where it adds least; `least` or more ends the counting."""
    placement, shard = tables.placement[option], tables.first_shard[option]
    if placement == Placement.UNIFORM:
        added = 0.0
        for rank in range(len(tables.capacity)):
            state.work[0] += 1
            added += _with(tables, state, rank, tables.estimate[shard + rank])
            added -= state.cost[rank]
            added += _move_cost(tables, state, shard + rank, rank)
            if added >= least:
                break
        return added
    if placement == Placement.HOST_ROWS:
        state.taken[:] = 0
        return _least_host(tables, state, shard, 0)[0]
    added = _place(tables, state, option, state.scratch)
    _put_all(tables, state, option, state.scratch, -1)
    return added


@_compiled
def _insert(tables: Tables, state: State, table: int, limit: float) -> None:
    """Put a table back with the option and on the ranks that add least.

    Options with a shard of `limit` milliseconds or more are left out: they cannot better a plan
    that rates so. Where all of a table's have one, the one with the smallest is taken.
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
    _place(tables, state, chosen, _ranks_of(tables, state, table))
    _count_moves(tables, state, table, 1)


@_compiled
def _remove(tables: Tables, state: State, table: int) -> None:
    _count_moves(tables, state, table, -1)
    _put_all(tables, state, state.chosen[table], _ranks_of(tables, state, table), -1)


@_compiled
def _random(state: State, below: int) -> int:
    """Return a whole number from 0 to below - 1 (xorshift, Marsaglia 2003)."""
    x = state.random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state.random[0] = x
    return int((x >> np.uint64(11)) % np.uint64(below))


@_compiled
def _fits(tables: Tables, state: State) -> bool:
    for rank in range(len(tables.capacity)):
        for kind in range(2):
            if state.memory[rank, kind] > tables.capacity[rank, kind]:
                return False
    return True


@_compiled
def _refresh(tables: Tables, state: State) -> None:
    """Sum all ranks anew, which drops what rounding has left, and rate them."""
    state.perf[:] = 0.0
    state.memory[:] = 0
    state.figures[MOVED] = 0.0
    for table in range(len(state.chosen)):
        estimates, ranks = (
            _estimates_of(tables, state.chosen[table]),
            _ranks_of(tables, state, table),
        )
        _count_moves(tables, state, table, 1)
        for index in range(len(estimates)):
            _put(tables, state, ranks[index], estimates[index], 1)
    for rank in range(len(state.perf)):
        _recount(tables, state, rank)


@_compiled
def _note_if_best(tables: Tables, state: State) -> bool:
    """Keep a plan that fits, moves little enough and is the best; returns whether it fits."""
    if not _fits(tables, state):
        return False
    if state.figures[MOVED] > state.figures[BUDGET]:
        return True
    rating = state.perf[_where_largest(state.perf)]
    if rating < state.figures[BEST] * (1 - 1e-12):
        state.figures[BEST] = rating
        state.figures[TARGET] = _target_of(rating, state.figures[BOUND])
        _copy(state.best_chosen, state.chosen)
        _copy(state.best_ranks, state.ranks)
        for table in range(len(state.chosen)):
            if tables.largest[state.chosen[table]] >= rating:
                _remove(tables, state, table)
                _insert(tables, state, table, rating)
        _refresh(tables, state)
    return True


@_compiled
def construct(tables: Tables, state: State, order: Ints, options: Ints) -> None:
    """Place the given option of each table, in this order, each where it adds least."""
    for table in order:
        state.chosen[table] = options[table]
        _place(tables, state, options[table], _ranks_of(tables, state, table))
        _count_moves(tables, state, table, 1)
    _note_if_best(tables, state)


@_compiled
def complete(tables: Tables, state: State, order: Ints) -> None:
    """Place the tables that are not placed yet, in this order, each where it adds least."""
    _refresh(tables, state)
    for table in order:
        _insert(tables, state, table, state.figures[BEST])
    _note_if_best(tables, state)


@_compiled
def _is_on(tables: Tables, state: State, table: int, rank: int) -> bool:
    ranks = _ranks_of(tables, state, table)
    index = 0
    while index < len(ranks) and ranks[index] != rank:
        index += 1
    return bool(index < len(ranks))


@_compiled
def _pick(tables: Tables, state: State) -> int:
    """Pick tables to take out: some from the costliest rank, some from another, some from any."""
    count = len(state.chosen)
    ranks = len(state.perf)
    wanted = min(2 + _random(state, MOST_REMOVED - 1), count)
    costliest = _where_largest(state.cost)
    if _random(state, 4) == 0:
        costliest = _random(state, ranks)
    other = _random(state, ranks)
    done = 0
    tries = 0
    while done < wanted:
        table = _random(state, count)
        tries += 1
        known = False
        for index in range(done):
            known = known or state.picked[index] == table
        if known:
            continue
        if done <= 4 and tries < 2 * count:
            rank = costliest if done % 2 == 0 else other
            if done > 0 and tables.placement[state.chosen[table]] == Placement.UNIFORM:
                continue
            if not _is_on(tables, state, table, rank):
                continue
        state.picked[done] = table
        done += 1
    return wanted


@_compiled
def improve(
    tables: Tables, state: State, work: int, begin: float, end: float, temperature: float
) -> int:
    """Go through rounds of taking tables out and putting them back, and return how many.

    It ends with the round in which so much work is done, counted in ratings of a rank. `begin` and
    `end` say which part of the whole search, from 0 to 1, this is: what may be accepted that is
    worse falls to nothing along it, from `temperature`, a part of the cost.
    """
    _refresh(tables, state)
    cost = _all_cost(state)
    fits = False
    fitting, within = 0, 0
    rounds = 0
    started = state.work[0]
    while state.work[0] - started < work:
        part = begin + (end - begin) * (state.work[0] - started) / work
        if rounds > 0 and rounds % _TUNING_ROUNDS == 0:
            factor = _TUNING if fitting < _FITTING_SHARE * _TUNING_ROUNDS else 1 / _TUNING
            penalty = state.figures[PENALTY] * factor
            state.figures[PENALTY] = min(max(penalty, _LEAST_PENALTY), _MOST_PENALTY)
            factor = _TUNING if within < _FITTING_SHARE * _TUNING_ROUNDS else 1 / _TUNING
            price = state.figures[PRICE] * factor
            state.figures[PRICE] = min(max(price, _LEAST_PRICE), _MOST_PRICE)
            fitting, within = 0, 0
            _refresh(tables, state)
            cost = _all_cost(state)
        rounds += 1
        state.work[0] += _ROUND + len(state.perf)
        fitting += fits
        within += state.figures[MOVED] <= state.figures[BUDGET]
        count = _pick(tables, state)
        _copy(state.kept_perf, state.perf)
        _copy_rows(state.kept_memory, state.memory)
        _copy(state.kept_cost, state.cost)
        moved = state.figures[MOVED]
        for index in range(count):
            table = state.picked[index]
            state.kept_options[index] = state.chosen[table]
            _copy(state.kept_ranks[index], _ranks_of(tables, state, table))
            _remove(tables, state, table)
        for index in range(count):
            _insert(tables, state, state.picked[index], state.figures[BEST])
        changed = _all_cost(state)
        worse = temperature * (1.0 - part) * _random(state, 1000) / 1000.0
        if changed <= cost * (1.0 + worse):
            fits = _note_if_best(tables, state)
            cost = _all_cost(state)
        else:
            state.figures[MOVED] = moved
            _copy(state.perf, state.kept_perf)
            _copy_rows(state.memory, state.kept_memory)
            _copy(state.cost, state.kept_cost)
            for index in range(count):
                table = state.picked[index]
                state.chosen[table] = state.kept_options[index]
                _copy(_ranks_of(tables, state, table), state.kept_ranks[index])
    return rounds
