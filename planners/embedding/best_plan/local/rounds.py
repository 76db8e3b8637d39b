"""Compiled local search over plans: large neighbourhood search with simulated annealing.

A round removes a few tables and puts each back where it adds least cost (Shaw 1998). It accepts a
worse plan within a threshold, which falls to 0 in the course of a run.

The penalty on missing memory rises while plans do not fit and falls while they do, so the search
oscillates around plans that just fit (strategic oscillation, Glover 1977). In the same way, the
price of a moved byte keeps plans near the budget of moved bytes.
"""

import math
from collections.abc import Iterator

import numpy as np

from planners.embedding.best_plan.local.placing import insert, place, remove
from planners.embedding.best_plan.local.ranks import (
    all_cost,
    copy,
    copy_rows,
    count_moves,
    estimates_of,
    fits_on,
    put,
    ranks_of,
    recount,
    where_largest,
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

# Every 512 rounds, the penalty on missing memory and the price of a moved byte are multiplied or
# divided by this factor, so that a fifth of the plans fit: most plans are then just too large, and
# enough fit to find better ones. The limits keep the penalty above a rank's cost at the target (1)
# and both within float precision.
_TUNING_ROUNDS = 512
_TUNING = 1.5
_FITTING_SHARE = 0.2
_LEAST_PENALTY, _MOST_PENALTY = 30.0, 1e6
_LEAST_PRICE, _MOST_PRICE = 1e-16, 1e6

_MIXED_ORDER = 8  # one round in 8 puts tables back in random order, not the largest first

_ROUND = 500  # the other work of a round, in ratings of a rank

_TABLES_AT_FULL_HEAT = 32
"""With more tables the heat is less in proportion: a round changes a smaller part of the cost."""

WORK_AT_ONCE = 4_000_000
"""Work between two looks at the clock, some 30 ms."""

_target_of = subroutine(target_of)


@subroutine
def random_below(state: State, below: int) -> int:
    """Return a random integer from 0 to `below` - 1 (xorshift, Marsaglia 2003)."""
    x = state.random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state.random[0] = x
    return int((x >> np.uint64(11)) % np.uint64(below))


@subroutine
def _fits(tables: Tables, state: State) -> bool:
    rank = 0
    while rank < len(tables.capacity) and fits_on(tables, state, rank):
        rank += 1
    return bool(rank == len(tables.capacity))


@subroutine
def _refresh(tables: Tables, state: State) -> None:
    """Recompute perf, memory and cost of all ranks, which removes accumulated rounding errors."""
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
    """Record the current plan if it fits, is within the move budget and is the best so far.

    Return whether it fits. After a new best plan, tables with a shard that costs at least the new
    best rating get another option, because no better plan has such a shard.
    """
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
    """Sort the picked tables by descending size, so that large ones are placed while they fit."""
    for end in range(1, count):
        table, place = state.picked[end], end
        while place > 0 and tables.size[state.picked[place - 1]] < tables.size[table]:
            state.picked[place] = state.picked[place - 1]
            place -= 1
        state.picked[place] = table


@subroutine
def _pick(tables: Tables, state: State) -> int:
    """Pick 2 to MOST_REMOVED random tables to remove; return their number.

    The first five alternate between the costliest rank (in one of four rounds a random rank) and
    another random rank, unless two tries per table find too few; the others are on any rank.
    """
    count = len(state.chosen)
    ranks = len(state.perf)
    wanted = min(2 + random_below(state, MOST_REMOVED - 1), count)
    costliest = where_largest(state.cost)
    if random_below(state, 4) == 0:
        costliest = random_below(state, ranks)
    other = random_below(state, ranks)
    done = 0
    tries = 0
    while done < wanted:
        table = random_below(state, count)
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
    if random_below(state, _MIXED_ORDER) > 0:
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
    """Place the tables in `order`, then improve the plan; return the number of rounds.

    A single kernel, because it compiles faster than two. Invariant of a round: `perf`, `memory`,
    `cost` and the moved bytes match `chosen` and `ranks`, up to rounding that `_refresh` removes.
    """
    _refresh(tables, state)
    for table in order:
        if options[table] < 0:
            insert(tables, state, table, state.figures[BEST])
        else:
            state.chosen[table] = options[table]
            place(tables, state, options[table], ranks_of(tables, state, table))
            count_moves(tables, state, table, 1)
    if len(options) > 0:  # even if `order` is empty, because all tables are already placed
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
        # Threshold accepting (Dueck and Scheuer 1990): a random threshold that shrinks linearly.
        worse = temperature * (1.0 - part) * random_below(state, 1000) / 1000.0
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
    """Place each table in `order` with its given option where that adds the least cost.

    A table with option -1 gets the option that adds the least cost.
    """
    _search(tables, state, order, options, 0, 0.0, 0.0, 0.0)


def improve(
    tables: Tables, state: State, work: int, begin: float, end: float, temperature: float
) -> int:
    """Improve the plan for `work` ratings of a rank; return the number of rounds.

    This call is the part of a whole run from `begin` to `end`, between 0 and 1. In the course of
    the run, the accepted rise in cost falls linearly from `temperature`, relative to cost, to 0.
    """
    heat = temperature * min(1.0, _TABLES_AT_FULL_HEAT / len(state.chosen))
    return _search(tables, state, _NO_TABLES, _NO_TABLES, work, begin, end, heat)


def parts_of_run(state: State, work: float) -> Iterator[tuple[int, float, float]]:
    """Yield `work`, `begin` and `end` for calls of `improve` until the state has done `work`.

    The caller can check the clock between these calls.
    """
    while state.work[0] < work:
        done = int(state.work[0])
        more = math.ceil(min(WORK_AT_ONCE, work - done))
        yield more, done / work, (done + more) / work
