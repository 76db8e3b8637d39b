"""Local search over plans, compiled: tables are taken out and put back where they cost least.

The penalty on missing memory is raised while plans do not fit and lowered while they do, so that
the search goes back and forth over the edge of what fits. So is the price of a byte that is moved,
where there is a plan to stay near.
"""

import numpy as np

from planners.embedding.best_plan.local.arrays import copy, copy_rows, where_largest
from planners.embedding.best_plan.local.placing import insert, place, remove
from planners.embedding.best_plan.local.ranks import (
    all_cost,
    count_moves,
    estimates_of,
    put,
    ranks_of,
    recount,
)
from planners.embedding.best_plan.local.state import (
    BEST,
    BOUND,
    BUDGET,
    MOST_REMOVED,
    MOVED,
    PENALTY,
    PRICE,
    TARGET,
    State,
    Tables,
    target_of,
)
from planners.embedding.search.compiling import kernel, subroutine
from planners.embedding.search.space import Ints, Placement

# The penalty on missing memory: tuned while searching, every so many rounds, by this factor.
_TUNING_ROUNDS = 512
_TUNING = 1.5
_LEAST_PENALTY, _MOST_PENALTY = 30.0, 1e6
_FITTING_SHARE = 0.2
_LEAST_PRICE, _MOST_PRICE = 1e-16, 1e6  # of a byte that is moved

_MIXED_ORDER = 8  # one round in so many puts tables back in no order

_ROUND = 500  # what a round takes beside rating ranks, in ratings of a rank

_target_of = subroutine(target_of)


@subroutine
def _random(state: State, below: int) -> int:
    """Return a whole number from 0 to below - 1 (xorshift, Marsaglia 2003)."""
    x = state.random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state.random[0] = x
    return int((x >> np.uint64(11)) % np.uint64(below))


@subroutine
def _fits(tables: Tables, state: State) -> bool:
    for rank in range(len(tables.capacity)):
        for kind in range(2):
            if state.memory[rank, kind] > tables.capacity[rank, kind]:
                return False
    return True


@subroutine
def _refresh(tables: Tables, state: State) -> None:
    """Sum all ranks anew, which drops what rounding has left, and rate them."""
    state.perf[:] = 0.0
    state.memory[:] = 0
    state.figures[MOVED] = 0.0
    for table in range(len(state.chosen)):
        estimates, ranks = (
            estimates_of(tables, state.chosen[table]),
            ranks_of(tables, state, table),
        )
        count_moves(tables, state, table, 1)
        for index in range(len(estimates)):
            put(tables, state, ranks[index], estimates[index], 1)
    for rank in range(len(state.perf)):
        recount(tables, state, rank)


@subroutine
def _note_if_best(tables: Tables, state: State) -> bool:
    """Keep a plan that fits, moves little enough and is the best; returns whether it fits."""
    if not _fits(tables, state):
        return False
    if state.figures[MOVED] > state.figures[BUDGET]:
        return True
    rating = state.perf[where_largest(state.perf)]
    if rating < state.figures[BEST] * (1 - 1e-12):
        state.figures[BEST] = rating
        state.figures[TARGET] = _target_of(rating, state.figures[BOUND])
        copy(state.best_chosen, state.chosen)
        copy(state.best_ranks, state.ranks)
        for table in range(len(state.chosen)):
            if tables.largest[state.chosen[table]] >= rating:
                remove(tables, state, table)
                insert(tables, state, table, rating)
        _refresh(tables, state)
    return True


@subroutine
def _is_on(tables: Tables, state: State, table: int, rank: int) -> bool:
    ranks = ranks_of(tables, state, table)
    index = 0
    while index < len(ranks) and ranks[index] != rank:
        index += 1
    return bool(index < len(ranks))


@subroutine
def _largest_first(tables: Tables, state: State, count: int) -> None:
    """Sort the tables that are taken out: large ones are put back while there is room for them."""
    for end in range(1, count):
        table, place = state.picked[end], end
        while place > 0 and tables.size[state.picked[place - 1]] < tables.size[table]:
            state.picked[place] = state.picked[place - 1]
            place -= 1
        state.picked[place] = table


@subroutine
def _pick(tables: Tables, state: State) -> int:
    """Pick tables to take out: some from the costliest rank, some from another, some from any."""
    count = len(state.chosen)
    ranks = len(state.perf)
    wanted = min(2 + _random(state, MOST_REMOVED - 1), count)
    costliest = where_largest(state.cost)
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
    if _random(state, _MIXED_ORDER) > 0:
        _largest_first(tables, state, wanted)
    return wanted


@kernel
def _search(
    tables: Tables,
    state: State,
    order: Ints,
    options: Ints,
    work: int,
    begin: float,
    end: float,
    temperature: float,
) -> int:
    """Place tables, and then improve the plan; one kernel, since one is compiled the sooner."""
    _refresh(tables, state)
    for table in order:
        if options[table] < 0:
            insert(tables, state, table, state.figures[BEST])
        else:
            state.chosen[table] = options[table]
            place(tables, state, options[table], ranks_of(tables, state, table))
            count_moves(tables, state, table, 1)
    if len(options) > 0:  # also where all tables were placed before
        _note_if_best(tables, state)
    cost = all_cost(state)
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
            cost = all_cost(state)
        rounds += 1
        state.work[0] += _ROUND + len(state.perf)
        fitting += fits
        within += state.figures[MOVED] <= state.figures[BUDGET]
        count = _pick(tables, state)
        copy(state.kept_perf, state.perf)
        copy_rows(state.kept_memory, state.memory)
        copy(state.kept_cost, state.cost)
        moved = state.figures[MOVED]
        for index in range(count):
            table = state.picked[index]
            state.kept_options[index] = state.chosen[table]
            copy(state.kept_ranks[index], ranks_of(tables, state, table))
            remove(tables, state, table)
        for index in range(count):
            insert(tables, state, state.picked[index], state.figures[BEST])
        changed = all_cost(state)
        worse = temperature * (1.0 - part) * _random(state, 1000) / 1000.0
        if changed <= cost * (1.0 + worse):
            fits = _note_if_best(tables, state)
            cost = all_cost(state)
        else:
            state.figures[MOVED] = moved
            copy(state.perf, state.kept_perf)
            copy_rows(state.memory, state.kept_memory)
            copy(state.cost, state.kept_cost)
            for index in range(count):
                table = state.picked[index]
                state.chosen[table] = state.kept_options[index]
                copy(ranks_of(tables, state, table), state.kept_ranks[index])
    return rounds


_NO_TABLES = np.empty(0, np.int64)


def construct(tables: Tables, state: State, order: Ints, options: Ints) -> None:
    """Place the given option of each table, in this order, each where it adds least."""
    _search(tables, state, order, options, 0, 0.0, 0.0, 0.0)


def complete(tables: Tables, state: State, order: Ints) -> None:
    """Place the tables that are not placed yet, in this order, each where it adds least."""
    _search(tables, state, order, np.full_like(state.chosen, -1), 0, 0.0, 0.0, 0.0)


def improve(
    tables: Tables, state: State, work: int, begin: float, end: float, temperature: float
) -> int:
    """Go through rounds of taking tables out and putting them back, and return how many.

    It ends with the round in which so much work is done, counted in ratings of a rank. `begin` and
    `end` say which part of the whole search, from 0 to 1, this is: what may be accepted that is
    worse falls to nothing along it, from `temperature`, a part of the cost.
    """
    return _search(tables, state, _NO_TABLES, _NO_TABLES, work, begin, end, temperature)
