"""The local search: its books are right, and its plans are legal."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_candidates import KINDS, devices, fit, load, option, problems, ways

from planners.embedding.best_plan.bounds.bound import linear_bound
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.local.rounds import construct, improve
from planners.embedding.best_plan.local.state import (
    BEST,
    BOUND,
    TARGET,
    local_tables,
    new_state,
    target_of,
)
from planners.embedding.search.space import search_space


def constructed(space, placed_on, seed=0, doublings=0):
    """Return tables and a state with the relaxed plan placed, as a search begins."""
    found = candidates(space, placed_on)
    bound = linear_bound(found)
    tables = local_tables(found)
    state = new_state(tables, [seed], math.inf, bound.milliseconds, doublings)
    construct(tables, state, np.arange(space.tables), bound.options)
    return tables, state


def placed(space, tables, chosen, ranks):
    """Return the option of each table with the ranks of its shards."""
    counts = np.diff(space.first_shard)[chosen]
    return [
        (int(number), tuple(ranks[slot : slot + count].tolist()))
        for number, slot, count in zip(chosen, tables.slot, counts, strict=False)
    ]


def loads(space, placed_on, plan):
    return sum(load(space, placed_on, number, ranks) for number, ranks in plan)


def same(state, other):
    return all(np.array_equal(one, two) for one, two in zip(state, other, strict=True))


def has_a_bound(problem):
    return 0 < linear_bound(candidates(*problem)).milliseconds < math.inf


some_problems = problems(kinds=tuple(KINDS)[:5], overfull=False).filter(has_a_bound)


@settings(max_examples=40)
@given(some_problems, st.integers(0, 9), st.integers(0, 2), st.sampled_from([1, 40_000, 600_000]))
def test_the_books_are_right(problem, seed, doublings, work):
    space, placed_on = problem
    tables, state = constructed(space, placed_on, seed, doublings)
    for begin in (0.0, 0.5):
        improve(tables, state, work, begin, begin + 0.5, 1.0)
        expected = loads(space, placed_on, placed(space, tables, state.chosen, state.ranks))
        assert (state.memory == expected[:, 1:4]).all()
        largest = expected[:, 0].max()
        assert state.perf == pytest.approx(expected[:, 0], abs=1e-9 * largest)


@settings(max_examples=40)
@given(some_problems, st.integers(0, 9), st.sampled_from([1, 40_000, 600_000]))
def test_plans_are_legal(problem, seed, work):
    space, placed_on = problem
    tables, state = constructed(space, placed_on, seed)
    improve(tables, state, work, 0.0, 1.0, 1.0)
    kept = candidates(space, placed_on)
    for table, (number, ranks) in enumerate(placed(space, tables, state.chosen, state.ranks)):
        assert number in kept.of(table)
        assert ranks in ways(space, placed_on, number)


@settings(max_examples=40)
@given(some_problems, st.integers(0, 9), st.sampled_from([0, 40_000, 600_000]))
def test_the_best_plan_is_legal_and_fits_and_rates_what_is_said(problem, seed, work):
    space, placed_on = problem
    tables, state = constructed(space, placed_on, seed)
    improve(tables, state, work, 0.0, 1.0, 1.0)
    assert (state.best_rating == math.inf) == (state.best_chosen == -1).any()
    assume(state.best_rating < math.inf)
    plan = placed(space, tables, state.best_chosen, state.best_ranks)
    assert space.table[state.best_chosen].tolist() == list(range(space.tables))
    assert all(ranks in ways(space, placed_on, number) for number, ranks in plan)
    held = loads(space, placed_on, plan)
    assert fit(held, placed_on)
    assert state.best_rating == pytest.approx(held[:, 0].max(), rel=1e-9)


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


def varied(tables=8):
    """Return tables with an option of each placement, on hosts of two ranks and a fifth rank."""
    random = np.random.default_rng(5)
    options = []
    for table in range(tables):
        for kind, count in (
            ("uniform", 5),
            ("device", 2),
            ("host_rows", 2),
            ("host_columns", 3),
            ("hosts", 6),
        ):
            sizes = random.integers((1, 0), (9, 3), (count, 2)).tolist()
            options.append(
                option(table, kind, *[(*size, random.random() / count) for size in sizes])
            )
    return search_space(options), devices(*[(30, 8)] * 4, (25, 5), host_ranks=2)


def searched(seed, work=700_000):
    tables, state = constructed(*varied(), seed=seed, doublings=1)
    improve(tables, state, work, 0.0, 1.0, 1.0)
    return state


def test_a_search_goes_through_all_placements():
    space, placed_on = varied()
    tables, state = constructed(space, placed_on, seed=3)
    seen = set()
    for _ in range(60):
        improve(tables, state, 5_000, 0.0, 0.1, 1.0)
        seen |= set(space.placement[state.chosen].tolist())
    assert seen == {0, 1, 2, 3, 4}


def test_the_same_seed_gives_the_same_search():
    assert same(searched(1), searched(1))
    assert not same(searched(1), searched(2))


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
