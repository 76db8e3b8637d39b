"""The most valuable pattern of a device: bounds on it, and a search for one."""

import numpy as np

from planners.embedding.best_plan.bounds.patterns import (
    LEVELS,
    Branches,
    Items,
    fill_most,
    fit_prices,
    guess,
    most_valuable,
)
from planners.embedding.search.space import Floats, Ints

# A pattern is looked for above a level that falls in these parts from the bound to what is asked:
# near the bound little is left to try.
_PARTS = (0.05, 0.15, 0.4, 1.0)
_NEAR_THE_BOUND = 0.2  # a guess that is so near needs no search
_NODES = 50_000
_STEPS_OF_A_NODE = 50  # of filling, in the time of one


def dearest_pattern(
    items: Items, worth: Floats, prices: Floats, floor: float
) -> tuple[float, Ints, int]:
    """Return what no pattern is worth more than, one above `floor` or none, and the work done.

    The pattern is a choice of items. Without one the first figure may be `floor` itself. Work is in
    nodes. `prices` of limits are where the bounds start from, and are changed.
    """
    best, used = np.empty(len(prices)), np.empty(len(prices))
    none = np.zeros(0, np.int64)
    most = fit_prices(items, worth, floor, prices, best, used)
    if most < floor:
        return floor, none, 0
    branches = _branches(items, worth, prices)
    depths, sums = len(branches.first) - 1, branches.weight.shape[1]
    highest = branches.reduced[branches.first[:-1]]
    rest = np.append(np.cumsum(highest[::-1])[::-1], 0.0) + 1e-12 * most
    within = np.empty((depths + 1, sums, LEVELS + 1))
    fill_most(branches, within)
    work = branches.weight.size * LEVELS // _STEPS_OF_A_NODE
    most = min(most, float(within[0, :, -1].min()))
    chosen = np.full(depths, -1)
    guessed = guess(branches, within, used, chosen)
    pattern = chosen[chosen >= 0] if guessed > floor else none
    if guessed > floor and guessed > most - _NEAR_THE_BOUND * (most - floor):
        return most, pattern, work
    floor = max(floor, guessed)
    position, value = np.zeros(depths + 1, np.int64), np.zeros(depths + 1)
    taken, left = np.zeros((depths + 1, len(prices))), np.zeros((depths + 1, sums), np.int64)
    for part in _PARTS:
        level = floor if part == 1.0 else most - part * (most - floor)
        reached, nodes = most_valuable(
            branches, within, prices, rest, level, _NODES, position, value, taken, left, chosen
        )
        work += _NODES - nodes
        if reached > level:
            return most, chosen[chosen >= 0], work
        if nodes > 0:
            most = level
    return most, pattern, work


def _branches(items: Items, worth: Floats, prices: Floats) -> Branches:
    """Return the items of tables that are worth something, the largest table first."""
    tables = np.flatnonzero((worth > 0) & (np.diff(items.first) > 0))
    size = np.zeros(len(worth))
    np.maximum.at(size, items.table, items.cost.max(axis=1))
    tables = tables[np.argsort(-size[tables], kind="stable")]
    depth = np.full(len(worth), -1)
    depth[tables] = np.arange(len(tables))
    item = np.flatnonzero(depth[items.table] >= 0)
    at = np.concatenate([depth[items.table[item]], np.arange(len(tables))])
    value = np.concatenate([worth[items.table[item]] * items.share[item], np.zeros(len(tables))])
    cost = np.concatenate([items.cost[item], np.zeros((len(tables), len(prices)))])
    item = np.concatenate([item, np.full(len(tables), -1)])
    reduced = value - cost @ prices
    order = np.lexsort((-reduced, at))
    weight = np.floor(cost @ _sums(prices) * (LEVELS / (1 + 1e-8))).astype(np.int64)
    first = np.searchsorted(at[order], np.arange(len(tables) + 1))
    return Branches(first, item[order], value[order], reduced[order], cost[order], weight[order])


def _sums(prices: Floats) -> Floats:
    """Return weights of limits in single sums: each alone, pairs, and as they are priced last."""
    alone = np.eye(len(prices))
    pairs = [one + other for index, one in enumerate(alone) for other in alone[:index]]
    priced = prices + 1e-3 * prices.max() if prices.any() else np.ones(len(prices))
    weights = np.array([*alone, *pairs, *(priced * (1 + one) for one in alone), priced]).T
    return np.asarray(weights / weights.sum(axis=0))
