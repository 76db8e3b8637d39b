"""Plans of the placement family, judged by trying every choice of small problems."""

import json
from contextlib import closing
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import monotonic

import numpy as np
import pytest
from naive_rules import applicable
from small_graphs import best_cost, choices, small_problem

from harness.contract import (
    InfeasibleDecision,
    NotApplicable,
    Question,
    Recorder,
    UsageError,
    WorkloadSpec,
)
from planners.highs import Solver, is_solved
from planners.placement import FAMILY
from planners.placement.explaining import explain
from planners.placement.files import read_problem
from planners.placement.generated import generated
from planners.placement.implementation import build, quality, validate
from planners.placement.problem import FORBIDDEN, Plan, chosen_pairs, cost_of, peak_of
from planners.placement.search.certified import by_programme, by_search, certified, quick_bound
from planners.placement.search.dual import bounds
from planners.placement.search.graph import BARRED, graph_of
from planners.placement.search.linear import Programme
from planners.placement.search.published import descended, smallest
from planners.placement.search.reduction import Reduced, reduced
from planners.placement.search.warm_up import warm_up
from planners.placement.workloads import BlocksParameters, brings

SEEDS = range(40)
AMPLE = 60.0  # seconds; a search that proves its plan ends long before


@pytest.fixture(scope="module", autouse=True)
def machine_code() -> None:
    """Compile before a search that has a limit in time."""
    warm_up()


@pytest.mark.parametrize("seed", SEEDS)
def test_certified_finds_the_best_choice_and_its_bound_is_below(seed: int):
    """On small problems the plan costs as little as any, and no bound is above it."""
    problem = small_problem(seed)
    best = best_cost(problem)
    if best is None:
        with pytest.raises(InfeasibleDecision):
            validate(problem, certified(problem))
        return
    plan = certified(problem)
    validate(problem, plan)
    assert cost_of(problem, plan.choice) == best
    assert plan.bound <= best
    assert quick_bound(problem) <= best


@pytest.mark.parametrize("seed", SEEDS)
def test_choices_of_a_reduced_graph_cost_and_use_what_they_do_in_the_whole(seed: int):
    """No rule applies any more; a choice costs what its lifted choice does, and fits if it does"""
    problem = small_problem(seed)
    try:
        small = reduced(graph_of(problem))
    except InfeasibleDecision:
        assert best_cost(problem) is None
        return
    assert applicable(small.graph) == set()
    random = np.random.default_rng(seed)
    for _ in range(20):
        choice = random.integers(0, small.graph.widths)
        whole = small.lifted(choice)
        cost = small.graph.cost_of(choice)
        if cost < 2**50:
            assert cost == cost_of(problem, whole)
        assert small.graph.fits(choice) == (peak_of(problem, whole) <= problem.limit)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_proof_holds_for_any_messages_and_prices(seed: int):
    """The bound in whole numbers is below the best cost, even if the floats make no sense."""
    problem = small_problem(seed)
    best = best_cost(problem)
    if best is None:
        return
    graph = graph_of(problem)
    random = np.random.default_rng(seed)
    for size in (0.1, 10.0, 1e30):
        messages = random.normal(0.0, size, graph.message[-1])
        prices = random.exponential(min(size, 100.0), len(graph.capacity))
        assert bounds(graph, messages, prices)[0] <= best


@pytest.mark.parametrize("seed", SEEDS)
def test_a_choice_fits_at_the_moments_if_it_fits_at_all_times(seed: int):
    """Leaving out times and blocks that cannot matter changes no answer."""
    problem = small_problem(seed)
    graph = graph_of(problem)
    for choice in choices(problem)[::7]:
        assert graph.fits(choice) == (peak_of(problem, choice) <= problem.limit)
        cost = cost_of(problem, choice)
        assert min(graph.cost_of(choice), BARRED) == min(cost, BARRED)


def test_a_search_by_forests_fits_and_is_near_the_programme():
    """On a generated model the search's plan is valid, and costs at most 25 % more."""
    problem = generated("blocks", BlocksParameters(blocks=2))
    plan = by_search(reduced(graph_of(problem)), 1.0)
    validate(problem, plan)
    best = by_programme(Reduced(graph_of(problem)), AMPLE)
    assert plan.bound <= cost_of(problem, best.choice) <= cost_of(problem, plan.choice)
    assert cost_of(problem, plan.choice) <= 1.25 * cost_of(problem, best.choice)


def test_the_programme_is_solved_in_a_process_with_other_solvers():
    """HiGHS refuses to run with another number of threads than before in its process."""
    other = Solver()
    other.addVar(0.0, 1.0)
    assert is_solved(other, 60.0)
    programme = Programme(graph_of(small_problem(5)), 1e9)
    assert programme.relax(monotonic() + 60.0).fractions is not None


def test_descent_is_the_same_in_python_and_compiled():
    """The compiled loops make the choices of the interpreted ones."""
    graph = graph_of(generated("blocks", BlocksParameters(blocks=2)))
    start = smallest(graph)
    assert np.array_equal(descended(graph, start, False), descended(graph, start, True))


def test_reductions_are_the_same_in_python_and_compiled():
    """The interpreted rules leave the graph of the compiled ones, and the same way back."""
    graph = graph_of(generated("blocks", BlocksParameters(blocks=2)))
    interpreted, compiled = reduced(graph, is_compiled=False), reduced(graph)
    for ours, theirs in zip(compiled.graph, interpreted.graph, strict=True):
        assert np.array_equal(ours, theirs)
    choice = smallest(compiled.graph)
    assert np.array_equal(compiled.lifted(choice), interpreted.lifted(choice))


