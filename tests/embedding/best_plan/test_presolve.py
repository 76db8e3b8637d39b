"""What is ruled out before a search, and that no plan has any of it."""

import math

import numpy as np
import pytest
from random_problems import random_problem
from small_problems import devices, option

from planners.embedding.best_plan.bounds.bound import linear_bound
from planners.embedding.best_plan.bounds.presolve import Presolve, presolve_bound, presolved
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.search import best_plan
from planners.embedding.search.outcome import Deadline, Found
from planners.embedding.search.space import search_space


def test_what_must_be_on_every_rank_leaves_no_room_for_all_columns_on_one_host():
    space = search_space(
        [
            option(0, "uniform", *[(6, 0, 1.0)] * 4),
            option(1, "host_columns", *[(3, 0, 1.0)] * 3),
            option(1, "uniform", *[(2, 0, 9.0)] * 4),
        ]
    )
    placed_on = devices(*[(10, 0)] * 4, host_ranks=2)
    found = presolved(candidates(space, placed_on))
    assert found.options.tolist() == [0, 2]
    assert linear_bound(found).milliseconds == pytest.approx(10.0)


def test_an_option_is_ruled_out_by_what_its_shards_take_together():
    space = search_space(
        [option(0, "host_columns", *[(1, 0, 2.0)] * 4), option(0, "device", (1, 0, 5.0))]
    )
    presolve = Presolve(candidates(space, devices(*[(9, 0)] * 4, host_ranks=2)))
    assert presolve.possible(3.9).tolist() == [False, False]
    assert presolve.possible(4.0).sum() == 1


@pytest.mark.parametrize("seed", range(40))
def test_no_plan_is_ruled_out(seed):
    space, placed_on = random_problem(seed)
    found = candidates(space, placed_on)
    if len(found.without_options):
        return
    outcome = best_plan(space, placed_on)
    rating = outcome.rating if isinstance(outcome, Found) else math.inf
    refuted, possible = Presolve(found).refuted(rating, Deadline())
    if not isinstance(outcome, Found):
        return
    assert not refuted
    ruled_out = np.setdiff1d(found.options, found.only(possible).options)
    assert not np.isin(outcome.options, ruled_out).any()
    assert presolve_bound(found, 0.1 * rating, math.inf, Deadline())[0] <= rating * (1 + 1e-9)
