"""Compiled local search over plans: large neighbourhood search with simulated annealing.

A round removes a few tables and puts each back where it adds least cost (Shaw 1998). It accepts a
worse plan within a threshold, which falls in the course of a run. On many ranks, a round rates only
the ranks that its tables leave and random ones, so its work does not grow with the ranks.

The penalty on missing memory rises while plans do not fit and falls while they do, so the search
oscillates around plans that just fit (strategic oscillation, Glover 1977). In the same way, the
price of a moved byte keeps plans near the budget of moved bytes.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from planners.embedding.best_plan.insertion import (
    Count,
    Figure,
    Plan,
    State,
    Tables,
    insert,
    link,
    place,
    put_table,
    rank_cost,
    slots,
    unlink,
)
from planners.embedding.best_plan.parts import ALL, HOST, RANK
from planners.embedding.search.compiling import kernel, subroutine
from planners.embedding.search.space import Floats, Ints, Placement

MOST_REMOVED = 12
"""A round takes out at most this number of tables; with more, few rounds improve anything."""

SAMPLE = 64
"""Up to this number of ranks, a round rates them all."""

# On more ranks, a round rates at most this number of the ranks that its tables leave, as many of a
# previous plan, and two thirds as many random ones; and a third of these numbers or less in hosts.
_NEAR = 24

KEEPING_SOME = 4
"""On more ranks, only one round in so many may give tables other options: most are good already."""

# The penalty on missing memory and the price of a moved byte are tuned after so many rounds.
_TUNING_ROUNDS = 512

_ROUND = 500  # the other work of a round, in ratings of a rank


def target_of(best: float, bound: float) -> float:
    """Return the rating to aim for: halfway between best rating and bound, within limits.

    If memory is scarce, less than 1.15 times the bound is out of reach, and that much is easy. Far
    below the best rating, perf would outweigh missing memory.
    """
    target = min(0.5 * (best + bound), 1.15 * bound)
    return target if best == np.inf else max(target, 0.3 * best)


_target_of = subroutine(target_of)


@subroutine
def random_below(state: State, below: int) -> int:
    """Return a random integer from 0 to `below` - 1 (xorshift, Marsaglia 2003)."""
    x = state.random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state.random[0] = x
    return int(np.int64((x >> np.uint64(11)) % np.uint64(below)))


@subroutine
def copy(target: npt.NDArray[Any], source: npt.NDArray[Any]) -> None:
    """Copy the first values of `source` to `target`, up to the length of the shorter array."""
    for index in range(min(len(target), len(source))):
        target[index] = source[index]


@subroutine
def where_largest(values: Floats) -> int:
    """Return the index of the largest value, the first if several are equal."""
    largest = 0
    for index in range(len(values)):
        if values[index] > values[largest]:
            largest = index
    return largest


@subroutine
def _all_cost(state: State) -> float:
    """Return the cost of a plan: the sum of its ranks' costs and the price of its moved bytes."""
    cost = state.figures[Figure.PRICE] * state.figures[Figure.MOVED]
    for rank in range(len(state.cost)):
        cost += state.cost[rank]
    return float(cost)


@subroutine
def _refresh(tables: Tables, state: State) -> None:
    """Recompute all ranks' lists, perf, memory and cost, which removes rounding errors."""
    state.perf[:] = 0.0
    state.memory[:] = 0
    state.first_on[:] = -1
    state.figures[Figure.MOVED] = 0.0
    for rank in range(len(state.perf)):
        state.cost[rank] = rank_cost(tables, state, rank, 0.0, 0, 0)
    for table in range(len(state.plan.options)):
        if state.plan.options[table] >= 0:
            put_table(tables, state, table, 1)
            link(tables, state, table)


@subroutine
def _note_if_best(tables: Tables, state: State) -> bool:
    """Record the current plan if it fits, is within the move budget and is the best so far.

    Return whether it fits. After a new best plan, tables with a shard that costs at least the new
    best rating get another option, because no better plan has such a shard.
    """
    for rank in range(len(state.perf)):
        used, capacity = state.memory[rank], tables.capacity[rank]
        if used[0] > capacity[0] or used[1] > capacity[1]:
            return False
    rating = state.perf[where_largest(state.perf)]
    within = state.figures[Figure.MOVED] <= state.figures[Figure.BUDGET]
    if within and rating < state.figures[Figure.BEST] * (1 - 1e-12):
        state.figures[Figure.BEST] = rating
        state.figures[Figure.TARGET] = _target_of(rating, state.figures[Figure.BOUND])
        copy(state.best.options, state.plan.options)
        copy(state.best.ranks, state.plan.ranks)
        for table in range(len(state.plan.options)):
            if tables.largest[state.plan.options[table]] >= rating:
                put_table(tables, state, table, -1)
                insert(tables, state, table, rating)
        _refresh(tables, state)
    return True


