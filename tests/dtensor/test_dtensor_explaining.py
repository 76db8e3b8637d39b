"""An explanation of a call: what is moved, by the figures that rate the decision."""

import pytest

from harness.contract import Question, UsageError, WorkloadSpec
from harness.measuring.timing.clock import SystemClock
from harness.planning.plan import decide
from harness.topologies.lookup import find_topology
from planners.dtensor import FAMILY
from planners.dtensor.explain import explain
from planners.dtensor.problem import DTensorProblem


@pytest.fixture(scope="module")
def problem() -> DTensorProblem:
    spec = WorkloadSpec.parse("miss[dims=2,cases=12,seed=3]")
    return FAMILY.work.build(spec, find_topology("dgx_a100_80gb", 16))


def decided(problem: DTensorProblem, variant: str):
    return decide(FAMILY, FAMILY.find(variant), problem, SystemClock())[0]


def test_it_adds_up_to_the_quality(problem: DTensorProblem):
    decision = decided(problem, "dijkstra")
    rated = FAMILY.work.quality(problem, decision)
    upstream = decided(problem, "upstream")
    told = explain(problem, decision, Question(None, 3, "upstream", upstream))
    held = told.document
    assert held["redistribute_us"] == pytest.approx(rated["redistribute_us"])
    assert held["cheapest_us"] == pytest.approx(rated["cheapest_us"])
    assert held["other_us"] == pytest.approx(
        FAMILY.work.quality(problem, upstream)["redistribute_us"]
    )
    ops = held["ops"]
    assert sum(op["times"] for op in ops) == len(decision.redistributions)
    worse = sum(op["times"] for op in ops if op["us"] > op["cheapest_us"] * (1 + 1e-9))
    assert worse == rated["worse_decisions"] > 0
    assert any("Dearer" in sentence for sentence in told.sentences)
    assert len(told.sections[0].rows) == 4


def test_the_cheapest_strategies_are_said_to_be_so(problem: DTensorProblem):
    told = explain(problem, decided(problem, "upstream"), Question())
    assert any(sentence.startswith("Each takes the cheapest") for sentence in told.sentences)


def test_it_knows_no_rank(problem: DTensorProblem):
    with pytest.raises(UsageError, match="--rank"):
        explain(problem, decided(problem, "upstream"), Question(rank=0))
