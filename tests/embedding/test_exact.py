"""The exact search: what it proves is true of all plans, and what it finds is one."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_candidates import fit, least_rating, load, problems

from planners.embedding.search.best_plan.candidates import candidates
from planners.embedding.search.best_plan.exact import ExactSearch
from planners.embedding.search.outcome import Deadline

RELATIVE = 1e-8
PLENTY = 10**8


def searched(space, placed_on, work=PLENTY, least=0.0, rating=math.inf):
    search = ExactSearch(candidates(space, placed_on))
    search.run(least, rating, work, Deadline())
    return search


def held_by(space, placed_on, search):
    """Return what the ranks get by the plan that was found, shape (ranks, 5)."""
    options, ranks = search.plan
    held = np.zeros((placed_on.ranks, 5))
    begin = 0
    for option in options.tolist():
        count = len(space.estimates_of(option))
        held += load(space, placed_on, option, tuple(ranks[begin : begin + count].tolist()))
        begin += count
    assert begin == len(ranks)
    return held


@settings(max_examples=300)
@given(problems(overfull=False))
def test_it_ends_with_the_best_plan_or_the_proof_that_there_is_none(problem):
    best = least_rating(*problem)
    if len(candidates(*problem).without_options):
        return
    search = searched(*problem)
    assert search.proven
    assert math.isclose(search.rating, best, rel_tol=RELATIVE)
    assert search.least <= best
    if math.isfinite(best):
        held = held_by(*problem, search)
        assert fit(held, problem[1])
        assert math.isclose(held[:, 0].max(), search.rating, rel_tol=RELATIVE)


@settings(max_examples=100)
@given(problems(overfull=False), st.integers(1, 300), st.booleans())
def test_a_search_that_is_stopped_proves_nothing_wrong(problem, work, known):
    best = least_rating(*problem)
    if len(candidates(*problem).without_options):
        return
    search = searched(*problem, work, rating=best * 1.5 if known else math.inf)
    assert search.least <= best <= search.rating * (1 + RELATIVE)
