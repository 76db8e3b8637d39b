"""The histogram of a workload's column has every part in one range."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from harness.contract import Column
from shardbench.commands.workload import distribution

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
    """Ranges contain their values, but for those that are equal to a rounded edge."""
    bars = distribution(column, values)
    assert sum(parts for _, _, parts in bars) == len(values)
    if all(low == high for low, high, _ in bars):
        distinct = sorted(set(values))
        assert [(low, parts) for low, _, parts in bars] == [(v, values.count(v)) for v in distinct]
        return
    assert len(bars) < 80
    assert bars[0][0] <= min(values) * (1 + 1e-6)
    assert max(values) <= bars[-1][1] * (1 + 1e-6)
    assert all(first[1] == second[0] for first, second in pairwise(bars))
    for low, high, parts in bars:
        inside = sum(low * (1 + 1e-9) < value < high * (1 - 1e-9) for value in values)
        at_most = sum(low * (1 - 1e-6) <= value <= high * (1 + 1e-6) for value in values)
        assert inside <= parts <= at_most or (low, high, parts) in (bars[0], bars[-1])


@pytest.mark.parametrize(
    ("kind", "values", "edges"),
    [
        ("bytes", [2**n for n in range(10, 40)], [16**n for n in range(2, 11)]),
        ("count", [10**n for n in range(9)], [10**n for n in range(10)]),
        ("number", [n / 10 for n in range(10, 60)], [1, 2, 4, 8]),
    ],
)
def test_ranges_end_at_powers_of_the_largest_base_that_gives_enough(kind, values, edges):
    """Bytes have powers of 16, other numbers of 10, and few ranges powers of 2."""
    bars = distribution(Column("weight", kind=kind, scale="log"), values)
    assert [bars[0][0], *(high for _, high, _ in bars)] == edges
