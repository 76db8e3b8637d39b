"""The most valuable pattern of a device, compiled: what it holds of each table within limits."""

from typing import NamedTuple

from planners.embedding.search.compiling import kernel, subroutine
from planners.embedding.search.space import Floats, Floats2, Floats3, Ints, Ints2

_STEPS = 150
LEVELS = 256
_TOLERANCE = 1e-9  # what a device may hold more than it can, in parts, for rounding


class Items(NamedTuple):
    """What a device can hold of tables, of each at most one item; those of table t are first[t] on.

    A cost is a part of the device's limit: time, then kinds of memory.
    """

    table: Ints  # shape (I,)
    first: Ints  # shape (T + 1,)
    share: Floats  # of the table, shape (I,)
    cost: Floats2  # shape (I, L)


@subroutine
def _copy(target: Floats, source: Floats) -> None:
    for index in range(len(target)):
        target[index] = source[index]


@subroutine
def _priced(items: Items, worth: Floats, prices: Floats, used: Floats) -> float:
    """Return what a pattern is worth at most at these prices of limits, and what it uses there."""
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
    items: Items,
    worth: Floats,
    level: float,
    prices: Floats,
    best: Floats,
    used: Floats,
) -> float:
    """Lower what a pattern is worth at most, by other prices; return it, and write the prices.

    It ends where that is below `level`. These are Polyak's steps, towards `level`.
    """
    most = _priced(items, worth, prices, used)
    least = most
    _copy(best, prices)
    length = 1.0
    without = 0
    for _ in range(_STEPS):
        norm = 0.0
        for limit in range(len(prices)):
            slope = 1.0 - used[limit]
            if prices[limit] > 0.0 or slope < 0.0:
                norm += slope * slope
        if norm < 1e-12 or least < level:
            break
        step = length * (most - level) / norm
        for limit in range(len(prices)):
            prices[limit] = max(prices[limit] - step * (1.0 - used[limit]), 0.0)
        most = _priced(items, worth, prices, used)
        without += 1
        if most < least:
            if most < least * (1 - 1e-3):
                without = 0
            least = most
            _copy(best, prices)
        if without >= 8:
            without = 0
            length *= 0.5
            _copy(prices, best)
            most = _priced(items, worth, prices, used)
    _copy(prices, best)
    return least


class Branches(NamedTuple):
    """The items again, by tables in the order in which they are branched on.

    Those of the table at depth d are first[d] on, the one of the highest reduced value first, among
    them one that is nothing. Weights are costs in whole steps of single sums of limits, rounded
    down; LEVELS is the limit.
    """

    first: Ints  # shape (D + 1,)
    item: Ints  # -1 is nothing, shape (B,)
    value: Floats
    reduced: Floats  # the value less the price of what it takes
    cost: Floats2  # shape (B, L)
    weight: Ints2  # shape (B, S)


@kernel
def fill_most(branches: Branches, most: Floats3) -> None:
    """Fill in what tables from a depth on are worth at most within a sum.

    `most` has the shape (D + 1, S, LEVELS + 1).
    """
    depths = len(branches.first) - 1
    sums, levels = most.shape[1], most.shape[2]
    for number in range(sums):
        for level in range(levels):
            most[depths, number, level] = 0.0
    for depth in range(depths - 1, -1, -1):
        for number in range(sums):
            for level in range(levels):
                most[depth, number, level] = most[depth + 1, number, level]
            for index in range(branches.first[depth], branches.first[depth + 1]):
                value, weight = branches.value[index], branches.weight[index, number]
                for level in range(weight, levels):
                    with_it = value + most[depth + 1, number, level - weight]
                    if with_it > most[depth, number, level]:
                        most[depth, number, level] = with_it


@kernel
def guess(branches: Branches, most: Floats3, used: Floats, chosen: Ints) -> float:
    """Write a pattern that fits and is likely to be worth much; return its value.

    Of each table it takes the item that leaves most to be had within the last of the sums.
    """
    value = 0.0
    number = most.shape[1] - 1
    left = most.shape[2] - 1
    used[:] = 0.0
    for depth in range(len(chosen)):
        best, taken = -1.0, -1
        for index in range(branches.first[depth], branches.first[depth + 1]):
            still = left - branches.weight[index, number]
            if still < 0:
                continue
            fits = True
            for limit in range(len(used)):
                fits = fits and used[limit] + branches.cost[index, limit] <= 1.0 + _TOLERANCE
            worth = branches.value[index] + most[depth + 1, number, still]
            if fits and worth > best:
                best, taken = worth, index
        for limit in range(len(used)):
            used[limit] += branches.cost[taken, limit]
        left -= branches.weight[taken, number]
        value += branches.value[taken]
        chosen[depth] = branches.item[taken]
    return value


@kernel
def most_valuable(
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
    chosen: Ints,
) -> tuple[float, int]:
    """Find a pattern that is worth more than `level`; return its value, or `level`, and nodes left.

    `rest` is the sum of the highest reduced values from a depth on. Where no nodes are left the
    search was cut off.
    """
    depths = len(branches.first) - 1
    limits, sums = len(prices), most.shape[1]
    depth = 0
    position[0] = branches.first[0]
    value[0] = 0.0
    for limit in range(limits):
        used[0, limit] = 0.0
    for number in range(sums):
        left[0, number] = most.shape[2] - 1
    while depth >= 0 and nodes > 0:
        if depth == depths:
            if value[depth] > level:
                for at in range(depths):
                    chosen[at] = branches.item[position[at] - 1]
                return value[depth], nodes
            depth -= 1
            continue
        at = position[depth]
        if at >= branches.first[depth + 1]:
            depth -= 1
            continue
        position[depth] += 1
        nodes -= 1
        worth = value[depth] + branches.value[at]
        reached = worth + rest[depth + 1]
        fits = True
        for limit in range(limits):
            more = used[depth, limit] + branches.cost[at, limit]
            used[depth + 1, limit] = more
            fits = fits and more <= 1.0 + _TOLERANCE
            reached += prices[limit] * (1.0 - more)
        if reached <= level:  # and the items that follow are worth no more
            depth -= 1
            continue
        for number in range(sums):
            if not fits:
                break
            still = left[depth, number] - branches.weight[at, number]
            fits = still >= 0 and worth + most[depth + 1, number, still] > level
            left[depth + 1, number] = still
        if fits:
            value[depth + 1] = worth
            depth += 1
            if depth < depths:
                position[depth] = branches.first[depth]
    return level, nodes
