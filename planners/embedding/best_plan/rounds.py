"""Compiled local search over plans: large neighbourhood search with simulated annealing.

A round removes a few tables and puts each back where it adds least cost (Shaw 1998). It accepts a
worse plan within a threshold, which falls in the course of a run. On many ranks, a round rates only
the ranks that its tables leave and random ones, so its work does not grow with the ranks.

The cost of a plan is a sum over its ranks of a high power of the rank's perf, a power of its memory
with a small weight, and a penalty for memory beyond the capacity. The high power of perf
approximates the maximum (the slowest rank) but also rewards less load on the second slowest rank.
The penalty rises while plans do not fit and falls while they do, so the search oscillates around
plans that just fit (strategic oscillation, Glover 1977). In the same way, the price of a moved byte
keeps plans near the budget of moved bytes.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from planners.embedding.search.compiling import inlined, kernel, subroutine
from planners.embedding.search.space import Floats, Floats2, Ints, Ints2, Placement

NOWHERE = 1e300
"""A number above the rating and the cost of any plan."""

BEST, TARGET, PENALTY, BOUND, PRICE, BUDGET, MOVED = 0, 1, 2, 3, 4, 5, 6
"""Indices of `State.figures`."""

WORK, DOUBLINGS, RANKS, HOSTS = 0, 1, 2, 3
"""Indices of `State.counts`."""

MOST_REMOVED = 12
"""A round takes out at most this number of tables; with more, few rounds improve anything."""

SAMPLE = 64
"""Up to this number of ranks, a round rates them all."""

# A round on more ranks rates at most this number of ranks and of hosts; so many of them are random.
_MOST_RANKS, _RANDOM_RANKS = 48, 16
_MOST_HOSTS, _RANDOM_HOSTS = 12, 4

_MEMORY_WEIGHT = 0.1  # memory within capacity decides only between plans of about equal perf
_MOST_LOAD = 30.0  # highest load, times the target; more would overflow at the highest power

# Highest target, times the bound: if memory is scarce, a lower one is out of reach; higher is easy.
_FARTHEST_TARGET = 1.15
# Lowest target, times the best rating: far above a target, perf would outweigh missing memory.
_LEAST_TARGET = 0.3

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


class State(NamedTuple):
    """The current plan of a local search, and the best plan that it has found."""

    chosen: Ints  # the option of each table
    ranks: Ints  # the rank of each shard that is not of a uniform option; table t's from slot[t]
    perf: Floats  # milliseconds of each rank
    memory: Ints2  # bytes used on each rank, shape (ranks, 3)
    cost: Floats  # the cost of each rank
    taken: Ints  # how many parts of the table in hand are on each host, shape (ranks,)
    near_ranks: Ints  # the ranks and the hosts that a round rates; `counts` has their numbers
    near_hosts: Ints
    picked: Ints  # the tables that a round removes, shape (MOST_REMOVED,)
    kept_options: Ints  # their options and ranks before the round
    kept_ranks: Ints2
    best_chosen: Ints  # of the best plan; -1 if there is none
    best_ranks: Ints
    figures: Floats  # best rating, target, penalty, bound; price of a byte, budget, bytes moved
    counts: Ints  # ratings of a rank so far; perf's exponent is 12 * 2**doublings; near_*
    random: npt.NDArray[np.uint64]


def target_of(best: float, bound: float) -> float:
    """Return the rating to aim for: halfway between best rating and bound, within limits."""
    target = min(0.5 * (best + bound), _FARTHEST_TARGET * bound)
    return target if best >= NOWHERE else max(target, _LEAST_TARGET * best)


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


@inlined
def ranks_of(tables: Tables, state: State, table: int) -> Ints:
    """Return the ranks of a table's shards, as a view."""
    option = state.chosen[table]
    ranks, begin = state.ranks, tables.slot[table]
    if tables.placement[option] == Placement.UNIFORM:
        ranks, begin = tables.everywhere, 0
    return ranks[begin : begin + tables.first_shard[option + 1] - tables.first_shard[option]]


