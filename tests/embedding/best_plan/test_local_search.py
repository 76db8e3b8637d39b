"""The local search: its incremental sums are right, and its plans are legal."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from small_problems import (
    KINDS,
    constructed,
    devices,
    fit,
    held_by,
    option,
    problems,
    varied,
)

from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.linear import linear_bound
from planners.embedding.best_plan.local import regions
from planners.embedding.best_plan.local.exchanges import balance
from planners.embedding.best_plan.local.rounds import improve
from planners.embedding.best_plan.local.state import (
    BEST,
    BOUND,
    TARGET,
    local_tables,
    new_state,
    target_of,
)
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import search_space


def has_a_bound(problem):
    return 0 < linear_bound(candidates(*problem))[0] < math.inf


some_problems = problems(kinds=tuple(KINDS)[:5], overfull=False).filter(has_a_bound)


@settings(max_examples=80)
@given(some_problems, st.integers(0, 9), st.integers(0, 2), st.sampled_from([0, 40_000, 600_000]))
def test_plans_are_legal_and_the_books_are_right(problem, seed, doublings, work):
    space, placed_on = problem
    tables, state = constructed(space, placed_on, seed, doublings)
    for begin in (0.0, 0.5):
        improve(tables, state, work, begin, begin + 0.5, 1.0)
        assert np.isin(state.chosen, candidates(space, placed_on).options).all()
        present = state._replace(best_chosen=state.chosen, best_ranks=state.ranks)
        expected = held_by(space, placed_on, *present.best_plan(tables))
        assert (state.memory == expected[:, 1:4]).all()
        largest = expected[:, 0].max()
        assert state.perf == pytest.approx(expected[:, 0], abs=1e-9 * largest)
    assert (state.best_rating == math.inf) == (state.best_chosen == -1).any()
    if state.best_rating < math.inf:
        best = held_by(space, placed_on, *state.best_plan(tables))
        assert fit(best, placed_on)
        assert state.best_rating == pytest.approx(best[:, 0].max(), rel=1e-9)


@settings(max_examples=50)
@given(some_problems, st.integers(0, 9), st.integers(0, 2), st.booleans())
def test_exchanges_lower_the_cost_of_a_legal_plan(problem, seed, doublings, new_options):
    space, placed_on = problem
    tables, state = constructed(space, placed_on, seed)
    balance(tables, state, doublings, 0, 0.0, new_options)  # only counts the cost
    cost, options = state.cost.sum(), state.chosen.copy()
    changes = balance(tables, state, doublings, 200_000, 0.0, new_options)
    assert state.cost.sum() <= cost * (1 + 1e-9)
    assert changes == 0 or state.cost.sum() < cost
    assert new_options or (state.chosen == options).all()
    present = state._replace(best_chosen=state.chosen, best_ranks=state.ranks)
    expected = held_by(space, placed_on, *present.best_plan(tables))
    assert (state.memory == expected[:, 1:4]).all()
    assert state.perf == pytest.approx(expected[:, 0], abs=1e-9 * expected[:, 0].max())


@settings(max_examples=20)
@given(st.integers(3, 30), st.integers(3, 7), st.integers(0, 9))
def test_regions_improve_a_legal_plan(tables, hosts, seed):
    problem = varied(tables, hosts)
    found = candidates(*problem)
    tables, state = constructed(*problem, seed)
    before, fitted = state.perf.max(), (state.memory <= tables.capacity).all()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(regions, "_RANKS", 4)  # two hosts
        random = np.random.default_rng(seed)
        regions.improve_regions(found, tables, state, 0.01, 4_000_000, random, Deadline())
    present = state._replace(best_chosen=state.chosen, best_ranks=state.ranks)
    expected = held_by(*problem, *present.best_plan(tables))
    assert (state.memory == expected[:, 1:4]).all()
    assert state.perf == pytest.approx(expected[:, 0], abs=1e-9 * expected[:, 0].max())
    if fitted:
        assert fit(expected, problem[1])
        assert state.perf.max() <= before * (1 + 1e-9)


def test_regions_repair_memory_and_lower_the_rating():
    problem = varied(40, 8)
    found = candidates(*problem)
    tables, state = constructed(*problem)
    before = state.perf.max(), np.maximum(state.memory - tables.capacity, 0).sum()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(regions, "_RANKS", 4)
        random = np.random.default_rng(0)
        regions.improve_regions(found, tables, state, 0.01, 20_000_000, random, Deadline())
    after = state.perf.max(), np.maximum(state.memory - tables.capacity, 0).sum()
    assert after < before, (before, after)


@settings(max_examples=30)
@given(some_problems, st.integers(0, 9))
def test_the_best_plan_only_becomes_better_and_the_target_with_it(problem, seed):
    tables, state = constructed(*problem, seed)
    for _ in range(5):
        before = state.figures.copy()
        improve(tables, state, 20_000, 0.0, 0.1, 1.0)
        assert state.figures[BEST] <= before[BEST]
        assert state.figures[TARGET] == target_of(state.best_rating, before[BOUND])


@settings(max_examples=30)
@given(some_problems)
def test_a_cold_search_takes_nothing_worse(problem):
    tables, state = constructed(*problem)
    improve(tables, state, 300_000, 0.0, 1.0, 0.0)
    cost = state.cost.sum()
    state.figures[BEST] = 0.0  # there is no better plan than that
    improve(tables, state, 50_000, 1.0, 1.0, 0.0)
    assert state.cost.sum() <= cost * (1 + 1e-9)


def test_the_target_is_near_the_bound_and_not_far_below_the_best_plan():
    assert target_of(math.inf, 2.0) == pytest.approx(2.3)
    assert target_of(2.2, 2.0) == pytest.approx(2.1)
    assert target_of(7.0, 2.0) == pytest.approx(2.3)
    assert target_of(90.0, 2.0) == pytest.approx(27.0)


def test_a_search_goes_through_all_placements():
    space, placed_on = varied()
    tables, state = constructed(space, placed_on, seed=3)
    seen = set()
    for _ in range(60):
        improve(tables, state, 5_000, 0.0, 0.1, 1.0)
        seen |= set(space.placement[state.chosen].tolist())
    assert seen == {0, 1, 2, 3, 4}


def test_a_search_may_be_continued_from_the_best_plan():
    space, placed_on = varied()
    tables, state = constructed(space, placed_on)
    improve(tables, state, 500_000, 0.0, 1.0, 1.0)
    later = new_state(tables, [9], state.best_rating, state.figures[BOUND], 2)
    later.chosen[:], later.ranks[:] = state.best_chosen, state.best_ranks
    improve(tables, later, 0, 0.0, 1.0, 1.0)
    assert later.perf.max() == pytest.approx(state.best_rating)
    assert (later.best_chosen == -1).all(), "what must be bettered is no plan of its own"


def test_a_rank_without_memory_attracts_nothing():
    space = search_space([option(0, "host_columns", (0, 4, 19.0), (0, 4, 19.0))])
    placed_on = devices((7, 0), (16, 8), (11, 8), (18, 12), host_ranks=2)
    tables, state = constructed(space, placed_on)
    improve(tables, state, 50_000, 0.0, 1.0, 1.0)
    assert state.best_rating == 19.0
    assert sorted(state.best_ranks.tolist()) == [2, 3]


def test_a_table_is_as_large_as_the_memory_that_it_cannot_do_without():
    tables = [
        option(0, "device", (8, 0, 1.0)),
        option(0, "device", (2, 10, 5.0)),
        option(1, "device", (6, 0, 1.0)),
    ]
    found = candidates(search_space(tables), devices((10, 20), (10, 20)))
    assert local_tables(found).size.tolist() == pytest.approx([2 / 20 + 10 / 40, 6 / 20])
