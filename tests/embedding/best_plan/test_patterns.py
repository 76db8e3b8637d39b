"""The bound by patterns (sets of shards on a device): values of patterns, and the bound itself."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st
from small_problems import devices, option

from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.linear import linear_bound
from planners.embedding.best_plan.patterns import pattern_bound
from planners.embedding.best_plan.pricing import Items, most_valuable_pattern
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import search_space


@st.composite
def item_sets(draw):
    """Draw the items of a few tables, the tables' values, and a floor."""
    limits = draw(st.integers(1, 3))
    figure = st.integers(0, 12).map(lambda part: part / 10)
    cost = st.lists(figure, min_size=limits, max_size=limits)
    item = st.tuples(st.sampled_from([0.25, 0.5, 1.0]), cost)
    tables = draw(st.lists(st.lists(item, min_size=1, max_size=3), min_size=1, max_size=4))
    flat = [(table, *each) for table, items in enumerate(tables) for each in items]
    first = np.cumsum([0, *map(len, tables)])
    items = Items(
        np.array([table for table, _, _ in flat]),
        first,
        np.array([share for _, share, _ in flat]),
        np.array([cost for _, _, cost in flat], np.float64),
    )
    worth = np.array(draw(st.lists(figure, min_size=len(tables), max_size=len(tables))))
    return items, worth, draw(figure)


def most_by_trying_all(items, worth):
    choices = [[None, *range(a, b)] for a, b in zip(items.first, items.first[1:], strict=False)]
    most = 0.0
    for choice in product(*choices):
        chosen = [item for item in choice if item is not None]
        if (items.cost[chosen].sum(axis=0) <= 1 + 1e-9).all():
            most = max(most, float(worth[items.table[chosen]] @ items.share[chosen]))
    return most


@given(item_sets())
def test_no_pattern_is_worth_more_than_is_said_and_one_is_found_where_it_is_above_the_floor(drawn):
    items, worth, floor = drawn
    prices = np.full(items.cost.shape[1], 0.1)
    said, pattern, _ = most_valuable_pattern(items, worth, prices, floor)
    most = most_by_trying_all(items, worth)
    assert max(most, floor) <= said * (1 + 1e-9) + 1e-12
    if most > floor * (1 + 1e-9) + 1e-9:
        assert (items.cost[pattern].sum(axis=0) <= 1 + 1e-8).all()
        assert len(set(items.table[pattern])) == len(pattern)
        assert float(worth[items.table[pattern]] @ items.share[pattern]) > floor
    elif most < floor * (1 - 1e-9):
        assert not len(pattern)


@pytest.mark.parametrize(
    ("size", "capacity", "best"),
    [(3, 8, 2.0), (5, 9, math.inf)],  # a device holds two of five tables on four devices, or one
)
def test_a_device_holds_whole_shards(size, capacity, best):
    """If shards could be divided, five tables of 1 ms would take 1.25 ms on four devices."""
    space = search_space([option(table, "device", (size, 0, 1.0)) for table in range(5)])
    found = candidates(space, devices(*[(capacity, 0)] * 4))
    assert linear_bound(found)[0] == pytest.approx(1.25)
    assert pattern_bound(found, 1.25, math.inf, Deadline()) == pytest.approx(best, rel=4e-3)
