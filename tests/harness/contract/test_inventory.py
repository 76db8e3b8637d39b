"""A workload's inventory: its ranges contain every part once, and its rows can be sorted."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from harness.contract.workloads import Column, Inventory, distribution
from harness.model.errors import UsageError


def held(column: Column, values: list[float], **changes) -> Inventory:
    fields = {
        "title": "Crates",
        "part": "crate",
        "columns": (Column("name"), column),
        "rows": tuple((f"crate {index}", value) for index, value in enumerate(values)),
        "summary": "all of them",
        "sort": column.name,
    }
    return Inventory(**{**fields, **changes})


columns = st.sampled_from(
    [
        Column("weight", kind=kind, scale=scale)
        for kind in ("count", "number", "bytes")
        for scale in ("log", "linear")
    ]
)
numbers = st.one_of(
    st.integers(0, 10**15), st.integers(1, 300), st.floats(1e-3, 1e12), st.sampled_from([0, 1e-6])
)


@given(columns, st.lists(numbers, min_size=1, max_size=60))
def test_every_part_is_in_one_range_and_the_ranges_touch(column, values):
    bars = distribution(held(column, values), column)
    assert sum(bar.parts for bar in bars) == len(values)
    distinct = sorted(set(values))
    if all(bar.low == bar.high for bar in bars):
        assert [(bar.low, bar.parts) for bar in bars] == [
            (value, values.count(value)) for value in distinct
        ]
        return
    assert len(distinct) > 3
    assert bars[0].low <= distinct[0] * (1 + 1e-6)
    assert distinct[-1] <= bars[-1].high * (1 + 1e-6)
    assert len(bars) < 60
    assert all(one.high == other.low for one, other in pairwise(bars))
    for bar in bars:
        inside = sum(bar.low <= value < bar.high for value in values)
        # Edges of powers are rounded: a value on one may fall to either side.
        on_edge = sum(
            math.isclose(value, edge, rel_tol=1e-6)
            for value in values
            for edge in (bar.low, bar.high)
        )
        assert abs(bar.parts - inside) <= on_edge or bar in (bars[0], bars[-1])


def test_rows_come_in_the_order_of_a_column():
    column = Column("weight", kind="number")
    inventory = held(column, [3, 9, 1])
    assert [row[1] for row in inventory.largest("weight", 2)] == [9, 3]
    assert [row[0] for row in inventory.largest("name", 2)] == ["crate 0", "crate 1"]
    with pytest.raises(UsageError, match="did you mean weight"):
        inventory.largest("wieght", 2)
