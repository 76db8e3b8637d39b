"""The ladder of proofs: no plan is below a bound, and no best plan has a removed option."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from small_problems import devices, least_rating, option, problems

from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.linear import LinearProgramme
from planners.embedding.best_plan.proofs import proofs
from planners.embedding.explain.bound import reasons
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import search_space

RELATIVE = 1e-9


def bounds(space, placed_on):
    """Return the bound of each rung in milliseconds, by the rung's name."""
    return {proof.rung: proof.milliseconds for proof in proofs(candidates(space, placed_on))}


SMALL, BIG, SLOW, FREE = (1, 0, 1.0), (3, 0, 1.0), (1, 0, 2.0), (10, 0, 0.0)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ([("host_columns", SMALL, SMALL), ("device", SMALL, SMALL)], [1]),  # placed more freely
        ([("device", SMALL, BIG), ("device", SMALL, SMALL)], [1]),
        ([("device", SMALL, BIG), ("device", BIG, SMALL)], [0, 1]),
        ([("device", SMALL, SLOW), ("device", SLOW, SMALL)], [0, 1]),
        ([("device", BIG), ("device", SMALL, SMALL)], [0, 1]),
        ([("device", SMALL, FREE), ("device", BIG, SLOW)], [1]),  # no rank holds it
        ([("uniform", SMALL, BIG), ("uniform", BIG, SMALL)], [1]),  # the second rank does not
        ([("uniform", SMALL), ("host_rows", SMALL), ("nowhere", SMALL)], []),
    ],
)
def test_options_that_fit_nowhere_or_that_another_may_replace_are_no_candidates(options, kept):
    """Another option may replace one if it is no worse shard by shard, wherever that may be."""
    space = search_space([option(0, *each) for each in options])
    assert candidates(space, devices((9, 9), (2, 9))).options.tolist() == kept


@settings(max_examples=60)
@given(problems())
def test_no_plan_is_below_a_rung_and_no_rung_below_the_one_before(drawn):
    """A table that fits nowhere has an infinite bound."""
    best, proven = least_rating(*drawn), [*bounds(*drawn).values()]
    assert proven == sorted(proven)
    assert all(bound <= best * (1 + RELATIVE) for bound in proven)
    if len(candidates(*drawn).without_options):
        assert proven == [math.inf]


@settings(max_examples=25)
@given(problems(overfull=False), st.sampled_from([1.0, 1.3, 4.0]), st.floats(0.1, 1.0))
def test_what_is_known_limits_the_proofs(drawn, worse, low):
    """No proof is below a known bound or above a known plan, or rules out the best plan."""
    best = least_rating(*drawn)
    assume(0 < best < math.inf)
    for proof in proofs(candidates(*drawn), low * best, worse * best):
        assert low * best <= proof.milliseconds <= best * (1 + RELATIVE)
        allowed = set(proof.candidates.options.tolist())
        assert least_rating(*drawn, allowed) == pytest.approx(best, rel=RELATIVE)


@pytest.mark.parametrize(
    ("options", "storage", "expected"),
    [
        # What is on every rank leaves no room for all columns of the other table on one host.
        (
            [
                option(0, "uniform", *[(6, 0, 1.0)] * 4),
                option(1, "host_columns", *[(3, 0, 1.0)] * 3),
                option(1, "uniform", *[(2, 0, 9.0)] * 4),
            ],
            [10, 10, 10, 10],
            {"memory": 10.0},
        ),
        # Five or nine tables on four devices, each with room for two of them.
        (
            [option(table, "device", (3, 0, 1.0)) for table in range(5)],
            [8, 8, 8, 8],
            {"memory": 1.25, "patterns": 2.0},
        ),
        (
            [option(table, "device", (3, 0, 1.0)) for table in range(9)],
            [8, 8, 8, 8],
            {"memory": 2.25, "patterns": math.inf},
        ),
        # Five tables on four devices, each with room for one of them.
        (
            [option(table, "device", (5, 0, 1.0)) for table in range(5)],
            [9, 9, 9, 9],
            {"memory": 1.25, "costs": math.inf},
        ),
    ],
)
def test_a_rung_proves_what_the_one_before_does_not(options, storage, expected):
    """Each bound is as high as its rung allows."""
    proven = bounds(search_space(options), devices(*[(hbm, 0) for hbm in storage], host_ranks=2))
    assert {rung: proven[rung] for rung in expected} == pytest.approx(expected, rel=4e-3)


def test_what_giants_leave_of_their_ranks_limits_the_others():
    """A sum over ranks has room for shards that no rank has room for next to a giant."""
    giants = [option(table, "device", (8, 0, 1.0)) for table in range(2)]
    others = [option(table, "device", (1, 0, 1.0)) for table in range(2, 14)]
    proven = bounds(search_space(giants + others), devices(*[(9, 0)] * 4))
    assert proven["memory"] == pytest.approx(3.5)
    assert 4.5 < proven["costs"] <= 5.0


@pytest.mark.parametrize("of_fitting", ["presolve._MOST_SHARDS", "presolve._MOST_PAIRS"])
def test_large_problems_have_the_linear_bound(monkeypatch, of_fitting):
    """It is 2.75 ms, with half of each option; the best plan takes 5 ms."""
    cheap, small = [(2, 0, 0.25)] * 4, [(1, 0, 2.5)] * 4
    space = search_space([option(0, "device", *cheap), option(0, "device", *small)])
    drawn = space, devices((3, 0), (3, 0))
    assert bounds(*drawn)["ranks"] == pytest.approx(5.0, rel=RELATIVE)
    for limit in ("patterns._MOST_TABLES", "packing._MOST_PLACES", of_fitting):
        monkeypatch.setattr(f"planners.embedding.best_plan.{limit}", -1)
    assert bounds(*drawn) == pytest.approx({"memory": 2.75, "costs": 2.75}, rel=RELATIVE)


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


@settings(max_examples=25)
@given(st.lists(st.floats(1e-3, 10.0), min_size=1, max_size=4), st.integers(1, 40), st.booleans())
def test_no_rounding_lifts_a_bound_above_the_rating_of_a_plan(milliseconds, ranks, cut):
    """All ranks with load have the same times, so the rating is the sum on one rank."""
    space = search_space(
        [
            option(table, "uniform", *[(1, 0, ms)] * (ranks - cut), *[(0, 0, 0.0)] * cut)
            for table, ms in enumerate(milliseconds)
        ]
    )
    placed_on = devices(*[(9, 0)] * ranks)
    rating = 0.0
    for ms in milliseconds:
        rating += ms if ranks > cut else 0.0
    assert max(bounds(space, placed_on).values()) <= rating
    assert all(proven <= rating for proven in reasons(space, placed_on).proven.values())
