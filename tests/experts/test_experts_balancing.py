"""Placements are valid, no worse than published ones, and never better than their bound."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from harness.contract import Recorder
from harness.model.errors import NotApplicable
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.experts import FAMILY
from planners.experts.balancing.certified import layer_bounds
from planners.experts.balancing.few_moves import GOAL, few_moves
from planners.experts.implementation import build, fingerprint, observe, quality, validate
from planners.experts.problem import ExpertsProblem, Placement, fetched, imbalance
from planners.experts.published import COMPILED

# every greedy decision: the other variants have one of these, as another test shows
GREEDY = ("compiled-deepseek", "numpy-pack", "compiled", "zigzag")


@st.composite
def problems(draw):
    """Return a small problem, with groups or without, and a placement in force."""
    nodes = draw(st.sampled_from((1, 1, 2)))
    groups = draw(st.sampled_from((4, 16))) if nodes == 2 else 1
    gpus = nodes * draw(st.integers(1, 6))
    experts = max(4 * draw(st.integers(1, 8)), groups)
    experts -= experts % max(groups, 4)
    per_gpu = -(-experts // gpus) + draw(st.integers(0, 2))
    draws = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = (2, experts)
    loads = np.rint(np.exp(draws.normal(5, draw(st.sampled_from((0.0, 0.7, 2.0))), shape)))
    if draw(st.booleans()):
        loads[0] = 0
    if draw(st.booleans()):
        loads = draws.integers(0, 4, shape).astype(float)  # many ties
    after = np.rint(loads * np.exp(draws.normal(0, 0.2, shape)))
    before = ExpertsProblem(loads, after, gpus, per_gpu, groups, nodes, 2**20)
    return replace(before, loads=after, previous=COMPILED.place(before).slots)


def decided(name, problem):
    """Return the valid decision of a variant, None where it does not apply."""
    try:
        made = FAMILY.find(name).prepared(problem).run()
    except NotApplicable:
        return None
    validate(problem, made)
    return made


@given(problems())
def test_variants_decide_as_those_that_they_must_equal(problem):
    """`same_as` holds on random problems, with groups and ties."""
    same = {
        name: variant.same_as
        for name, variant in FAMILY.variants.items()
        if variant.same_as and not variant.upstream
    }
    made = {name: fingerprint(decided(name, problem)) for name in {*same, *same.values()}}
    assert all(made[name] == made[other] for name, other in same.items())


@pytest.mark.parametrize("groups", [1, 8])
def test_variants_decide_alike_with_ties_in_wide_layers(groups):
    """DeepSeek's chain breaks many ties as torch does."""
    loads = np.random.default_rng(groups).integers(0, 9, (3, 128)).astype(float)
    problem = ExpertsProblem(loads, loads, 16, 10, groups, min(groups, 4))
    for name in ("heap", "compiled-deepseek"):
        assert fingerprint(decided(name, problem)) == fingerprint(decided("deepseek", problem))


@given(problems())
def test_no_layer_is_worse_than_greedy_or_better_than_the_bound(problem):
    """The load of `certified` is between the bound and every greedy load, in each layer."""
    made = decided("certified", problem)
    ours = imbalance(made, problem.loads, problem.gpus)
    reached = made.gpu_loads(problem.loads, problem.gpus).max(axis=1)
    assert (reached >= layer_bounds(problem) * (1 - 1e-9)).all()
    for name in GREEDY:
        greedy = decided(name, problem)
        assert (ours <= imbalance(greedy, problem.loads, problem.gpus) * (1 + 1e-9)).all(), name
        figures = quality(problem, greedy)
        assert figures["fetched"] >= figures["least_fetched"]


@given(problems(), st.integers(0, 12))
def test_few_moves_keeps_its_budget_and_lowers_the_load(problem, budget):
    """No layer fetches more than the budget or gets a larger load."""
    made = few_moves(replace(problem, budget=budget))
    validate(problem, made)
    old = imbalance(Placement(problem.previous), problem.loads, problem.gpus)
    assert (imbalance(made, problem.loads, problem.gpus) <= old * (1 + 1e-9)).all()
    assert (fetched(problem, made).sum(axis=1) <= budget).all()


@given(problems())
def test_few_moves_reaches_its_goal_or_the_best_balance(problem):
    """Without a budget, the balance is within the goal of the best one."""
    made = few_moves(problem)
    validate(problem, made)
    best = imbalance(decided("certified", problem), problem.loads, problem.gpus)
    if problem.nodes == 1:
        reached = imbalance(made, problem.loads, problem.gpus)
        assert (reached <= best * (1 + GOAL) * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    ("workload", "gpus"), [("[groups=8,layers=8]", 32), ("[layers=8]", 32), ("[layers=16]", 144)]
)
def test_few_moves_fetches_a_tenth_of_vllm_within_two_percent(workload, gpus):
    """On real sizes, few fetches suffice, and the best balance is near its bound."""
    spec = WorkloadSpec.parse(f"deepseek-v3{workload}")
    problem = build(spec, find_topology("dgx_h100", gpus))
    few, best, vllm = (
        quality(problem, decided(name, problem)) for name in ("few-moves", "certified", "numpy")
    )
    assert few["imbalance"] <= best["imbalance"] * 1.02 * (1 + 1e-9)
    assert few["fetched"] <= vllm["fetched"] / 10
    assert best["imbalance"] <= best["bound"] * (1.02 if problem.per_gpu == 2 else 1.001)


def test_the_example_of_flashlb():
    """The published example has its published loads, and the optimum by enumeration."""
    loads = np.array([[600, 560, 120, 120, 20, 10, 10, 10.0]])
    problem = ExpertsProblem(loads, loads, 8, 2)
    largest = {
        name: decided(name, problem).gpu_loads(loads, 8).max()
        for name in ("deepseek", "flashlb", "certified")
    }
    assert largest["deepseek"] == 232
    assert largest["flashlb"] <= 205
    assert largest["certified"] == pytest.approx(590 / 3)  # the optimum by enumeration


@pytest.mark.parametrize("name", ["numpy", "compiled-deepseek", "certified", "few-moves"])
def test_an_observed_call_has_phases_and_counters(name):
    """Observing does not change a decision, and counts its steps."""
    problem = build(WorkloadSpec.parse("qwen3-235b[layers=2]"), find_topology("dgx_h100", 16))
    prepared = FAMILY.find(name).prepared(problem)
    plain, recorder = prepared.run(), Recorder()
    with observe(recorder), recorder.call():
        assert fingerprint(prepared.run()) == fingerprint(plain)
    assert {"replicate", "pack"} <= set(recorder.phases)
    assert recorder.counters["replicas_packed"] >= problem.layers * problem.slots
    assert (recorder.counters["exchanges"] > 0) == (name in ("certified", "few-moves"))
