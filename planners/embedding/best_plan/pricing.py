"""The most valuable pattern of a device: upper bounds on its value, and a compiled search for it.

A pattern is a set of items, at most one per table, within the limits of a device (time, memory).
Finding one is a multiple-choice knapsack problem with several limits, and the pricing problem of
the configuration programme.
"""

from typing import NamedTuple

import numpy as np

from planners.embedding.best_plan.candidates import SAFETY
from planners.embedding.search.compiling import kernel, subroutine
from planners.embedding.search.space import Floats, Floats2, Floats3, Ints, Ints2

_LEVELS = 256  # levels of a weight in the dynamic programme; more cost more time than they save
_STEPS = 150  # most subgradient steps; usually far fewer suffice
_NODES = 150_000  # most nodes of a search, some 10 ms


class Items(NamedTuple):
    """The items of all tables, sorted by table: fractions of a table that a device can contain."""

    first: Ints  # the index of each table's first item, shape (T + 1,)
    share: Floats  # the fraction of its table, shape (I,)
    cost: Floats2  # part of each limit (time, then kinds of memory) that it uses, shape (I, L)

    @property
    def table(self) -> Ints:
        """The table of each item, shape (I,)."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))


class Branches(NamedTuple):
    """The items as branches of the search, grouped by table in the order of branching.

    The branches of the table at depth d begin at first[d], the highest reduced value (the value
    minus the price of its cost) first; one of them takes no item.
    """

    first: Ints  # shape (D + 1,)
    item: Ints  # item number, or -1 for no item, shape (B,)
    value: Floats
    cost: Floats2  # shape (B, L)
    weight: Ints2  # the cost in levels, rounded down, shape (B, L)


def most_valuable_pattern(
    items: Items, worth: Floats, prices: Floats, floor: float
) -> tuple[float, Ints, int]:
    """Return an upper bound on any pattern's value, a pattern above `floor` if found, and the work.

    An item's value is its share times `worth` of its table. The pattern is an array of item
    numbers, empty if none was found; the bound may then be `floor`. The work is in nodes. `prices`,
    one per limit, are the multipliers to start from, and are updated to better ones.
    """
    none = np.zeros(0, np.int64)
    # 1. The Lagrangian bound; often it is below the floor already.
    most = fit_prices(items, worth, floor, prices, prices.copy(), prices.copy())
    if most < floor:
        return floor, none, 0
    # 2. The bounds of single limits, from every depth on.
    branches = _branches(items, worth, prices)
    depths, limits = len(branches.first) - 1, len(prices)
    within = np.empty((depths + 1, limits, _LEVELS + 1))
    fill_most(branches, within)
    work = branches.weight.size * _LEVELS // 50  # so many steps take as long as a node
    most = min(most, float(within[0, :, -1].min()))
    if most < floor:
        return floor, none, work
    # 3. A search for the best pattern above the floor.
    first = branches.first[:-1]
    highest = branches.value[first] - branches.cost[first] @ prices
    rest = np.append(np.cumsum(highest[::-1])[::-1], 0.0) + 1e-12 * most
    best, position = np.full(depths, -1), np.zeros(depths + 1, np.int64)
    value, used = np.zeros(depths + 1), np.zeros((depths + 1, limits))
    left = np.zeros((depths + 1, limits), np.int64)
    reached, nodes = find_best(
        branches, within, prices, rest, floor, _NODES, position, value, used, left, best
    )
    return reached if nodes > 0 else most, best[best >= 0], work + _NODES - nodes


@subroutine
def _set(target: Floats, source: Floats) -> None:
    for index in range(len(target)):
        target[index] = source[index]


@subroutine
def _priced(items: Items, worth: Floats, prices: Floats, used: Floats) -> float:
    """Return the Lagrangian bound on a pattern's value; set `used` to its items' use of limits."""
    most = 0.0
    used[:] = 0.0
    for limit in range(len(prices)):
        most += prices[limit]
    for table in range(len(worth)):
        best, chosen = 0.0, -1
        for item in range(items.first[table], items.first[table + 1]):
            left = worth[table] * items.share[item]
            for limit in range(len(prices)):
                left -= prices[limit] * items.cost[item, limit]
            if left > best:
                best, chosen = left, item
        most += best
        if chosen >= 0:
            for limit in range(len(prices)):
                used[limit] += items.cost[chosen, limit]
    return most


@kernel
def fit_prices(
    items: Items, worth: Floats, level: float, prices: Floats, best: Floats, used: Floats
) -> float:
    """Tighten the bound on a pattern's value by Polyak subgradient steps; update `prices`.

    The unused part of the limits is a subgradient of the bound. A Polyak step has the length
    (bound - level) / norm^2, here times a factor. Invariant: any prices >= 0 give a valid bound.
    """
    length, without = 1.0, 0
    most = _priced(items, worth, prices, used)
    least = most
    _set(best, prices)
    for _ in range(_STEPS):
        # 1. Stop if the bound is low enough, or if no price can lower it.
        norm = 0.0
        for limit in range(len(prices)):
            slope = 1.0 - used[limit]
            if prices[limit] > 0.0 or slope < 0.0:
                norm += slope * slope
        if norm < 1e-12 or least < level:
            break
        # 2. Take a step.
        step = length * (most - level) / norm
        for limit in range(len(prices)):
            prices[limit] = max(prices[limit] - step * (1.0 - used[limit]), 0.0)
        most = _priced(items, worth, prices, used)
        # 3. Keep the best prices; after 8 steps without progress, go back to them and halve steps.
        without += 1
        if most < least:
            if most < least * (1 - 1e-3):
                without = 0
            least = most
            _set(best, prices)
        if without >= 8:
            without = 0
            length *= 0.5
            _set(prices, best)
            most = _priced(items, worth, prices, used)
    _set(prices, best)
    return least


@kernel
def fill_most(branches: Branches, most: Floats3) -> None:
    """Set `most[d, i, l]` to the highest value of tables from depth d on in l levels of limit i.

    This is the dynamic programme of a knapsack with a single limit. The values are upper bounds,
    because the other limits are left out and weights are rounded down.
    """
    depths = len(branches.first) - 1
    levels = most.shape[2]
    for limit in range(most.shape[1]):
        # 1. Below the last table, nothing has a value.
        for level in range(levels):
            most[depths, limit, level] = 0.0
        # 2. A table adds its best branch to the tables below; the branch without item adds 0.
        for depth in range(depths - 1, -1, -1):
            for level in range(levels):
                most[depth, limit, level] = most[depth + 1, limit, level]
            for index in range(branches.first[depth], branches.first[depth + 1]):
                value, weight = branches.value[index], branches.weight[index, limit]
                for level in range(weight, levels):
                    with_it = value + most[depth + 1, limit, level - weight]
                    if with_it > most[depth, limit, level]:
                        most[depth, limit, level] = with_it


@kernel
def find_best(
    branches: Branches,
    most: Floats3,
    prices: Floats,
    rest: Floats,
    level: float,
    nodes: int,
    position: Ints,
    value: Floats,
    used: Floats2,
    left: Ints2,
    best: Ints,
) -> tuple[float, int]:
    """Search depth first for patterns above `level`; return the highest value, and nodes left.

    `best` becomes the items of that pattern, if there is one; else the value is `level`. `rest[d]`
    is the sum of the highest reduced values from depth d on. Invariant: the items chosen before a
    depth fit, and all upper bounds on the value of their completions (the Lagrangian one, and that
    of each limit in `most`) are above `level`, the highest value so far. If no nodes are left, the
    search was cut off, and there may be better patterns.
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
        # 3. Bound the completions by the prices of what is left of all limits, and by each limit.
        worth = value[depth] + branches.value[at]
        reached = worth + rest[depth + 1]
        fits = True
        for limit in range(len(prices)):
            more = used[depth, limit] + branches.cost[at, limit]
            still = left[depth, limit] - branches.weight[at, limit]
            used[depth + 1, limit], left[depth + 1, limit] = more, still
            reached += prices[limit] * (1.0 - more)
            fits = fits and more <= 1.0 + SAFETY and still >= 0
            fits = fits and worth + most[depth + 1, limit, still] > level
        if reached <= level:  # items are sorted by reduced value: the next ones reach no more
            depth -= 1
            continue
        # 4. If any completion may be above the level, go down to the next table.
        if fits:
            value[depth + 1] = worth
            depth += 1
            if depth < depths:
                position[depth] = branches.first[depth]
    return level, nodes