@subroutine
def _rank_cost(tables: Tables, state: State, rank: int, perf: float, hbm: int, ddr: int) -> float:
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
    state.cost[rank] = _rank_cost(
        tables, state, rank, state.perf[rank], state.memory[rank, 0], state.memory[rank, 1]
    )


@subroutine
def _put_table(tables: Tables, state: State, table: int, sign: int) -> None:
    """Add all shards of a table to their ranks, or remove them if `sign` is -1."""
    shard, ranks = tables.first_shard[state.chosen[table]], ranks_of(tables, state, table)
    for index in range(len(ranks)):
        _put(tables, state, shard + index, ranks[index], sign)


@subroutine
def _all_cost(state: State) -> float:
    """Return the cost of a plan: the sum of its ranks' costs and the price of its moved bytes."""
    cost = state.figures[PRICE] * state.figures[MOVED]
    for rank_cost in state.cost:
        cost += rank_cost
    return float(cost)


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
            added += _rank_cost(
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
def _place(tables: Tables, state: State, table: int, option: int) -> float:
    """Place a table with this option where it adds least cost; return the added cost."""
    state.chosen[table] = option
    units = _units(tables, state, option)
    if tables.placement[option] != Placement.HOST_COLUMNS:
        return _place_parts(tables, state, table, units)
    least, best = NOWHERE, 0
    for host in units:
        ranks = tables.everywhere[host * tables.host_ranks : (host + 1) * tables.host_ranks]
        added = _place_parts(tables, state, table, ranks)
        _put_table(tables, state, table, -1)
        if added < least:
            least, best = added, host
    ranks = tables.everywhere[best * tables.host_ranks : (best + 1) * tables.host_ranks]
    return _place_parts(tables, state, table, ranks)


@subroutine
def _insert(tables: Tables, state: State, table: int, limit: float) -> None:
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
            added = _place(tables, state, table, option)
            _put_table(tables, state, table, -1)
        if added < least:
            least, best = added, option
    _place(tables, state, table, best if best >= 0 else fallback)


@subroutine
def _refresh(tables: Tables, state: State) -> None:
    """Recompute perf, memory and cost of all ranks, which removes accumulated rounding errors."""
    state.perf[:] = 0.0
    state.memory[:] = 0
    state.figures[MOVED] = 0.0
    for rank in range(len(state.perf)):
        state.cost[rank] = _rank_cost(tables, state, rank, 0.0, 0, 0)
    for table in range(len(state.chosen)):
        if state.chosen[table] >= 0:
            _put_table(tables, state, table, 1)


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
    within = state.figures[MOVED] <= state.figures[BUDGET]
    if within and rating < state.figures[BEST] * (1 - 1e-12):
        state.figures[BEST] = rating
        state.figures[TARGET] = _target_of(rating, state.figures[BOUND])
        copy(state.best_chosen, state.chosen)
        copy(state.best_ranks, state.ranks)
        for table in range(len(state.chosen)):
            if tables.largest[state.chosen[table]] >= rating:
                _put_table(tables, state, table, -1)
                _insert(tables, state, table, rating)
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
def _pick(tables: Tables, state: State) -> int:
    """Pick 2 to MOST_REMOVED random tables to remove; return their number.

    The first five alternate between the costliest rank (in half of the rounds a random rank) and
    another random rank, unless two tries per table find too few; the others are on any rank.
    """
    count, ranks = len(state.chosen), len(state.perf)
    wanted = min(2 + random_below(state, MOST_REMOVED - 1), count)
    costliest = where_largest(state.cost)
    if random_below(state, 2) == 0:
        costliest = random_below(state, ranks)
    other = random_below(state, ranks)
    done, tries = 0, 0
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
        # Large tables are placed first, while they fit: an insertion sort by descending size.
        for end in range(1, wanted):
            table, place = state.picked[end], end
            while place > 0 and tables.size[state.picked[place - 1]] < tables.size[table]:
                state.picked[place] = state.picked[place - 1]
                place -= 1
            state.picked[place] = table
    return wanted


@subroutine
def _sample(tables: Tables, state: State, count: int) -> None:
    """Choose what the round rates: ranks and hosts that its tables leave, and random ones."""
    ranks, hosts = 0, 0
    for index in range(count):
        table = state.picked[index]
        if tables.placement[state.chosen[table]] != Placement.UNIFORM:
            for rank in ranks_of(tables, state, table):
                if ranks < _MOST_RANKS - _RANDOM_RANKS:
                    state.near_ranks[ranks] = rank
                    ranks += 1
                if hosts < _MOST_HOSTS - _RANDOM_HOSTS:
                    host = rank // tables.host_ranks
                    known = host >= len(state.near_hosts)
                    for place in range(hosts):
                        known = known or state.near_hosts[place] == host
                    if not known:
                        state.near_hosts[hosts] = host
                        hosts += 1
    for _ in range(_RANDOM_RANKS):
        state.near_ranks[ranks] = random_below(state, len(state.perf))
        ranks += 1
    for _ in range(min(_RANDOM_HOSTS, len(state.near_hosts) - hosts)):
        state.near_hosts[hosts] = random_below(state, len(state.near_hosts))
        hosts += 1
    state.counts[RANKS], state.counts[HOSTS] = ranks, hosts


@kernel
def search(
    tables: Tables, state: State, order: Ints, options: Ints, work: int, hot: float, cold: float
) -> int:
    """Place the tables in `order`, then improve the plan; return the number of rounds.

    A table gets its option in `options`, or the one that adds least cost if that is -1. The rounds
    take `work` ratings of a rank; the rise in cost that they accept, relative to the cost, falls
    from `hot` to `cold`.

    A single kernel, because it compiles faster than two. Invariant of a round: `perf`, `memory`,
    `cost` and the moved bytes match `chosen` and `ranks`, up to rounding that `_refresh` removes.
    """
    # 1. Place tables one by one; each may go on any rank.
    copy(state.near_ranks, tables.everywhere)
    copy(state.near_hosts, tables.everywhere)
    state.counts[RANKS], state.counts[HOSTS] = len(state.near_ranks), len(state.near_hosts)
    _refresh(tables, state)
    for table in order:
        if options[table] < 0:
            _insert(tables, state, table, state.figures[BEST])
        else:
            _place(tables, state, table, options[table])
    fits = _note_if_best(tables, state)
    cost = _all_cost(state)
    fitting, within, rounds = 0, 0, 0
    started = state.counts[WORK]
    while state.counts[WORK] - started < work:
        # 2. Tune the penalty and the price.
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
        part = (state.counts[WORK] - started) / work
        rounds += 1
        state.counts[WORK] += _ROUND + len(state.perf)
        fitting += fits
        within += state.figures[MOVED] <= state.figures[BUDGET]
        # 3. Remove tables.
        count = _pick(tables, state)
        if len(state.perf) > SAMPLE:
            _sample(tables, state, count)
        for index in range(count):
            table = state.picked[index]
            state.kept_options[index] = state.chosen[table]
            copy(state.kept_ranks[index], ranks_of(tables, state, table))
            _put_table(tables, state, table, -1)
        # 4. Put them back where each adds least cost.
        for index in range(count):
            _insert(tables, state, state.picked[index], state.figures[BEST])
        # 5. Threshold accepting (Dueck and Scheuer 1990) with a random threshold; else undo.
        worse = (hot + (cold - hot) * part) * random_below(state, 1000) / 1000.0
        if _all_cost(state) <= cost * (1.0 + worse):
            fits = _note_if_best(tables, state)
            cost = _all_cost(state)
        else:
            for index in range(count):
                _put_table(tables, state, state.picked[index], -1)
            for index in range(count):
                table = state.picked[index]
                state.chosen[table] = state.kept_options[index]
                copy(ranks_of(tables, state, table), state.kept_ranks[index])
                _put_table(tables, state, table, 1)
    return rounds