def decided(name: str, spare: float) -> Plan:
    """Return the plan of a variant for four blocks with more memory than the least."""
    problem = generated("blocks", BlocksParameters(blocks=4, spare=spare, seconds=AMPLE))
    plan = FAMILY.find(name).prepared(problem).run()
    validate(problem, plan)
    return plan


@pytest.mark.parametrize("name", ["trws", "lp"])
def test_an_approximate_solver_plans_where_memory_is_ample(name: str):
    """Its bound is below the cost of the best plan, and a plan that does not fit is refused."""
    problem = generated("blocks", BlocksParameters(blocks=4, spare=10))
    best = cost_of(problem, decided("certified", spare=10).choice)
    plan = decided(name, spare=10)
    assert plan.bound <= best <= cost_of(problem, plan.choice) <= 1.05 * best
    with pytest.raises(NotApplicable, match="memory"):
        decided(name, spare=0)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("toulbar2", marks=pytest.mark.upstreams("toulbar2-1.4.0.1")),
        pytest.param("ilp-cbc", marks=pytest.mark.upstreams("pulp-3.3.0")),
    ],
)
def test_another_solver_finds_the_best_plan(name: str):
    """On a small model its plan costs as much as ours."""
    problem = generated("blocks", BlocksParameters(blocks=2)).limited(10)
    with closing(FAMILY.find(name).prepared(problem)) as prepared:
        plan = prepared.run().decision
    validate(problem, plan)
    assert cost_of(problem, plan.choice) == cost_of(problem, certified(problem).choice)


def test_a_plan_is_explained():
    """More memory saves what a plan for it costs less; the dearest conversions are named."""
    problem = generated("blocks", BlocksParameters(blocks=1)).limited(AMPLE)
    plan = certified(problem)
    told = explain(problem, plan, Question(top=3))
    nodes, conversions = told.sections
    assert len(nodes.rows) == len(conversions.rows) == 3
    assert told.document["saved"] >= 0
    costs = [row[2] for row in conversions.rows]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] == chosen_pairs(problem, plan.choice).max()


def test_the_work_of_a_search_is_counted():
    """Reductions, sweeps and rounds of search are counted and timed."""
    problem = generated("blocks", BlocksParameters(blocks=2)).limited(1)
    variant, recorder = FAMILY.find("forests").prepared(problem), Recorder()
    with FAMILY.work.observe(recorder), recorder.call():
        variant.run()
    assert recorder.counters["reductions"] == 1
    assert recorder.counters["sweeps"] > 1
    assert recorder.counters["searches"] > 1
    assert {"reduce", "bound", "search"} <= recorder.phases.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("blocks", "states"), [(650, 10), (1360, 10)])
def test_a_problem_of_the_largest_size_ends_in_the_limit(blocks: int, states: int):
    """65,000 nodes are read, reduced and planned in time, within 12 GB."""
    asked = BlocksParameters(blocks=blocks, ops=24, states=states, seconds=60)
    problem = generated("blocks", asked).limited(60)
    warm_up()
    began = monotonic()
    plan = certified(problem)
    assert monotonic() - began < 75
    validate(problem, plan)
    assert 0 < plan.bound <= cost_of(problem, plan.choice)
    assert getrusage(RUSAGE_SELF).ru_maxrss < 12e6  # KiB


def test_a_plan_that_is_forbidden_or_too_large_is_refused():
    """A choice with a forbidden pair, too many bytes or a missing state is no plan."""
    problem = small_problem(1)
    for choice in choices(problem):
        fits = peak_of(problem, choice) <= problem.limit
        if fits and cost_of(problem, choice) < FORBIDDEN:
            validate(problem, Plan(choice))
        else:
            with pytest.raises(InfeasibleDecision):
                validate(problem, Plan(choice))
    with pytest.raises(InfeasibleDecision):
        validate(problem, Plan(problem.widths))


CONTENT = {
    "problem": {
        "name": "asplos-2025-iopddl-B",
        "nodes": {"intervals": [[0, 2], [1, 3]], "costs": [[1, 2], [3]], "usages": [[5, 1], [2]]},
        "edges": {"nodes": [[0, 1]], "costs": [[10, 20]]},
        "usage_limit": 7,
    }
}


def test_a_file_of_the_contest_is_rated_exactly(tmp_path: Path):
    """A file's problem has the costs and the peak of its plan, also above 2**63."""
    path = tmp_path / "small.json"
    path.write_text(json.dumps(CONTENT))
    spec = WorkloadSpec(str(path))
    problem = build(spec, brings(spec))
    rated = quality(problem, Plan(np.array([0, 0])))
    assert (rated["cost"], rated["peak"], rated["bound"]) == (14, 1.0, 14)
    assert rated["over_best_known"] == 14 / 532_843 - 1
    problem.pairs[:] = FORBIDDEN
    problem.cost[:] = 9 * FORBIDDEN
    assert cost_of(problem, np.array([0, 0])) == 19 * FORBIDDEN


@pytest.mark.parametrize(
    ("part", "key", "value", "refusal"),
    [
        ("nodes", "costs", [[1, 2]], "an interval"),
        ("nodes", "costs", [[], [3]], "a usage for each cost"),
        ("nodes", "usages", [[5], [2]], "a usage for each cost"),
        ("nodes", "costs", [[-1, 2], [3]], "no problem of the contest"),
        ("edges", "nodes", [[0, 2]], "nodes that exist"),
        ("edges", "nodes", [[0, 0]], "a cost for each pair"),
        ("edges", "costs", [[10]], "a cost for each pair"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, part, key, value, refusal):
    """Each defect of a file is one sentence that names the file."""
    content = json.loads(json.dumps(CONTENT))
    content["problem"][part][key] = value
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError, match=refusal):
        read_problem(str(path))