def _branches(items: Items, worth: Floats, prices: Floats) -> Branches:
    """Return the branches for the items of all tables with `worth` > 0, the largest table first."""
    # 1. Order the tables by their largest item.
    tables, table = np.flatnonzero((worth > 0) & (np.diff(items.first) > 0)), items.table
    size = np.zeros(len(worth))
    np.maximum.at(size, table, items.cost.max(axis=1))
    tables = tables[np.argsort(-size[tables], kind="stable")]
    depth = np.full(len(worth), -1)
    depth[tables] = np.arange(len(tables))
    # 2. List the items of these tables, and after them the branches without an item.
    item = np.flatnonzero(depth[table] >= 0)
    at = np.concatenate([depth[table[item]], np.arange(len(tables))])
    value = np.concatenate([worth[table[item]] * items.share[item], np.zeros(len(tables))])
    cost = np.concatenate([items.cost[item], np.zeros((len(tables), len(prices)))])
    item = np.concatenate([item, np.full(len(tables), -1)])
    # 3. Sort the branches of each table by their reduced value.
    reduced = value - cost @ prices
    order = np.lexsort((-reduced, at))
    weight = np.floor(cost * (_LEVELS / (1 + 10 * SAFETY))).astype(np.int64)
    first = np.searchsorted(at[order], np.arange(len(tables) + 1))
    return Branches(first, item[order], value[order], cost[order], weight[order])
