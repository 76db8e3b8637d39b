"""The local search: its incremental sums are right, and its plans are legal."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from small_problems import (
    KINDS,
    NO_TABLES,
    constructed,
    devices,
    fit,
    held_by,
    option,
    problems,
    varied,
)

from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.insertion import BEST, BOUND, TARGET
from planners.embedding.best_plan.linear import linear_bound
from planners.embedding.best_plan.local import LocalSearch, local_tables, plan_of
from planners.embedding.best_plan.rounds import SAMPLE, search, target_of
from planners.embedding.search.space import search_space


def has_a_bound(problem):
    return 0 < linear_bound(candidates(*problem))[0] < math.inf


some_problems = problems(kinds=tuple(KINDS)[:5], overfull=False).filter(has_a_bound)
# Rounds rate a sample of the ranks of these.
many_ranks = st.integers(3, 30).map(lambda tables: varied(tables, hosts=SAMPLE // 2))


def improve(tables, state, work, hot=1.0, cold=0.0):
    search(tables, state, NO_TABLES, NO_TABLES, work, hot, cold)


@settings(max_examples=80)
@given(
    some_problems | many_ranks,
    st.integers(0, 9),
    st.integers(0, 2),
    st.sampled_from([0, 40_000, 600_000]),
)
def test_plans_are_legal_and_the_books_are_right(problem, seed, doublings, work):
    space, placed_on = problem
    tables, state = constructed(space, placed_on, seed, doublings)
    for hot in (1.0, 0.5):
        before = state.figures.copy()
        improve(tables, state, work, hot, hot - 0.5)
        assert np.isin(state.chosen, candidates(space, placed_on).options).all()
        present = state._replace(best_chosen=state.chosen, best_ranks=state.ranks)
        expected = held_by(space, placed_on, *plan_of(tables, present))
        assert (state.memory == expected[:, 1:4]).all()
        assert state.perf == pytest.approx(expected[:, 0], abs=1e-9 * expected[:, 0].max())
        assert state.figures[BEST] <= before[BEST]
        assert state.figures[TARGET] == target_of(state.figures[BEST], before[BOUND])
    if (state.best_chosen >= 0).all():
        best = held_by(space, placed_on, *plan_of(tables, state))
        assert fit(best, placed_on)
        assert state.figures[BEST] == pytest.approx(best[:, 0].max(), rel=1e-9)


@settings(max_examples=30)
@given(some_problems)
def test_a_cold_search_takes_nothing_worse(problem):
    tables, state = constructed(*problem)
    improve(tables, state, 300_000, 0.0)
    cost = state.cost.sum()
    state.figures[BEST] = 0.0  # there is no better plan than that
    improve(tables, state, 50_000, 0.0)
    assert state.cost.sum() <= cost * (1 + 1e-9)


@pytest.mark.parametrize("hosts", [4, SAMPLE])
def test_a_search_repairs_memory_and_lowers_the_rating(hosts):
    tables, state = constructed(*varied(5 * hosts, hosts))
    before = state.perf.max()
    improve(tables, state, 20_000_000, 0.1)
    assert state.figures[BEST] < before


def test_a_search_goes_through_all_placements():
    space, placed_on = varied()
    tables, state = constructed(space, placed_on, seed=3)
    seen = set()
    for _ in range(60):
        improve(tables, state, 5_000)
        seen |= set(space.placement[state.chosen].tolist())
    assert seen == {0, 1, 2, 3, 4}


def test_a_search_may_be_continued_from_its_plan():
    problem = varied()
    found = candidates(*problem)
    bound, options = linear_bound(found)
    local = LocalSearch(found, bound, seed=0)
    local.run(local.start_at(options), 500_000, 1.0, lambda: False)
    best = local.best
    later = local.start_from(best.options, best.ranks, doublings=2)
    assert later.perf.max() == pytest.approx(best.rating)
    assert (later.best_chosen == -1).all(), "what must be bettered is no plan of its own"
    assert local.best is best


def test_a_rank_without_memory_attracts_nothing():
    space = search_space([option(0, "host_columns", (0, 4, 19.0), (0, 4, 19.0))])
    placed_on = devices((7, 0), (16, 8), (11, 8), (18, 12), host_ranks=2)
    tables, state = constructed(space, placed_on)
    improve(tables, state, 50_000)
    assert state.figures[BEST] == 19.0
    assert sorted(state.best_ranks.tolist()) == [2, 3]


def test_a_table_is_as_large_as_the_memory_that_it_cannot_do_without():
    tables = [
        option(0, "device", (8, 0, 1.0)),
        option(0, "device", (2, 10, 5.0)),
        option(1, "device", (6, 0, 1.0)),
    ]
    found = candidates(search_space(tables), devices((10, 20), (10, 20)))
    assert local_tables(found).size.tolist() == pytest.approx([2 / 20 + 10 / 40, 6 / 20])
