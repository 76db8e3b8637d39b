"""The most valuable pattern of a device: upper bounds on its value, and a compiled search for it.

A pattern is a set of items, at most one per table, within the limits of a device (time, memory).
Finding one is a multiple-choice knapsack problem with several limits, and the pricing problem of
the configuration programme. A weighted sum of the limits is a limit too (a surrogate relaxation).
"""

from itertools import product
from typing import NamedTuple

import numpy as np

from planners.embedding.search.compiling import kernel
from planners.embedding.search.space import Floats, Floats2, Floats3, Ints, Ints2

_LEVELS = 256  # levels of a weight in the dynamic programme; more cost more time than they save
_TOLERANCE = 1e-9  # a pattern may exceed a limit by this part, because of rounding
_NODES = 150_000  # most nodes of a search, some 10 ms
_STEPS_OF_A_NODE = 50  # steps of the dynamic programme that take as long as a node


class Items(NamedTuple):
    """The items of all tables, sorted by table: fractions of a table that a device can contain."""

    table: Ints  # the table of each item, shape (I,)
    first: Ints  # the index of each table's first item, shape (T + 1,)
    share: Floats  # the fraction of its table, shape (I,)
    cost: Floats2  # part of each limit (time, then kinds of memory) that it uses, shape (I, L)


class Branches(NamedTuple):
    """The items as branches of the search, grouped by table in the order of branching.

    The branches of the table at depth d begin at first[d], the most valuable one first; the last
    of them takes no item. There are S weighted sums of the limits.
    """

    first: Ints  # shape (D + 1,)
    item: Ints  # item number, or -1 for no item, shape (B,)
    value: Floats
    cost: Floats2  # shape (B, L)
    weight: Ints2  # cost in each weighted sum of limits, in levels, rounded down, shape (B, S)


def most_valuable_pattern(items: Items, worth: Floats, floor: float) -> tuple[float, Ints, int]:
    """Return an upper bound on any pattern's value, a pattern above `floor` if found, and the work.

    An item's value is its share times `worth` of its table. The pattern is an array of item
    numbers, empty if none was found; the bound may then be `floor`. The work is in nodes.
    """
    # 1. The bounds of single weighted sums of limits, from every depth on.
    branches = _branches(items, worth)
    depths, sums = len(branches.first) - 1, branches.weight.shape[1]
    most = np.empty((depths + 1, sums, _LEVELS + 1))
    fill_most(branches, most)
    work = branches.weight.size * _LEVELS // _STEPS_OF_A_NODE
    bound = float(most[0, :, -1].min())
    if bound < floor:
        return floor, np.zeros(0, np.int64), work
    # 2. A search for the best pattern above the floor.
    best, position = np.full(depths, -1), np.zeros(depths + 1, np.int64)
    value, used = np.zeros(depths + 1), np.zeros((depths + 1, items.cost.shape[1]))
    left = np.zeros((depths + 1, sums), np.int64)
    reached, nodes = find_best(branches, most, floor, _NODES, position, value, used, left, best)
    return reached if nodes > 0 else bound, best[best >= 0], work + _NODES - nodes


@kernel
def fill_most(branches: Branches, most: Floats3) -> None:
    """Set `most[d, s, l]` to the highest value of tables from depth d on within l levels of sum s.

    This is the dynamic programme of a knapsack with a single limit. The values are upper bounds,
    because weights are rounded down.
    """
    depths = len(branches.first) - 1
    levels = most.shape[2]
    for number in range(most.shape[1]):
        # 1. Below the last table, nothing has a value.
        for level in range(levels):
            most[depths, number, level] = 0.0
        # 2. A table adds its best branch to the tables below; the branch without item adds 0.
        for depth in range(depths - 1, -1, -1):
            for level in range(levels):
                most[depth, number, level] = most[depth + 1, number, level]
            for index in range(branches.first[depth], branches.first[depth + 1]):
                value, weight = branches.value[index], branches.weight[index, number]
                for level in range(weight, levels):
                    with_it = value + most[depth + 1, number, level - weight]
                    if with_it > most[depth, number, level]:
                        most[depth, number, level] = with_it


