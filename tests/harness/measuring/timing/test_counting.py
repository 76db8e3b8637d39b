"""The counted work of a call."""

import math

import pytest

from harness.contract import Prepared
from harness.measuring.timing.sampling import count_work


@pytest.mark.parametrize("items", [100, 1000])
def test_python_and_built_in_calls_are_counted(items: int):
    """The count is exact, and the same each time."""
    work = count_work(Prepared(lambda: sum(math.isqrt(abs(item)) for item in range(items))))
    # run, sum, the generator that is entered once for each item and at its end, abs and isqrt
    assert work.python_calls == 2 + (items + 1) + 2 * items
    assert work.spread == 0


def test_a_count_that_differs_says_by_how_much():
    """The spread is the difference between two counts."""
    calls = iter([10, 13])
    assert count_work(Prepared(lambda: [abs(n) for n in range(next(calls))])).spread == 3


def test_built_in_functions_have_their_share():
    """Work inside built-in functions is not counted, but its share of the time is known."""
    mostly = count_work(Prepared(lambda: sorted(range(300_000), key=None)))
    hardly = count_work(Prepared(lambda: [None for _ in range(300_000)]))
    assert mostly.built_in_share > 0.8
    assert hardly.built_in_share < 0.2
