"""Compiled exchanges between two ranks or two hosts, which balance plans on many ranks.

A round of the local search rates all ranks for each shard that it places. An exchange rates only
the ranks that it changes, so its work does not grow with the number of ranks.
"""

from typing import NamedTuple

import numpy as np

from planners.embedding.best_plan.local.placing import insert, remove
from planners.embedding.best_plan.local.ranks import (
    copy,
    estimates_of,
    fits_on,
    put,
    rank_cost,
    ranks_of,
    recount,
    sum_of,
)
from planners.embedding.best_plan.local.rounds import random_below
from planners.embedding.best_plan.local.state import BEST, State, Tables
from planners.embedding.search.compiling import kernel, subroutine
from planners.embedding.search.space import Ints, Placement

_PARTNERS = 64  # random ranks, and as many hosts, that a rank tries to exchange shards with
_LEAST_GAIN = 1e-9  # of a rank's cost, so that rounding cannot make exchanges endless


class Lists(NamedTuple):
    """The shards on each rank as linked lists; a shard is its index in `State.ranks`."""

    first: Ints  # the first shard of each rank, -1 if none, shape (ranks,)
    following: Ints  # the next shard on the same rank, -1 after the last one
    table: Ints  # the table of each shard
    done: Ints  # whether no exchange with a rank was found since it last changed, shape (ranks,)
    best: Ints  # the best exchange so far: a shard, the one for it (or -1), and the latter's rank


@subroutine
def _link(tables: Tables, state: State, lists: Lists, table: int) -> None:
    """Enter a table's shards into the lists, unless they are on all ranks."""
    if tables.placement[state.chosen[table]] == Placement.UNIFORM:
        return
    for shard in range(len(ranks_of(tables, state, table))):
        shard += tables.slot[table]
        rank = state.ranks[shard]
        lists.table[shard] = table
        lists.following[shard] = lists.first[rank]
        lists.first[rank] = shard


@subroutine
def _unlink(tables: Tables, state: State, lists: Lists, table: int) -> None:
    if tables.placement[state.chosen[table]] == Placement.UNIFORM:
        return
    for shard in range(len(ranks_of(tables, state, table))):
        shard += tables.slot[table]
        rank = state.ranks[shard]
        if lists.first[rank] == shard:
            lists.first[rank] = lists.following[shard]
        else:
            place = lists.first[rank]
            while lists.following[place] != shard:
                place = lists.following[place]
            lists.following[place] = lists.following[shard]


@subroutine
def _estimate(tables: Tables, state: State, lists: Lists, shard: int) -> int:
    """Return the estimate number of a shard, or -1 for none."""
    if shard < 0:
        return -1
    table = lists.table[shard]
    first = tables.first_shard[state.chosen[table]]
    return int(tables.estimate[first + shard - tables.slot[table]])


@subroutine
def _placement(tables: Tables, state: State, lists: Lists, shard: int) -> int:
    return int(tables.placement[state.chosen[lists.table[shard]]])


@subroutine
def _cost_after(tables: Tables, state: State, rank: int, out: int, into: int) -> float:
    """Return the cost of a rank without estimate `out` and with `into`; -1 stands for none."""
    state.work[0] += 1
    perf, hbm, ddr = state.perf[rank], state.memory[rank, 0], state.memory[rank, 1]
    if out >= 0:
        perf -= tables.total[out]
        hbm -= tables.storage[out, 0]
        ddr -= tables.storage[out, 1]
    if into >= 0:
        perf += tables.total[into]
        hbm += tables.storage[into, 0]
        ddr += tables.storage[into, 1]
    return rank_cost(tables, state, rank, perf, hbm, ddr)


@subroutine
def _gain(
    tables: Tables, state: State, lists: Lists, one: int, other: int, ranks: Ints, least: float
) -> float:
    """Return how much cost falls if shards `one` and `other` (or -1) change places.

    `ranks` has the rank of the one and of the other. Blocks of a host change places as a whole. The
    result may be any value below `least` if it is below.
    """
    start, end = 0, 1
    if _placement(tables, state, lists, one) == Placement.HOST_ROWS:
        start = -(ranks[0] % tables.host_ranks)
        end = start + tables.host_ranks
    gain = 0.0
    for device in range(start, end):
        gain += state.cost[ranks[0] + device] + state.cost[ranks[1] + device]
    for device in range(start, end):
        out = _estimate(tables, state, lists, one + device)
        into = -1 if other < 0 else _estimate(tables, state, lists, other + device)
        gain -= _cost_after(tables, state, ranks[0] + device, out, into)
        if gain > least:
            gain -= _cost_after(tables, state, ranks[1] + device, into, out)
        if gain <= least:
            break
    return gain


@subroutine
def _best_with(
    tables: Tables, state: State, lists: Lists, placement: int, ranks: Ints, least: float
) -> float:
    """Find the best exchange of two ranks that gains more than `least`; return its gain."""
    one = lists.first[ranks[0]]
    while one >= 0:
        if _placement(tables, state, lists, one) == placement:
            other = -1
            following = lists.first[ranks[1]]
            while True:
                gain = _gain(tables, state, lists, one, other, ranks, least)
                if gain > least:
                    least = gain
                    lists.best[0], lists.best[1], lists.best[2] = one, other, ranks[1]
                other = following
                while other >= 0 and _placement(tables, state, lists, other) != placement:
                    other = lists.following[other]
                if other < 0:
                    break
                following = lists.following[other]
        one = lists.following[one]
    return least