@subroutine
def _copy_table(tables: Tables, target: Plan, source: Plan, table: int) -> None:
    """Copy a table's option and the ranks of its shards from one plan to another."""
    target.options[table] = source.options[table]
    begin, end = slots(tables, source, table)
    for slot in range(begin, end):
        target.ranks[slot] = source.ranks[slot]


@subroutine
def _table_on(tables: Tables, state: State, rank: int) -> int:
    """Return a random table with a shard in the list of a rank, or -1 if that is empty."""
    count, slot = 0, state.first_on[rank]
    while slot >= 0:
        count, slot = count + 1, state.following[slot]
    if count == 0:
        return -1
    slot = state.first_on[rank]
    for _ in range(random_below(state, count)):
        slot = state.following[slot]
    return int(tables.owner[slot])


@subroutine
def _pick(tables: Tables, state: State) -> int:
    """Pick 2 to MOST_REMOVED random tables to remove; return their number.

    After a first one on any rank, they alternate between the costliest rank (in half of the rounds
    a random rank) and another random rank, which can so swap tables, as long as there are more.
    """
    # 1. How many, and the two ranks to take them from.
    count, ranks = len(state.plan.options), len(state.perf)
    wanted = min(2 + random_below(state, MOST_REMOVED - 1), count)
    costliest = where_largest(state.cost)
    if random_below(state, 2) == 0:
        costliest = random_below(state, ranks)
    other = random_below(state, ranks)
    # 2. A table of one of them by turns; any table, if its list is empty or after 30 tries.
    done, tries = 0, 0
    while done < wanted:
        table = -1
        if done > 0 and tries < 30:
            table = _table_on(tables, state, costliest if done % 2 == 1 else other)
        if table < 0:
            table = random_below(state, count)
        tries += 1
        known = False
        for index in range(done):
            known = known or state.picked[index] == table
        if not known:
            state.picked[done] = table
            done += 1
    if random_below(state, 8) > 0:
        # 3. In most rounds, large tables are placed first, while they fit: an insertion sort.
        for end in range(1, wanted):
            table, at = state.picked[end], end
            while at > 0 and tables.size[state.picked[at - 1]] < tables.size[table]:
                state.picked[at] = state.picked[at - 1]
                at -= 1
            state.picked[at] = table
    return wanted


