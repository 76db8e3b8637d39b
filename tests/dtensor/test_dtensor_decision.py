"""Fingerprint, validation and quality of decisions, on real ones and on spoilt ones."""

from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import pytest
import torch
from small_world import checked, placed, problem_of
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, _sharding_prop
from torch.distributed.tensor._op_schema import OpSpec, OpStrategy

from harness.contract import InfeasibleDecision
from planners.dtensor import FAMILY
from planners.dtensor.decision import Decision, fingerprint, validate
from planners.dtensor.problem import DTensorProblem

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


def test_a_result_of_another_global_shape_is_infeasible(decision):
    with pytest.raises(InfeasibleDecision) as refused:
        validate(None, with_first(decision, lambda x: x.t()))
    assert str(refused.value) == "The result of mm has shape (8, 64) instead of (64, 8)."


def test_a_result_that_is_missing_is_infeasible(decision):
    with pytest.raises(InfeasibleDecision) as refused:
        validate(None, replace(decision, outputs=decision.outputs[:-1]))
    assert str(refused.value) == "The program made 2 results instead of 3."


def test_a_shard_that_does_not_fit_is_infeasible(decision):
    def with_half_a_shard(x: DTensor) -> DTensor:
        half = x._local_tensor[:2].clone()
        return placed(x.device_mesh, half, *x.placements, shape=x.shape, stride=x.stride())

    with pytest.raises(InfeasibleDecision) as refused:
        validate(None, with_first(decision, with_half_a_shard))
    assert str(refused.value) == (
        "The shard of mm has shape (2, 8), but (Shard(dim=0), Shard(dim=0)) of (64, 8) makes it "
        "(4, 8)."
    )


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
    for each in decision.redistributions:
        assert each.moves
        assert all(source.placements != target.placements for source, target in each.moves)
        assert all(source.tensor_meta == target.tensor_meta for source, target in each.moves)


@pytest.mark.parametrize("seed", [0, 5])
def test_torch_decides_as_cheaply_as_is_possible(seed):
    found = checked("upstream", problem_of(DRAWN.format(seed))).quality
    assert found["redistribute_us"] == found["cheapest_us"] > 0
    assert found["worse_decisions"] == 0


def test_what_moves_nothing_costs_nothing():
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


def _dearest(strategy: OpStrategy, *_: object) -> OpSpec:
    def cost(each: OpSpec) -> float:
        total = sum(map(sum, each.redistribute_cost or [[0]]))
        return -1 if total == float("inf") else total

    return max(strategy.strategies, key=cost)


def test_decisions_that_are_made_worse_are_counted_and_cost_more():
    problem = problem_of(DRAWN.format(0))
    cheapest = checked("upstream", problem).quality
    with mock.patch.object(_sharding_prop, "_select_min_cost_strategy", _dearest):
        decision = decided(problem)
    spoilt = FAMILY.work.quality(problem, decision)
    assert spoilt["worse_decisions"] > 5
    assert spoilt["redistribute_us"] > 2 * cheapest["redistribute_us"]
    assert spoilt["cheapest_us"] > 0
    validate(None, decision)


def test_partial_results_are_feasible():
    decision = decided(problem_of("miss[dims=1,cases=30]/dgx_a100_80gb:8"))
    assert any(isinstance(p, Partial) for each in decision.outputs for p in each.placements)
    validate(None, decision)


@pytest.mark.parametrize("workload", ["mlp", "miss[cases=12]"])
def test_any_number_of_gpus_that_makes_a_mesh_is_possible(workload):
    decided(problem_of(f"{workload}/dgx_a100_80gb:6"))