@subroutine
def _move(tables: Tables, state: State, lists: Lists, shard: int, rank: int) -> None:
    """Move a shard to another rank, or its whole block to that rank's host."""
    table = lists.table[shard]
    _unlink(tables, state, lists, table)
    start, end = 0, 1
    if tables.placement[state.chosen[table]] == Placement.HOST_ROWS:
        start = tables.slot[table] - shard
        end = start + tables.host_ranks
    for device in range(start, end):
        estimate = _estimate(tables, state, lists, shard + device)
        before, after = state.ranks[shard + device], rank + device
        put(tables, state, before, estimate, -1)
        put(tables, state, after, estimate, 1)
        recount(tables, state, before)
        recount(tables, state, after)
        state.ranks[shard + device] = after
        lists.done[before] = lists.done[after] = 0
    _link(tables, state, lists, table)


@subroutine
def _exchanged(tables: Tables, state: State, lists: Lists, rank: int) -> bool:
    """Make the best exchange of a rank with random others; return whether there is one."""
    least = _LEAST_GAIN * state.cost[rank]
    ranks = lists.best[3:]
    lists.best[0] = -1
    ranks[0] = rank
    for _ in range(_PARTNERS):
        ranks[1] = random_below(state, len(state.perf))
        if ranks[1] != rank:
            least = _best_with(tables, state, lists, Placement.DEVICE, ranks, least)
    if rank < len(state.taken) * tables.host_ranks:
        position = rank % tables.host_ranks
        for _ in range(_PARTNERS):
            ranks[1] = random_below(state, len(state.taken)) * tables.host_ranks + position
            if ranks[1] != rank:
                least = _best_with(tables, state, lists, Placement.HOST_ROWS, ranks, least)
    if lists.best[0] < 0:
        return False
    one, other, partner = lists.best[0], lists.best[1], lists.best[2]
    _move(tables, state, lists, one, partner)
    if other >= 0:
        _move(tables, state, lists, other, rank)
    return True


@subroutine
def _placed_anew(tables: Tables, state: State, lists: Lists, rank: int) -> bool:
    """Place a table of a rank with any option on any ranks if that costs less."""
    count = 0
    shard = lists.first[rank]
    while shard >= 0:
        count += 1
        shard = lists.following[shard]
    for _ in range(count):
        # The last one in the list; a table that is put back becomes the first one.
        shard = lists.first[rank]
        while lists.following[shard] >= 0:
            shard = lists.following[shard]
        table = lists.table[shard]
        option, before = state.chosen[table], sum_of(state.cost)
        copy(state.kept_ranks[0], ranks_of(tables, state, table))
        _unlink(tables, state, lists, table)
        remove(tables, state, table)
        insert(tables, state, table, state.figures[BEST])
        better = sum_of(state.cost) < before - _LEAST_GAIN * state.cost[rank]
        if not better:
            remove(tables, state, table)
            state.chosen[table] = option
            ranks = ranks_of(tables, state, table)
            copy(ranks, state.kept_ranks[0])
            estimates = estimates_of(tables, option)
            for index in range(len(estimates)):
                put(tables, state, ranks[index], estimates[index], 1)
                recount(tables, state, ranks[index])
        _link(tables, state, lists, table)
        if better:
            for other in ranks_of(tables, state, table):
                lists.done[other] = 0
            return True
    return False


@subroutine
def _costliest(tables: Tables, state: State, lists: Lists, goal: float) -> int:
    """Return the costliest rank that is not done and is above the goal or its memory, or -1."""
    chosen, highest = -1, 0.0
    for rank in range(len(state.cost)):
        if (
            lists.done[rank] == 0
            and state.cost[rank] > highest
            and not (state.perf[rank] <= goal and fits_on(tables, state, rank))
        ):
            chosen, highest = rank, state.cost[rank]
    return chosen


@kernel
def _balance(
    tables: Tables, state: State, lists: Lists, work: int, goal: float, new_options: bool
) -> int:
    """Lower the costliest rank's cost until all ranks are done; return the number of changes.

    Invariant: `perf`, `memory` and `cost` match `chosen`, `ranks` and the lists, up to rounding.
    """
    lists.first[:] = -1
    for table in range(len(state.chosen)):
        _link(tables, state, lists, table)
    for rank in range(len(state.cost)):
        recount(tables, state, rank)
    changes = 0
    started = state.work[0]
    rank = _costliest(tables, state, lists, goal)
    while rank >= 0 and state.work[0] - started < work:
        if _exchanged(tables, state, lists, rank) or (
            new_options and _placed_anew(tables, state, lists, rank)
        ):
            changes += 1
        else:
            lists.done[rank] = 1
        rank = _costliest(tables, state, lists, goal)
    return changes


def balance(
    tables: Tables, state: State, doublings: int, work: int, goal: float, new_options: bool
) -> int:
    """Exchange shards until no rank is above `goal` ms or its memory, or no exchange helps.

    It ends after `work` ratings of a rank. The exponent of perf is 12 * 2**doublings. If
    `new_options`, tables may get other options. Return the number of changes.
    """
    state.doublings[:] = doublings
    ranks, shards = len(state.perf), len(state.ranks)
    lists = Lists(*(np.zeros(size, np.int64) for size in (ranks, shards, shards, ranks, 5)))
    return _balance(tables, state, lists, work, goal, new_options)
