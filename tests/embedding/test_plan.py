"""Fingerprint, validation and quality of plans, on real plans and on spoilt copies of them."""

import copy

import pytest
from torchrec.distributed.planner.types import Perf

from harness.contract import InfeasibleDecision, WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding import FAMILY
from planners.embedding.decision import Plan, fingerprint, validate
from planners.embedding.problem import EmbeddingProblem, build
from planners.embedding.quality import quality


@pytest.fixture(scope="module")
def problem() -> EmbeddingProblem:
    return build(
        WorkloadSpec.parse("synthetic[tables=6,seed=5,memory=tight]"),
        find_topology("dgx_a100_80gb", 16),
    )


@pytest.fixture(scope="module")
def plan(problem) -> Plan:
    return FAMILY.find("greedy-sum").prepared(problem).run()


def spoilt(plan: Plan) -> Plan:
    return Plan(tuple(copy.deepcopy(list(plan.options))))


def test_a_real_plan_is_valid(problem, plan):
    validate(problem, plan)


def test_the_fingerprint_does_not_depend_on_the_order_of_tables(plan):
    assert fingerprint(Plan(plan.options[::-1])) == fingerprint(plan)


@pytest.mark.parametrize("change", ["rank", "kernel", "type", "size"])
def test_the_fingerprint_sees_every_part_of_the_decision(plan, change):
    other = spoilt(plan)
    option = other.options[0]
    if change == "rank":
        option.shards[0].rank = (option.shards[0].rank + 1) % 16
    elif change == "kernel":
        option.compute_kernel = "other"
    elif change == "type":
        option.sharding_type = "other"
    else:
        option.shards[0].size = [1, 1]
    assert fingerprint(other) != fingerprint(plan)


def test_a_missing_table_is_infeasible(problem, plan):
    with pytest.raises(InfeasibleDecision, match=r"does not place each table once: table_"):
        validate(problem, Plan(plan.options[1:]))


def test_a_table_placed_twice_is_infeasible(problem, plan):
    with pytest.raises(InfeasibleDecision, match=f"table once: {plan.options[0].name}"):
        validate(problem, Plan((*plan.options, plan.options[0])))


@pytest.mark.parametrize("rank", [None, -1, 16])
def test_a_rank_that_does_not_exist_is_infeasible(problem, plan, rank):
    other = spoilt(plan)
    other.options[0].shards[0].rank = rank
    with pytest.raises(InfeasibleDecision, match=f"is on rank {rank}"):
        validate(problem, other)


def test_shards_that_leave_a_gap_are_infeasible(problem, plan):
    other = spoilt(plan)
    other.options[0].shards[0].size[0] -= 1
    with pytest.raises(InfeasibleDecision, match="do not tile"):
        validate(problem, other)


def test_shards_that_overlap_are_infeasible(problem, plan):
    other = spoilt(plan)
    option = next(option for option in other.options if len(option.shards) > 1)
    option.shards[1].offset = list(option.shards[0].offset)
    option.shards[1].size = list(option.shards[0].size)
    with pytest.raises(InfeasibleDecision, match="do not tile"):
        validate(problem, other)


def test_a_kernel_that_is_not_allowed_is_infeasible(problem, plan):
    other = spoilt(plan)
    other.options[0].compute_kernel = "dense"
    with pytest.raises(InfeasibleDecision, match="kernel 'dense'"):
        validate(problem, other)


@pytest.mark.parametrize("kind", ["hbm", "ddr"])
def test_a_rank_over_its_memory_is_infeasible(problem, plan, kind):
    other = spoilt(plan)
    setattr(other.options[0].shards[0].storage, kind, 2**50)
    with pytest.raises(InfeasibleDecision, match=f"bytes of {kind.upper()} and has"):
        validate(problem, other)


def test_quality_follows_from_the_shards(problem, plan):
    found = quality(problem, plan)
    by_rank = [0.0] * 16
    for option in plan.options:
        for shard in option.shards:
            by_rank[shard.rank] += shard.perf.total
    assert found["max_rank_ms"] == pytest.approx(max(by_rank))
    assert found["mean_rank_ms"] == pytest.approx(sum(by_rank) / 16)
    assert found["imbalance"] == pytest.approx(max(by_rank) / (sum(by_rank) / 16))
    assert 0 < found["hbm_peak_fraction"] <= 1
    assert set(found) == {each.name for each in FAMILY.qualities}


def test_a_plan_that_costs_nothing_is_balanced(problem, plan):
    other = spoilt(plan)
    for option in other.options:
        for shard in option.shards:
            shard.perf = Perf(0, 0, 0, 0)
    assert quality(problem, other)["imbalance"] == 1.0
