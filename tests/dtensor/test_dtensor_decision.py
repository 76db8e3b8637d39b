"""Fingerprint, validation, quality and explanation of real and of damaged decisions."""

from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import pytest
import torch
from small_world import checked, placed, problem_of
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, _sharding_prop
from torch.distributed.tensor._op_schema import OpSpec, OpStrategy

from harness.contract import InfeasibleDecision, Question, UsageError
from planners.dtensor import FAMILY
from planners.dtensor.decision import Decision, fingerprint, validate
from planners.dtensor.problem import DTensorProblem
from planners.dtensor.quality import explain

DRAWN = "miss[dims=2,cases=12,seed={}]/dgx_a100_80gb:16"


def decided(problem: DTensorProblem, variant: str = "upstream") -> Decision:
    prepared = FAMILY.find(variant).prepared(problem)
    with prepared.installed():
        return prepared.run()


@pytest.fixture(scope="module")
def decision() -> Decision:
    return decided(problem_of("miss[op=mm+relu+t,dims=2]/dgx_a100_80gb:16"))


@pytest.fixture(scope="module")
def moving() -> DTensorProblem:
    return problem_of(DRAWN.format(3))


def with_first(decision: Decision, change: Callable[[DTensor], torch.Tensor]) -> Decision:
    first, *rest = decision.outputs
    return replace(decision, outputs=(change(first), *rest))


def with_half_a_shard(x: DTensor) -> DTensor:
    half = x._local_tensor[:2].clone()
    return placed(x.device_mesh, half, *x.placements, shape=x.shape, stride=x.stride())


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda it: replace(it, outputs=it.outputs[:-1]), ("2 results", "3")),
        (lambda it: with_first(it, with_half_a_shard), ("shard of mm", "(2, 8)", "(4, 8)")),
    ],
)
def test_a_missing_result_or_a_wrong_shard_is_infeasible(spoil, named, decision):
    """A real decision is valid, a damaged one is refused with the sizes that differ."""
    validate(None, decision)
    with pytest.raises(InfeasibleDecision) as refused:
        validate(None, spoil(decision))
    assert all(part in str(refused.value) for part in named)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: placed(x.device_mesh, torch.zeros(32, 8), Shard(0), Replicate()),
        lambda x: x * 2,
        lambda x: x.double(),
        lambda x: x.to_local(),
        lambda x: x.t().contiguous().t(),
    ],
    ids=["placements", "values", "type", "local", "stride"],
)
def test_the_fingerprint_sees_every_part_of_a_result(change, decision):
    """Another placement, value, type or stride is another decision."""
    assert fingerprint(with_first(decision, change)) != fingerprint(decision)
    assert fingerprint(with_first(decision, torch.clone)) == fingerprint(decision)


def test_the_fingerprint_sees_moved_inputs_and_no_values_that_collectives_made_up(moving):
    """Moves are those inputs that change placements, also of partial results."""
    decision = decided(moving)
    assert fingerprint(replace(decision, rewritten=decision.rewritten[1:])) != fingerprint(decision)
    assert any(isinstance(p, Partial) for output in decision.outputs for p in output.placements)
    doubled = with_first(
        decision, lambda x: placed(x.device_mesh, x._local_tensor * 2, *x.placements)
    )
    assert fingerprint(doubled) == fingerprint(decision)


def test_the_batch_size_is_no_part_of_a_dynamic_decision():
    """Two steps of `dynamic` have other sizes and one fingerprint, and move nothing."""
    problem = problem_of("dynamic/dgx_a100_80gb:4")
    prepared = FAMILY.find("upstream").prepared(problem)
    with prepared.installed():
        first, second = prepared.run(), prepared.run()
    assert first.outputs[0].shape != second.outputs[0].shape
    assert fingerprint(first) == fingerprint(second)
    assert set(FAMILY.work.quality(problem, first).values()) == {0}


def test_a_move_between_hosts_costs_more_than_within_one():
    """The cost model knows the ranks of a host."""
    across, within = (
        checked("upstream", problem_of(f"miss[cases=12]/{machine}:16")).quality["redistribute_us"]
        for machine in ("dgx_a100_80gb", "gb200_nvl72_tray4")
    )
    assert across > within > 0


def _most_expensive(strategy: OpStrategy, *_: object) -> OpSpec:
    def cost(spec: OpSpec) -> float:
        total = sum(map(sum, spec.redistribute_cost or [[0]]))
        return -1 if total == float("inf") else total

    return max(strategy.strategies, key=cost)


@pytest.mark.parametrize("seed", [0, 5])
def test_decisions_that_are_made_worse_are_counted_and_cost_more(seed):
    """Torch decides as cheaply as is possible, and the most expensive choices are all worse."""
    problem = problem_of(DRAWN.format(seed))
    cheapest = checked("upstream", problem).quality
    assert cheapest["redistribute_us"] == cheapest["cheapest_us"] > 0
    assert cheapest["worse_decisions"] == 0
    with mock.patch.object(_sharding_prop, "_select_min_cost_strategy", _most_expensive):
        decision = decided(problem)
    spoilt = FAMILY.work.quality(problem, decision)
    assert spoilt["worse_decisions"] > 5
    assert spoilt["redistribute_us"] > 2 * cheapest["redistribute_us"]
    validate(None, decision)


def test_an_explanation_adds_up_to_the_quality(moving):
    """The ops of an explanation have the quality's costs and the number of worse decisions."""
    decision, upstream = decided(moving, "dijkstra"), decided(moving)
    rated = FAMILY.work.quality(moving, decision)
    explanation = explain(moving, decision, Question(None, 3, "upstream", upstream))
    document = explanation.document
    assert document["redistribute_us"] == pytest.approx(rated["redistribute_us"])
    assert document["cheapest_us"] == pytest.approx(rated["cheapest_us"])
    assert document["other_us"] == pytest.approx(
        FAMILY.work.quality(moving, upstream)["redistribute_us"]
    )
    ops = document["ops"]
    assert sum(op["times"] for op in ops) == len(decision.redistributions)
    worse = sum(op["times"] for op in ops if op["us"] > op["cheapest_us"] * (1 + 1e-9))
    assert worse == rated["worse_decisions"] > 0
    assert len(explanation.sections[0].rows) == 4


def test_an_explanation_knows_no_rank(moving):
    """DTensor decides alike for all ranks, so a rank is refused."""
    with pytest.raises(UsageError, match="--rank"):
        explain(moving, decided(moving), Question(rank=0))
