"""Fingerprint, validation and quality of real plans and of damaged copies of them."""

import copy

import built_problem
import pytest
from torchrec.distributed.planner.types import Perf

from harness.contract import InfeasibleDecision
from planners.embedding import FAMILY
from planners.embedding.decision import Plan, fingerprint, validate
from planners.embedding.quality import quality


@pytest.fixture(scope="module")
def problem():
    return built_problem.problem("synthetic[tables=6,seed=5,memory=tight]")


@pytest.fixture(scope="module")
def plan(problem):
    return FAMILY.find("greedy-sum").prepared(problem).run()


def test_a_table_missing_or_placed_twice_is_infeasible(problem, plan):
    """The error names the table."""
    validate(problem, plan)
    first = plan.options[0]
    for options in (plan.options[1:], (*plan.options, first)):
        with pytest.raises(InfeasibleDecision, match=f"table once: {first.name}"):
            validate(problem, Plan(options))


def onto(rank):
    return lambda option: setattr(option.shards[0], "rank", rank)


def storing(kind):
    return lambda option: setattr(option.shards[0].storage, kind, 2**50)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (onto(None), "on rank None"),
        (onto(-1), "on rank -1"),
        (onto(16), "on rank 16"),
        (onto(15), "must be on rank"),
        (lambda option: setattr(option.shards[0], "size", [1, 1]), "do not tile"),
        (lambda option: setattr(option, "compute_kernel", "dense"), "kernel 'dense'"),
        (storing("hbm"), "bytes of HBM"),
        (storing("ddr"), "bytes of DDR"),
        (lambda option: setattr(option, "sharding_type", "other"), ""),
    ],
)
def test_a_spoilt_option_is_infeasible_and_every_part_is_in_the_fingerprint(
    problem, plan, change, reason
):
    """The fingerprint ignores bytes; a change without a reason is valid."""
    other = copy.deepcopy(plan)
    change(next(option for option in other.options if len(option.shards) > 1))
    if reason:
        with pytest.raises(InfeasibleDecision, match=reason):
            validate(problem, other)
    if "bytes" not in reason:
        assert fingerprint(other) != fingerprint(plan) == fingerprint(Plan(plan.options[::-1]))


def test_quality_follows_from_the_shards(problem, plan):
    """Ranks without time are balanced."""
    rated = quality(problem, plan)
    by_rank = [0.0] * 16
    for shard in (shard for option in plan.options for shard in option.shards):
        by_rank[shard.rank] += shard.perf.total
    assert rated["max_rank_ms"] == pytest.approx(max(by_rank))
    assert rated["mean_rank_ms"] == pytest.approx(sum(by_rank) / 16)
    assert rated["imbalance"] == pytest.approx(max(by_rank) / (sum(by_rank) / 16))
    assert 0 < rated["hbm_peak_fraction"] <= 1
    beside_a_machine = {"torchrec_ms", "torchrec_hbm_fraction"}
    assert set(rated) == {quality.name for quality in FAMILY.qualities} - beside_a_machine
    other = copy.deepcopy(plan)
    for shard in (shard for option in other.options for shard in option.shards):
        shard.perf = Perf(0, 0, 0, 0)
    assert quality(problem, other)["imbalance"] == 1.0
