"""Candidates for the best plan: dropping the other options makes no best plan worse."""

import numpy as np
import pytest
from hypothesis import given, settings
from small_problems import devices, least_rating, option, problems

from planners.embedding.best_plan.candidates import candidates
from planners.embedding.search.space import search_space


@given(problems())
def test_a_best_plan_is_made_of_candidates(problem):
    space, placed_on = problem
    kept = set(candidates(space, placed_on).options.tolist())
    assert least_rating(space, placed_on, kept) == least_rating(space, placed_on)


@settings(max_examples=30)
@given(problems())
def test_candidates_are_listed_table_by_table(problem):
    space, placed_on = problem
    found = candidates(space, placed_on)
    counts = np.diff(found.first)
    assert counts.sum() == len(found.options)
    assert (space.table[found.options] == np.repeat(np.arange(space.tables), counts)).all()
    assert found.without_options.tolist() == np.flatnonzero(counts == 0).tolist()


SMALL = (1, 0, 1.0)


@pytest.mark.parametrize("large", [(10, 0, 0.0), (0, 10, 0.0)])
def test_an_option_with_a_shard_that_no_device_holds_is_dropped(large):
    space = search_space([option(0, "device", SMALL, large), option(1, "device", SMALL)])
    found = candidates(space, devices((9, 9), (9, 9)))
    assert found.without_options.tolist() == [0]
    assert found.options.tolist() == [1]


def test_of_two_equal_options_the_freer_one_stays():
    space = search_space([option(0, kind, SMALL, SMALL) for kind in ("host_columns", "device")])
    assert candidates(space, devices((9, 9), (9, 9))).options.tolist() == [1]
