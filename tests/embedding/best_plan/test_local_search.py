"""The local search: its incremental sums are right, and its plans are legal."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from small_problems import KINDS, NO_TABLES, constructed, fit, held_by, problems, varied

from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.insertion import Figure
from planners.embedding.best_plan.linear import linear_bound
from planners.embedding.best_plan.local import plan_of
from planners.embedding.best_plan.rounds import SAMPLE, search, target_of


def has_a_bound(problem):
    return 0 < linear_bound(candidates(*problem))[0] < math.inf


some_problems = problems(kinds=tuple(KINDS)[:5], overfull=False).filter(has_a_bound)
# Rounds rate a sample of the ranks of these.
many_ranks = st.integers(3, 30).map(lambda tables: varied(tables, hosts=SAMPLE // 2))


@settings(max_examples=80)
@given(
    some_problems | many_ranks,
    st.integers(0, 9),
    st.integers(0, 2),
    st.sampled_from([0, 40_000, 600_000]),
)
def test_plans_are_legal_and_the_books_are_right(problem, seed, doublings, work):
    """Time and memory of each rank, and the best rating, are those of the plan summed anew."""
    space, placed_on = problem
    tables, state = constructed(space, placed_on, seed, doublings)
    for hot in (1.0, 0.5):
        best, bound = state.figures[Figure.BEST], state.figures[Figure.BOUND]
        search(tables, state, NO_TABLES, NO_TABLES, work, hot, hot - 0.5)
        assert np.isin(state.plan.options, candidates(space, placed_on).options).all()
        present = state._replace(best=state.plan)
        expected = held_by(space, placed_on, *plan_of(tables, present))
        assert (state.memory == expected[:, 1:4]).all()
        assert state.perf == pytest.approx(expected[:, 0], abs=1e-9 * expected[:, 0].max())
        assert state.figures[Figure.BEST] <= best
        assert state.figures[Figure.TARGET] == target_of(state.figures[Figure.BEST], bound)
    if (state.best.options >= 0).all():
        best = held_by(space, placed_on, *plan_of(tables, state))
        assert fit(best, placed_on)
        assert state.figures[Figure.BEST] == pytest.approx(best[:, 0].max(), rel=1e-9)


@pytest.mark.parametrize("hosts", [4, SAMPLE])
def test_a_search_repairs_memory_and_lowers_the_rating(hosts):
    """The first plan does not fit."""
    tables, state = constructed(*varied(5 * hosts, hosts))
    before = state.perf.max()
    search(tables, state, NO_TABLES, NO_TABLES, 20_000_000, 0.1, 0.0)
    assert state.figures[Figure.BEST] < before
