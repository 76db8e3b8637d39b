"""The exact search: its proofs hold for all plans, and its results are legal plans."""

import math
import warnings
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import assume, given, settings, strategies as st
from random_problems import random_problem
from small_problems import devices, fit, held_by, least_rating, option, problems

from harness.contract import InfeasibleDecision, WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding.best_plan.bounds.bound import linear_bound
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.exact.search import ExactSearch
from planners.embedding.best_plan.search import best_plan
from planners.embedding.decision import prepare
from planners.embedding.drop_in.planner import DistrustedSearch, Planner
from planners.embedding.problem import build
from planners.embedding.quality import arrays, quality
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import search_space

RELATIVE = 1e-8
PLENTY = 10**8


def searched(space, placed_on, work=PLENTY, least=0.0, rating=math.inf):
    search = ExactSearch(candidates(space, placed_on))
    search.run(least, rating, work, Deadline())
    return search


@settings(max_examples=60)
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
        held = held_by(*problem, *search.plan)
        assert fit(held, problem[1])
        assert math.isclose(held[:, 0].max(), search.rating, rel_tol=RELATIVE)


@settings(max_examples=60)
@given(problems())
def test_with_ranks_that_are_overfull_at_first_the_best_plan_is_proven_too(problem):
    taking = problem[0].storage.any(axis=1).all()  # else it is left to torchrec's proposals
    assume(taking and problem[1].hosts and not len(candidates(*problem).without_options))
    found, best = best_plan(*problem), least_rating(*problem)
    rating = found.rating if isinstance(found, Found) else math.inf
    assert math.isclose(rating, best, rel_tol=RELATIVE)
    assert found.bound == best or found.bound * (1 + 0.005) >= best >= found.bound


@settings(max_examples=50)
@given(problems(overfull=False), st.integers(1, 300), st.booleans())
def test_a_search_that_is_stopped_proves_nothing_wrong(problem, work, known):
    best = least_rating(*problem)
    if len(candidates(*problem).without_options):
        return
    start = best * 1.5 if known else math.inf
    search = searched(*problem, work, rating=start)
    assert search.least <= best <= search.rating * (1 + RELATIVE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planners.embedding.best_plan.exact.search._AT_ONCE", 7)
        often = searched(*problem)
    seldom = searched(*problem)
    assert (often.least, often.rating) == (seldom.least, seldom.rating), "no look changes anything"


def test_a_search_takes_over_what_is_known_and_proves_nothing_without_time():
    space = search_space([option(table, "device", (1, 0, 1.0)) for table in range(4)])
    search = ExactSearch(candidates(space, devices((9, 0), (9, 0))))
    search.run(1.5, 3.0, PLENTY, Deadline(-1.0))
    assert (search.least, search.rating, search.plan) == (1.5, 3.0, None)
    search.run(0.0, 3.0, PLENTY, Deadline())
    assert search.rating == 2.0
    assert search.plan is not None
    search.run(0.0, 1.0, PLENTY, Deadline())
    assert (search.rating, search.plan) == (1.0, None)


def test_torchrec_rates_a_plan_that_the_local_search_made_better_as_the_search_does():
    """Here the exact search finds the first plan, and the local search improves it."""
    workload = WorkloadSpec.parse("dlrm-856[tables=32,seed=3,memory=tight]")
    problem = build(workload, find_topology("dgx_a100_80gb", 16))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DistrustedSearch)
        prepare(problem, partial(Planner, mode="best-plan")).run()


def test_few_tables_for_the_devices_are_solved(tmp_path):
    """No bound that allows fractions of options is near this plan's rating."""
    tables = tmp_path / "three.csv"
    tables.write_text("rows,dim,pooling_factor\n50000000,128,1\n20000000,64,30\n3000,32,5\n")
    problem = build(WorkloadSpec.parse(str(tables)), find_topology("dgx_h100", 8))
    plan = prepare(problem, partial(Planner, mode="best-plan")).run()
    rated = quality(problem, plan)
    assert rated["gap"] == pytest.approx(0, abs=1e-9)
    assert linear_bound(candidates(*arrays(problem))).milliseconds < 0.6 * rated["max_rank_ms"]


@pytest.mark.parametrize("seed", [0, 4, 6, 12, 15, 17, 66, 108, 114, 123])
def test_small_problems_of_many_kinds_are_solved(seed):
    """Memory is scarce or ample, hosts are uneven or small; seed 17 has no plan."""
    outcome = best_plan(*random_problem(seed))
    if isinstance(outcome, Found):
        assert outcome.bound == pytest.approx(outcome.rating, rel=1e-9)
    assert math.isinf(outcome.bound) == isinstance(outcome, NotFound) == (seed == 17)


def test_a_planner_that_finds_neither_a_plan_nor_a_proof_says_what_was_tried(monkeypatch):
    monkeypatch.setattr("planners.embedding.best_plan.strategy.WORK_PER_SECOND", 1)
    monkeypatch.setattr("planners.embedding.best_plan.local.rounds.WORK_AT_ONCE", 8)
    problem = build(
        WorkloadSpec.parse("mixture[seed=27,hbm=0.66]"),
        replace(find_topology("dgx_a100_80gb", 32), gpus_per_host=8),
    )
    tried = "neither a plan nor a proof .* proposals of TorchRec; .* rounds of local search .*proof"
    with pytest.raises(InfeasibleDecision, match=tried):
        prepare(problem, partial(Planner, mode="best-plan")).run()
