"""Bounds and presolve: no plan is below a bound, and no best plan uses a removed option."""

import math
from fractions import Fraction

import numpy as np
import pytest
from built_problem import problem
from hypothesis import assume, given, settings, strategies as st
from small_problems import devices, least_rating, option, problems

from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.linear import LinearProgramme, least_possible, linear_bound
from planners.embedding.best_plan.presolve import presolved
from planners.embedding.best_plan.proofs import ladder, proofs
from planners.embedding.best_plan.search import best_plan
from planners.embedding.explain.bound import reasons
from planners.embedding.quality import arrays
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import search_space

RELATIVE = 1e-9


def bounds(space, placed_on):
    """Return the bound of each rung in milliseconds."""
    return [proof.milliseconds for proof in proofs(candidates(space, placed_on))]


@settings(max_examples=60)
@given(problems())
def test_no_plan_is_below_a_rung_and_no_rung_below_the_one_before(drawn):
    best, proven = least_rating(*drawn), bounds(*drawn)
    assert proven == sorted(proven)
    assert all(bound <= best * (1 + RELATIVE) for bound in proven)


@settings(max_examples=60)
@given(problems(overfull=False), st.sampled_from([1.0, 1.3, 4.0]), st.floats(0.1, 1.0))
def test_what_is_known_limits_the_proofs(drawn, worse, low):
    """No proof is below a known bound or above a known plan, or rules out the best plan."""
    best = least_rating(*drawn)
    assume(0 < best < math.inf)
    for proof in proofs(candidates(*drawn), low * best, worse * best):
        assert low * best <= proof.milliseconds <= best * (1 + RELATIVE)
        allowed = set(proof.candidates.options.tolist())
        assert least_rating(*drawn, allowed) == pytest.approx(best, rel=RELATIVE)


@settings(max_examples=30)
@given(problems())
def test_the_relaxed_plan_has_an_option_of_each_table(drawn):
    space, placed_on = drawn
    found = candidates(space, placed_on)
    bound, chosen = linear_bound(found)
    assert chosen.shape == (space.tables,)
    if math.isfinite(bound):
        assert np.isin(chosen, found.options).all()
        assert space.table[chosen].tolist() == list(range(space.tables))
        assert (space.largest_shard[chosen] <= bound * (1 + RELATIVE)).all()
    else:
        assert (chosen == -1).all()


def test_large_problems_have_the_linear_bound(monkeypatch):
    """It is 2.75 ms, with half of each option; the best plan takes 5 ms."""
    cheap, small = [(2, 0, 0.25)] * 4, [(1, 0, 2.5)] * 4
    space = search_space([option(0, "device", *cheap), option(0, "device", *small)])
    drawn = space, devices((3, 0), (3, 0))
    assert bounds(*drawn)[-1] == pytest.approx(least_rating(*drawn), rel=RELATIVE)
    for limit in ("patterns._MOST_TABLES", "packing._MOST_PLACES", "presolve._MOST_SHARDS"):
        monkeypatch.setattr(f"planners.embedding.best_plan.{limit}", -1)
    assert bounds(*drawn) == pytest.approx([2.75, 2.75], rel=RELATIVE)


def test_a_table_without_options_has_an_infinite_bound():
    space = search_space([option(0, "device", (1, 0, 1.0)), option(1, "device", (99, 0, 1.0))])
    proof = ladder(candidates(space, devices((9, 0), (9, 0))))[-1]
    assert proof.milliseconds == math.inf
    assert proof.relaxed.tolist() == [-1, -1]


@pytest.mark.parametrize(("tables", "spread"), [(60, 100), (400, 10)])
def test_rounding_does_not_lift_the_bound(tables, spread):
    """If options differ by a few of 10**11 bytes, the dual prices are 10**9 and more."""
    random = np.random.default_rng(0)
    needed, options, savings = 0, [], []
    for table in range(tables):
        size = int(10**11 / tables * random.uniform(0.5, 1.5))
        saved, perf = int(spread * random.uniform(0.5, 1.5)), float(random.uniform(0.5, 1.5))
        needed += size - saved // 2
        options += [option(table, "device", (size, 0, 0.01))]
        options += [option(table, "device", (size - saved, 0, perf))]
        savings.append((Fraction(perf) - Fraction(0.01), saved))
    least = tables * Fraction(0.01)
    missing = sum(saved // 2 for _, saved in savings)
    for price, saved in sorted(savings, key=lambda saving: saving[0] / saving[1]):
        least += price * min(Fraction(missing, saved), 1)
        missing = max(missing - saved, 0)
    space, placed_on = search_space(options), devices((needed, 0))
    programme = LinearProgramme(candidates(space, placed_on))
    bound, _ = programme.solve(2.0, Deadline())
    assert 1 - 1e-5 < Fraction(bound) / least <= 1


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=60),
    st.lists(st.integers(0, 60) | st.just(math.inf), min_size=60, max_size=60),
    st.integers(0, 100),
)
def test_the_bisection_finds_what_trying_every_step_does(largest, costs, known):
    steps = sorted(set(map(float, largest)))
    cost = dict(zip(steps, sorted(map(float, costs), reverse=True), strict=False))
    best = min(max(step, cost[step]) for step in steps)
    tried = []

    def solve(limit):
        tried.append(limit)
        return cost[limit], np.array([int(limit)])

    shards = np.array(largest, float)
    assert least_possible(shards, solve)[0] == best
    assert len(tried) == len(set(tried)) <= 2 * math.log2(len(steps)) + 3
    at_least = best * known / 100 if math.isfinite(best) else 0.0
    again, options = least_possible(shards, solve, at_least)
    assert again == best
    assert max(options[0], cost[options[0]]) == best


@given(
    st.lists(st.floats(1e-3, 10.0), min_size=1, max_size=4),
    st.integers(1, 40),
    st.booleans(),
)
def test_no_rounding_lifts_a_bound_above_the_rating_of_a_plan(milliseconds, ranks, cut):
    """All ranks with load have the same times, so the rating is the sum on one rank."""
    space = search_space(
        [
            option(table, "uniform", *[(1, 0, each)] * (ranks - cut), *[(0, 0, 0.0)] * cut)
            for table, each in enumerate(milliseconds)
        ]
    )
    placed_on = devices(*[(9, 0)] * ranks)
    rating = 0.0
    for each in milliseconds:
        rating += each if ranks > cut else 0.0
    assert max(bounds(space, placed_on)) <= rating
    assert all(proven <= rating for proven in reasons(space, placed_on).proven.values())


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
    assert linear_bound(found)[0] == pytest.approx(10.0)


@pytest.mark.parametrize("seed", [1, 7, 17])
def test_no_plan_of_a_usual_problem_is_ruled_out(seed):
    space, placed_on = arrays(problem(f"mixture[seed={seed}]", gpus=4))
    plan = best_plan(space, placed_on)
    for proof in proofs(candidates(space, placed_on), 0.0, plan.rating, rungs=("memory", "costs")):
        assert proof.milliseconds <= plan.rating * (1 + RELATIVE)
    assert np.isin(plan.options, proof.candidates.options).all()
