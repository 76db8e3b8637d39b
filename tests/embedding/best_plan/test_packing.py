"""CP-SAT packs whole shards on ranks: its bounds hold for all plans, and its plans are legal."""

import math
import sys
from functools import partial

import pytest
from built_problem import problem
from hypothesis import assume, given, settings, strategies as st
from small_problems import devices, fit, held_by, least_rating, option, problems
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.planners import validate_compute_kernels

from harness.contract import InfeasibleDecision
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.packing import packed
from planners.embedding.best_plan.proofs import RUNGS, ladder, proofs
from planners.embedding.best_plan.search import best_plan
from planners.embedding.decision import prepare, validate
from planners.embedding.drop_in.planner import Planner
from planners.embedding.quality import arrays
from planners.embedding.search.outcome import Deadline, Found
from planners.embedding.search.space import load_of, search_space

RELATIVE = 1e-9


@settings(max_examples=40)
@given(
    problems(overfull=False),
    st.sampled_from([1e-4, 2.0]),
    st.sampled_from([1.0, 1.3, math.inf]),
    st.booleans(),
)
def test_it_ends_with_the_best_plan_or_the_proof_that_there_is_none(drawn, work, worse, late):
    """With little work the bound may be lower, but it still holds; a known plan is never worse."""
    options, best = candidates(*drawn), least_rating(*drawn)
    assume(not len(options.without_options))
    at_most = worse * best if best else math.inf
    deadline = Deadline(-1.0 if late else None)
    least, plan = packed(options, 0.0, at_most, deadline, work=work)
    assert least <= best * (1 + RELATIVE)
    if work > 1 and not late:
        assert math.isclose(least, best, rel_tol=RELATIVE)
        assert worse == 1.0 or (plan is None) == math.isinf(best)
    if plan is not None:
        held = held_by(*drawn, *plan)
        assert fit(held, drawn[1])
        rating = load_of(options.space, *plan, options.devices.ranks).rating
        assert best * (1 - RELATIVE) <= rating < at_most


@settings(max_examples=20)
@given(problems())
def test_with_ranks_that_are_overfull_at_first_the_best_plan_is_proven_too(drawn):
    """The whole search solves every small problem that is not left to torchrec's proposals."""
    taking = drawn[0].storage.any(axis=1).all()
    assume(taking and drawn[1].hosts and not len(candidates(*drawn).without_options))
    outcome, best = best_plan(*drawn), least_rating(*drawn)
    rating = outcome.rating if isinstance(outcome, Found) else math.inf
    assert math.isclose(rating, best, rel_tol=RELATIVE)
    assert outcome.bound == best or math.isclose(outcome.bound, best, rel_tol=RELATIVE)


@pytest.mark.parametrize(("seed", "gpus"), [(0, 8), (1, 4), (7, 8)])
def test_a_planner_solves_small_problems_of_many_kinds(seed, gpus):
    """Memory is scarce or ample."""
    built = problem(f"mixture[seed={seed}]", gpus=gpus)
    run = prepare(built, partial(Planner, mode="best-plan")).run
    plan = run()
    validate(built, plan)
    validate_compute_kernels(list(plan.options))
    rating = NoopPerfModel(built.topology).rate(list(plan.options))
    assert plan.bound_ms == pytest.approx(rating, rel=RELATIVE)
    for proof in proofs(candidates(*arrays(built)), at_most=1.01 * rating, rungs=[*RUNGS][:3]):
        assert proof.milliseconds <= rating * (1 + RELATIVE)


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
    placed_on = devices(*[(4, 0)] * 3, host_ranks=2)
    best = least_rating(space, placed_on)
    least, _ = packed(candidates(space, placed_on), 0.99 * best, 1.3 * best, Deadline())
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


def test_without_or_tools_the_other_proofs_run_and_the_planner_says_so(monkeypatch):
    """The error names the proof that was not tried."""
    monkeypatch.setitem(sys.modules, "ortools", None)
    monkeypatch.setattr("planners.embedding.best_plan.search.WORK_PER_SECOND", 1)
    monkeypatch.setattr("planners.embedding.best_plan.local.WORK_AT_ONCE", 8)
    built = problem("mixture[seed=27,tables=10,hbm=0.55]")
    assert ladder(candidates(*arrays(built)))[-1].rung == "patterns"
    with pytest.raises(InfeasibleDecision, match="OR-tools is not installed"):
        prepare(built, partial(Planner, mode="best-plan")).run()
