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
def problem() -> DTensorProblem:
    return problem_of("miss[op=mm+relu+t,dims=2]/dgx_a100_80gb:16")


@pytest.fixture(scope="module")
def decision(problem) -> Decision:
    return decided(problem)


def with_first(decision: Decision, change: Callable[[DTensor], torch.Tensor]) -> Decision:
    first, *rest = decision.outputs
    return replace(decision, outputs=(change(first), *rest))


def test_a_real_decision_is_valid(decision):
    validate(None, decision)


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
    assert fingerprint(with_first(decision, change)) != fingerprint(decision)
    assert fingerprint(with_first(decision, torch.clone)) == fingerprint(decision)


def test_the_fingerprint_sees_which_inputs_are_moved():
    decision = decided(problem_of(DRAWN.format(1)))
    assert decision.redistributions
    assert fingerprint(replace(decision, rewritten=decision.rewritten[1:])) != fingerprint(decision)


def test_values_count_only_where_the_program_compares_them():
    decision = decided(problem_of(DRAWN.format(1)))
    doubled = with_first(
        decision, lambda x: placed(x.device_mesh, x._local_tensor * 2, *x.placements)
    )
    assert fingerprint(doubled) == fingerprint(decision)


def test_the_batch_size_is_no_part_of_a_dynamic_decision():
    problem = problem_of("dynamic/dgx_a100_80gb:4")
    prepared = FAMILY.find("upstream").prepared(problem)
    with prepared.installed():
        first, second = prepared.run(), prepared.run()
    assert first.outputs[0].shape != second.outputs[0].shape
    assert fingerprint(first) == fingerprint(second)


def test_redistributions_are_the_inputs_that_change_placements_and_no_others():
    decision = decided(problem_of(DRAWN.format(2)))
    assert decision.redistributions
    for op in decision.redistributions:
        assert op.moves
        assert all(source.placements != target.placements for source, target in op.moves)
        assert all(source.tensor_meta == target.tensor_meta for source, target in op.moves)


@pytest.mark.parametrize("seed", [0, 5])
def test_torch_decides_as_cheaply_as_is_possible(seed):
    found = checked("upstream", problem_of(DRAWN.format(seed))).quality
    assert found["redistribute_us"] == found["cheapest_us"] > 0
    assert found["worse_decisions"] == 0


def test_a_program_that_moves_nothing_costs_nothing():
    assert checked("upstream", problem_of("mlp/dgx_a100_80gb:8")).quality == {
        "redistribute_us": 0,
        "cheapest_us": 0,
        "worse_decisions": 0,
    }


def test_a_move_between_hosts_costs_more_than_within_one():
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


def test_decisions_that_are_made_worse_are_counted_and_cost_more():
    problem = problem_of(DRAWN.format(0))
    cheapest = checked("upstream", problem).quality
    with mock.patch.object(_sharding_prop, "_select_min_cost_strategy", _most_expensive):
        decision = decided(problem)
    spoilt = FAMILY.work.quality(problem, decision)
    assert spoilt["worse_decisions"] > 5
    assert spoilt["redistribute_us"] > 2 * cheapest["redistribute_us"]
    assert spoilt["cheapest_us"] > 0
    validate(None, decision)


def test_partial_results_are_feasible():
    decision = decided(problem_of("miss[dims=1,cases=30]/dgx_a100_80gb:8"))
    assert any(isinstance(p, Partial) for output in decision.outputs for p in output.placements)
    validate(None, decision)


@pytest.mark.parametrize("workload", ["mlp", "miss[cases=12]"])
def test_any_number_of_gpus_that_makes_a_mesh_is_possible(workload):
    decided(problem_of(f"{workload}/dgx_a100_80gb:6"))


@pytest.fixture(scope="module")
def moving() -> DTensorProblem:
    return problem_of("miss[dims=2,cases=12,seed=3]/dgx_a100_80gb:16")


def test_an_explanation_adds_up_to_the_quality(moving):
    decision = decided(moving, "dijkstra")
    rated = FAMILY.work.quality(moving, decision)
    upstream = decided(moving, "upstream")
    explanation = explain(moving, decision, Question(None, 3, "upstream", upstream))
    held = explanation.document
    assert held["redistribute_us"] == pytest.approx(rated["redistribute_us"])
    assert held["cheapest_us"] == pytest.approx(rated["cheapest_us"])
    assert held["other_us"] == pytest.approx(
        FAMILY.work.quality(moving, upstream)["redistribute_us"]
    )
    ops = held["ops"]
    assert sum(op["times"] for op in ops) == len(decision.redistributions)
    worse = sum(op["times"] for op in ops if op["us"] > op["cheapest_us"] * (1 + 1e-9))
    assert worse == rated["worse_decisions"] > 0
    assert any("cost more than the cheapest" in sentence for sentence in explanation.sentences)
    assert len(explanation.sections[0].rows) == 4


def test_an_explanation_names_the_cheapest_strategies(moving):
    explanation = explain(moving, decided(moving, "upstream"), Question())
    assert any(sentence.startswith("Each takes the cheapest") for sentence in explanation.sentences)


def test_an_explanation_knows_no_rank(moving):
    with pytest.raises(UsageError, match="--rank"):
        explain(moving, decided(moving, "upstream"), Question(rank=0))
