"""The single-device bound is stronger than the bound by hosts, and never above a plan's rating."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from random_problems import random_problem
from small_problems import devices, least_rating, option, problems

from planners.embedding.best_plan.bounds.bound import integer_bound, linear_bound
from planners.embedding.best_plan.bounds.single_devices import (
    DeviceProgramme,
    single_device_bound,
)
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.search import best_plan
from planners.embedding.search.outcome import Deadline, Found
from planners.embedding.search.space import search_space

RELATIVE = 1e-9


def proven(problem, at_least, at_most):
    return single_device_bound(candidates(*problem), at_least, at_most, Deadline()).milliseconds


@settings(max_examples=80)
@given(problems(overfull=False), st.sampled_from([1.0, 1.3, 4.0]), st.floats(0.1, 1.0))
def test_no_plan_is_below_the_bound(problem, worse, low):
    best = least_rating(*problem)
    if math.isfinite(best) and best > 0:
        assert low * best <= proven(problem, low * best, worse * best) <= best * (1 + RELATIVE)


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_every_row_holds_for_a_plan_with_many_tables(seed):
    space, placed_on = random_problem(seed, tables=(10, 30))
    found = best_plan(space, placed_on)
    if isinstance(found, Found):
        whole = candidates(space, placed_on)
        alone = whole.only(np.isin(whole.options, found.options))
        for plans in (whole, alone):
            assert not DeviceProgramme(plans, found.rating).refuted(Deadline())
        least = DeviceProgramme(alone, found.rating).least(Deadline()).milliseconds
        assert least <= found.rating * (1 + RELATIVE)


def scarce_with_rows(cheap):
    """Return a row-wise table with 4 of 10 bytes per device, and a table with an 8-byte shard."""
    tables = [
        option(0, "host_rows", (4, 0, 1.0), (4, 0, 1.0)),
        option(1, "device", (8, 0, cheap)),
        option(1, "device", (2, 0, 5.0)),
    ]
    return search_space(tables), devices((10, 0), (10, 0), host_ranks=2)


def test_a_large_shard_does_not_lie_across_devices():
    problem = scarce_with_rows(cheap=1.0)
    assert least_rating(*problem) == 6.0
    assert integer_bound(candidates(*problem)).milliseconds == pytest.approx(1.5, rel=1e-4)
    found = single_device_bound(candidates(*problem), 1.5, 6.0, Deadline())
    assert found.milliseconds > 4.0
    assert found.options.tolist() == [0, 2], "options are whole, and hosts have room for them"
    assert single_device_bound(candidates(*problem), 1.5, 6.0, Deadline(-1.0)).milliseconds == 1.5


def test_little_memory_is_filled_in_the_time_that_a_giant_leaves():
    """Each giant leaves 1 ms for one other shard; the third device has memory for 5 of the 7."""
    giants = [option(table, "device", (2, 0, 9.0)) for table in range(2)]
    others = [option(table, "device", (2, 0, 1.0)) for table in range(2, 9)]
    problem = search_space(giants + others), devices(*[(10, 0)] * 3)
    best = least_rating(*problem)
    assert best == 10.0
    found = candidates(*problem)
    assert linear_bound(found).milliseconds == pytest.approx(9.0)
    assert not DeviceProgramme(found, best).refuted(Deadline())
    assert DeviceProgramme(found, 9.5).refuted(Deadline())