@subroutine
def _rate(tables: Tables, state: State, rank: int, most_ranks: int, most_hosts: int) -> None:
    """Have the round rate a rank and its host, unless there are enough; some may be there twice."""
    ranks, hosts = state.near_count[RANK], state.near_count[HOST]
    every = len(state.perf) // tables.host_ranks
    host = min(rank // tables.host_ranks, every - 1)
    if ranks < most_ranks:
        state.near[RANK, ranks] = rank
        state.near_count[RANK] += 1
    known = hosts > 0 and state.near[HOST, hosts - 1] == host
    if not known and hosts < min(most_hosts, every):
        state.near[HOST, hosts] = host
        state.near_count[HOST] += 1


@subroutine
def _sample(tables: Tables, state: State, count: int) -> None:
    """Choose the ranks and hosts that a round rates."""
    # 1. The previous ranks of the tables that it removes.
    state.near_count[RANK] = state.near_count[HOST] = 0
    if len(tables.home) > 0:
        for index in range(count):
            table = state.picked[index]
            for choice in range(tables.first[table], tables.first[table + 1]):
                option = tables.options[choice]
                if tables.placement[option] != Placement.UNIFORM:
                    for shard in range(tables.first_shard[option], tables.first_shard[option + 1]):
                        if tables.home[shard] >= 0:
                            _rate(tables, state, tables.home[shard], _NEAR, _NEAR // 3)
    # 2. The ranks that these tables leave.
    ranks, hosts = state.near_count[RANK] + _NEAR, state.near_count[HOST] + _NEAR // 3
    for index in range(count):
        begin, end = slots(tables, state.plan, state.picked[index])
        for slot in range(begin, end):
            _rate(tables, state, state.plan.ranks[slot], ranks, hosts)
    # 3. Random ones.
    more = 2 * _NEAR // 3
    ranks, hosts = state.near_count[RANK] + more, state.near_count[HOST] + _NEAR // 6
    for _ in range(more):
        _rate(tables, state, random_below(state, len(state.perf)), ranks, hosts)


@subroutine
def _tuned(value: float, least: float, most: float, met: int) -> float:
    """Return a penalty after rounds of which `met` had plans that met its limit.

    A fifth of the plans should: most are then just too large, and enough fit to find better ones.
    """
    if met < 0.2 * _TUNING_ROUNDS:
        return min(1.5 * value, most)
    return max(value / 1.5, least)


@kernel
def search(
    tables: Tables, state: State, order: Ints, options: Ints, work: int, hot: float, cold: float
) -> int:
    """Place the tables in `order`, then improve the plan; return the number of rounds.

    A table gets its option in `options`, or the one that adds least cost if that is -1. The rounds
    take `work` ratings of a rank; the rise in cost that they accept, relative to the cost, falls
    from `hot` to `cold`.

    A single kernel, because it compiles faster than two. Invariant of a round: the lists, `perf`,
    `memory`, `cost` and the moved bytes match `chosen` and `ranks`, up to rounding errors.
    """
    # 1. Place tables one by one; each may go on any rank.
    for unit in range(len(state.near_count)):
        copy(state.near[unit], tables.everywhere)
    hosts = len(state.perf) // tables.host_ranks
    state.near_count[RANK], state.near_count[HOST] = len(state.perf), hosts
    state.near_count[ALL] = 1
    _refresh(tables, state)
    for table in order:
        if options[table] < 0:
            insert(tables, state, table, state.figures[Figure.BEST])
        else:
            place(tables, state, table, options[table])
    _refresh(tables, state)
    fits = _note_if_best(tables, state)
    cost = _all_cost(state)
    rounds, counts = 0, state.counts
    started = counts[Count.WORK]
    while counts[Count.WORK] - started < work:
        # 2. Tune the penalty and the price.
        if counts[Count.ROUNDS] == _TUNING_ROUNDS:
            # The limits keep the penalty above a rank's cost at the target (1), and both in range.
            figures, fitting, within = state.figures, counts[Count.FITTING], counts[Count.WITHIN]
            figures[Figure.PENALTY] = _tuned(figures[Figure.PENALTY], 30.0, 1e6, fitting)
            figures[Figure.PRICE] = _tuned(figures[Figure.PRICE], 1e-16, 1e6, within)
            counts[Count.ROUNDS] = counts[Count.FITTING] = counts[Count.WITHIN] = 0
            _refresh(tables, state)
            cost = _all_cost(state)
        part = (counts[Count.WORK] - started) / work
        rounds += 1
        counts[Count.WORK] += _ROUND + len(state.perf) // 4
        counts[Count.ROUNDS] += 1
        counts[Count.FITTING] += fits
        counts[Count.WITHIN] += state.figures[Figure.MOVED] <= state.figures[Figure.BUDGET]
        # 3. Remove tables.
        count = _pick(tables, state)
        if len(state.perf) > SAMPLE:
            _sample(tables, state, count)
        for index in range(count):
            table = state.picked[index]
            _copy_table(tables, state.kept, state.plan, table)
            unlink(tables, state, table)
            put_table(tables, state, table, -1)
        # 4. Put them back where each adds least cost.
        keeping = counts[Count.KEEPING]
        if state.best.options[0] >= 0:
            keeping = min(keeping, KEEPING_SOME)
        keeps = keeping > 1 and random_below(state, keeping) > 0
        for index in range(count):
            table = state.picked[index]
            if keeps:
                place(tables, state, table, state.kept.options[table])
            else:
                insert(tables, state, table, state.figures[Figure.BEST])
            link(tables, state, table)
        # 5. Threshold accepting (Dueck and Scheuer 1990) with a random threshold; else undo.
        worse = (hot + (cold - hot) * part) * random_below(state, 1000) / 1000.0
        if _all_cost(state) <= cost * (1.0 + worse):
            fits = _note_if_best(tables, state)
            cost = _all_cost(state)
        else:
            for index in range(count):
                unlink(tables, state, state.picked[index])
                put_table(tables, state, state.picked[index], -1)
            for index in range(count):
                table = state.picked[index]
                _copy_table(tables, state.plan, state.kept, table)
                put_table(tables, state, table, 1)
                link(tables, state, table)
    return rounds
