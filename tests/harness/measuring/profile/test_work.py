"""The counted work of a call."""

import copy
import math

import pytest

from harness.contract import Prepared
from harness.measuring.timing.sampling import count_work


def planner(items: int):
    def run() -> int:
        return sum(math.isqrt(abs(item)) for item in range(items))

    return Prepared(run)


def test_it_is_the_same_each_time():
    works = [count_work(planner(1000)) for _ in range(3)]
    assert len({work.python_calls for work in works}) == 1
    assert works[0].spread == 0


@pytest.mark.parametrize("items", [100, 1000])
def test_python_and_built_in_calls_are_counted(items: int):
    # run, sum, the generator that is entered once for each item and at its end, abs and isqrt
    assert count_work(planner(items)).python_calls == 2 + (items + 1) + 2 * items


def test_one_per_cent_more_is_seen():
    tables = [{"name": "a", "rows": [1, 2, 3]}] * 100
    before = count_work(Prepared(lambda: [copy.deepcopy(each) for each in tables]))
    after = count_work(Prepared(lambda: [copy.deepcopy(each) for each in [*tables, tables[0]]]))
    assert after.python_calls / before.python_calls == pytest.approx(1.01, abs=0.001)


def test_a_count_that_differs_says_by_how_much():
    calls = iter([10, 13, 10])
    work = count_work(Prepared(lambda: [abs(each) for each in range(next(calls, 10))]))
    assert work.spread == 3


def test_built_in_functions_have_their_share():
    mostly = count_work(Prepared(lambda: sorted(range(300_000), key=None)))
    hardly = count_work(Prepared(lambda: [None for _ in range(300_000)]))
    assert mostly.built_in_share > 0.8
    assert hardly.built_in_share < 0.2