@kernel
def find_best(
    branches: Branches,
    most: Floats3,
    level: float,
    nodes: int,
    position: Ints,
    value: Floats,
    used: Floats2,
    left: Ints2,
    best: Ints,
) -> tuple[float, int]:
    """Search depth first for patterns above `level`; return the highest value, and nodes left.

    `best` becomes the items of that pattern, if there is one; else the value is `level`. Invariant:
    the items chosen before a depth fit, and each sum's upper bound on the value of their
    completions is above `level`, the highest value so far. If no nodes are left, the search was cut
    off, and there may be better patterns.
    """
    depths = len(branches.first) - 1
    depth = 0
    position[0] = branches.first[0]
    value[0] = 0.0
    used[0, :] = 0.0
    left[0, :] = most.shape[2] - 1
    while depth >= 0 and nodes > 0:
        # 1. Below the last table, the pattern is complete, and better than those before.
        if depth == depths:
            level = value[depth]
            for at in range(depths):
                best[at] = branches.item[position[at] - 1]
            depth -= 1
            continue
        # 2. Take the next item of this table, or go back up after the last one.
        at = position[depth]
        if at >= branches.first[depth + 1]:
            depth -= 1
            continue
        position[depth] += 1
        nodes -= 1
        # 3. It must fit, and the completions must reach more than the level within each sum.
        fits = True
        for limit in range(used.shape[1]):
            used[depth + 1, limit] = used[depth, limit] + branches.cost[at, limit]
            fits = fits and used[depth + 1, limit] <= 1.0 + _TOLERANCE
        value[depth + 1] = value[depth] + branches.value[at]
        for number in range(left.shape[1]):
            if fits:
                still = left[depth, number] - branches.weight[at, number]
                left[depth + 1, number] = still
                fits = still >= 0 and value[depth + 1] + most[depth + 1, number, still] > level
        # 4. Then go down to the next table.
        if fits:
            depth += 1
            if depth < depths:
                position[depth] = branches.first[depth]
    return level, nodes


def _branches(items: Items, worth: Floats) -> Branches:
    """Return the branches for the items of all tables with `worth` > 0, the largest table first."""
    # 1. Order the tables by their largest item.
    tables = np.flatnonzero((worth > 0) & (np.diff(items.first) > 0))
    size = np.zeros(len(worth))
    np.maximum.at(size, items.table, items.cost.max(axis=1))
    tables = tables[np.argsort(-size[tables], kind="stable")]
    depth = np.full(len(worth), -1)
    depth[tables] = np.arange(len(tables))
    # 2. List the items of these tables, and after them the branches without an item.
    item = np.flatnonzero(depth[items.table] >= 0)
    at = np.concatenate([depth[items.table[item]], np.arange(len(tables))])
    value = np.concatenate([worth[items.table[item]] * items.share[item], np.zeros(len(tables))])
    cost = np.concatenate([items.cost[item], np.zeros((len(tables), items.cost.shape[1]))])
    item = np.concatenate([item, np.full(len(tables), -1)])
    # 3. Sort the branches of each table by value.
    order = np.lexsort((-value, at))
    in_sums = cost @ _sums(items.cost.shape[1]) / (1 + 10 * _TOLERANCE)
    weight = np.floor(in_sums * _LEVELS).astype(np.int64)
    first = np.searchsorted(at[order], np.arange(len(tables) + 1))
    return Branches(first, item[order], value[order], cost[order], weight[order])


def _sums(limits: int) -> Floats:
    """Return the weights of limits in S sums, shape (limits, S): in all proportions of 0, 1, 3."""
    rows = np.array([row for row in product((0, 1, 3), repeat=limits) if 1 in row])
    return np.asarray((rows / rows.sum(axis=1, keepdims=True)).T)
