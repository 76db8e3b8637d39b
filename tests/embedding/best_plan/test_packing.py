"""CP-SAT packs whole shards on ranks: its bounds hold for all plans, and its plans are legal."""

import math
import sys
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import assume, given, settings, strategies as st
from random_problems import random_problem
from small_problems import devices, fit, held_by, least_rating, option, problems

from harness.contract import InfeasibleDecision, WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.packing import packed
from planners.embedding.best_plan.proofs import ladder, proofs
from planners.embedding.best_plan.search import best_plan
from planners.embedding.decision import prepare
from planners.embedding.drop_in.planner import Planner
from planners.embedding.problem import build
from planners.embedding.quality import arrays, quality
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import load_of, search_space

RELATIVE = 1e-9


@settings(max_examples=60)
@given(problems(overfull=False), st.sampled_from([1e-4, 2.0]))
def test_it_ends_with_the_best_plan_or_the_proof_that_there_is_none(problem, work):
    """With little work the bound may be lower, but it still holds."""
    options, best = candidates(*problem), least_rating(*problem)
    assume(not len(options.without_options))
    least, plan = packed(options, 0.0, math.inf, Deadline(), work=work)
    assert least <= best * (1 + RELATIVE)
    if work > 1:
        assert math.isclose(least, best, rel_tol=RELATIVE)
        assert (plan is None) == math.isinf(best)
    if plan is not None:
        held = held_by(*problem, *plan)
        assert fit(held, problem[1])
        assert best * (1 - RELATIVE) <= load_of(options.space, *plan, options.devices.ranks).rating


@settings(max_examples=60)
@given(problems())
def test_with_ranks_that_are_overfull_at_first_the_best_plan_is_proven_too(problem):
    taking = problem[0].storage.any(axis=1).all()  # else it is left to torchrec's proposals
    assume(taking and problem[1].hosts and not len(candidates(*problem).without_options))
    outcome, best = best_plan(*problem), least_rating(*problem)
    rating = outcome.rating if isinstance(outcome, Found) else math.inf
    assert math.isclose(rating, best, rel_tol=RELATIVE)
    assert outcome.bound == best or math.isclose(outcome.bound, best, rel_tol=RELATIVE)


def test_a_plan_that_is_known_is_given_to_the_solver_and_only_a_better_one_is_returned():
    space = search_space([option(table, "device", (1, 0, 1.0)) for table in range(4)])
    options = candidates(space, devices((9, 0), (9, 0)))
    best, _ = packed(options, 0.0, math.inf, Deadline())
    *_, known = proofs(options, at_most=3.0, rungs=("ranks",))
    assert load_of(space, *known.plan, 2).rating == 2.0
    assert packed(options, 0.0, 2.0, Deadline(), known.plan) == (best, None)
    assert packed(options, 1.5, 3.0, Deadline(-1.0)) == (1.5, None)


def test_a_step_of_the_solver_that_loses_plans_is_left_out(caplog):
    """With OR-tools issue 5293, CP-SAT 9.15 says that no plan rates below 8e-5."""
    space = search_space(
        [
            option(0, "device", (0, 0, 1e-5), (0, 0, 8e-5)),
            option(0, "host_rows", (0, 0, 0.0), (0, 0, 7e-5)),
            option(1, "uniform", *[(0, 0, 0.0)] * 3),
            option(1, "device", (0, 0, 1e-5)),
        ]
    )
    problem = space, devices(*[(4, 0)] * 3, host_ranks=2)
    best = least_rating(*problem)
    least, _ = packed(candidates(*problem), 0.99 * best, 1.3 * best, Deadline())
    assert least == pytest.approx(best, rel=RELATIVE)
    assert not caplog.records


def test_bytes_beyond_the_solver_s_range_are_rounded_so_that_plans_are_legal():
    """In units of 2**20 bytes two shards seem to fit on a rank."""
    size = 2**59 + 2**10
    space = search_space([option(table, "device", (size, 0, 1.0)) for table in range(2)])
    options = candidates(space, devices((2**60, 0), (2**60, 0)))
    least, plan = packed(options, 0.0, math.inf, Deadline())
    assert least <= 1.0
    assert plan is None or len(set(plan[1].tolist())) == 2


def test_few_tables_for_the_devices_are_solved(tmp_path):
    """No bound that allows fractions of options is near this plan's rating."""
    tables = tmp_path / "three.csv"
    tables.write_text("rows,dim,pooling_factor\n50000000,128,1\n20000000,64,30\n3000,32,5\n")
    problem = build(WorkloadSpec.parse(str(tables)), find_topology("dgx_h100", 8))
    plan = prepare(problem, partial(Planner, mode="best-plan")).run()
    rated = quality(problem, plan)
    assert rated["gap"] == pytest.approx(0, abs=RELATIVE)
    assert next(proofs(candidates(*arrays(problem)))).milliseconds < 0.6 * rated["max_rank_ms"]


@pytest.mark.parametrize("seed", [0, 4, 6, 12, 15, 17, 66, 108, 114, 123])
def test_small_problems_of_many_kinds_are_solved(seed):
    """Memory is scarce or ample, hosts are uneven or small; seed 17 has no plan."""
    outcome = best_plan(*random_problem(seed))
    if isinstance(outcome, Found):
        assert outcome.bound == pytest.approx(outcome.rating, rel=RELATIVE)
    assert math.isinf(outcome.bound) == isinstance(outcome, NotFound) == (seed == 17)


def test_without_or_tools_the_other_proofs_run_and_the_planner_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools", None)
    monkeypatch.setattr("planners.embedding.best_plan.search.WORK_PER_SECOND", 1)
    monkeypatch.setattr("planners.embedding.best_plan.local.WORK_AT_ONCE", 8)
    problem = build(
        WorkloadSpec.parse("mixture[seed=27,hbm=0.66]"),
        replace(find_topology("dgx_a100_80gb", 32), gpus_per_host=8),
    )
    assert ladder(candidates(*arrays(problem)))[-1].rung == "patterns"
    tried = (
        "neither a plan nor a proof .* proposals of TorchRec; .* rounds of local search .*"
        "proof, .*; whole shards on single ranks were not tried: OR-tools is not installed"
    )
    with pytest.raises(InfeasibleDecision, match=tried):
        prepare(problem, partial(Planner, mode="best-plan")).run()
