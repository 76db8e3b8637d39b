"""Plans are measured by fbgemm's kernels, with lookups that are drawn from a distribution."""

from dataclasses import replace

import built_problem
import numpy as np
import pytest
import torch

from harness.contract import BenchOptions, UsageError
from planners.embedding import FAMILY
from planners.embedding.decision import Plan, fingerprint, validate
from planners.embedding.estimates.shard_work import (
    LookupDistribution,
    ShardWork,
)
from planners.embedding.measuring.kernels import Device, RankKernels
from planners.embedding.measuring.workbench import (
    EmbeddingWorkbench,
    different_plans,
)
from planners.embedding.problem import EmbeddingProblem


@pytest.fixture(scope="module")
def problem() -> EmbeddingProblem:
    return built_problem.problem("synthetic[tables=6,seed=3,memory=roomy]", gpus=4)


@pytest.mark.parametrize("name", ["uniform", "zipf", "zipf:1", "reuse"])
@pytest.mark.parametrize(("rows", "count"), [(50, 4000), (20_000, 5000), (10**6, 20_000)])
def test_draws_repeat_rows_as_the_distribution_says(name: str, rows: int, count: int):
    """The numbers of distinct and of hottest rows are those expected."""
    distribution = LookupDistribution.named(name)
    assert LookupDistribution.of_coefficients(distribution.coefficients) == distribution
    drawn = distribution.draw(rows, count, np.random.default_rng(0))
    assert drawn.min() >= 0
    assert drawn.max() < rows
    times = np.sort(np.unique(drawn, return_counts=True)[1])[::-1]
    assert len(times) == pytest.approx(distribution.distinct(rows, count), rel=0.05)
    assert distribution.share_of_hottest(rows, rows, count) == pytest.approx(1, abs=1e-6)
    assert distribution.share_of_hottest(rows, 0, count) == pytest.approx(0, abs=1e-6)
    if name.startswith("zipf"):
        share = distribution.share_of_hottest(rows, 10, count)
        assert times[:10].sum() / count == pytest.approx(share, rel=0.1)


@pytest.fixture(scope="module")
def plans(problem: EmbeddingProblem) -> list[tuple[str, Plan]]:
    return different_plans(problem, 8, 0)


def test_plans_to_measure_are_different_valid_and_spread(problem: EmbeddingProblem, plans):
    """The slowest takes 1.3 times as long as the fastest, the best known plan."""
    assert len({fingerprint(plan) for _, plan in plans}) == len(plans) == 8
    for _, plan in plans:
        validate(problem, plan)
    slowest = [FAMILY.work.quality(problem, plan)["max_rank_ms"] for _, plan in plans]
    assert max(slowest) > 1.3 * min(slowest)
    assert "certified" in plans[0][0]


def kernels_on(device: Device, *shards: ShardWork) -> RankKernels:
    return RankKernels(shards, device, LookupDistribution(), 0)


def tables_of(rank: RankKernels) -> list[torch.Tensor]:
    """Return the weights of a rank's tables and their optimizer's state."""
    kernels = [lookup.kernel for lookup in rank._lookups]
    return [table for k in kernels for table in (k.weights_host, k.momentum1_host)]


def test_each_pass_of_a_rank_can_be_repeated_and_learns():
    """The weights and the state of the optimizer change."""
    kernels = kernels_on(
        Device("cpu"),
        ShardWork("fused", "table_wise", 100, 8, (3.0,), 32, is_weighted=True),
        ShardWork("fused", "row_wise", 50, 16, (0.5, 1.0), 32, share=0.25),
    )
    before = [table.clone() for table in tables_of(kernels)]
    for call in kernels.passes().values():
        for _ in range(2):
            call.begin()
            call.run()
    assert not any(map(torch.equal, before, tables_of(kernels)))


@pytest.mark.parametrize(("kernel", "renewed"), [("fused_uvm_caching", True), ("fused", False)])
def test_kernels_with_a_cache_look_up_other_rows_each_time(kernel: str, renewed: bool):
    """Other kernels look up the same rows."""
    rank = kernels_on(Device("cpu"), ShardWork(kernel, "table_wise", 10**5, 8, (3.0,), 32))
    (lookup,) = rank._lookups
    before = lookup.indices.clone()
    rank.passes()["forward"].begin()
    assert torch.equal(before, lookup.indices) == (not renewed)


def test_ranks_are_cut_to_the_memory_that_there_is_with_a_note(problem: EmbeddingProblem):
    """The work of a cut rank runs."""
    plans = EmbeddingWorkbench(BenchOptions("cpu", "uniform", 0.05)).candidates(problem, 3)
    assert any("rows at most" in note for note in plans.notes)
    assert any("keep to kernel 'fused'" in note for note in plans.notes)
    plans.decisions[0].ranks[0].work.passes()["both"].run()


def test_each_table_is_computed_on_the_ranks_of_its_shards(problem: EmbeddingProblem):
    """A measurement describes its shards, so that other cost models can be judged on it."""
    plans = EmbeddingWorkbench(BenchOptions("cpu", "uniform", 1.0)).candidates(problem, 3)
    numbers = {t.name: sum(t.pooling_factors) * t.dim for t in problem.tables}
    for plan in plans.decisions:
        looked_up = dict.fromkeys(numbers, 0.0)
        for part in (part for rank in plan.ranks for part in rank.parts):
            looked_up[part["table"]] += sum(part["lookups"]) * part["columns"]
        assert looked_up == pytest.approx(numbers)


def test_lookups_that_do_not_fit_into_memory_are_one_sentence(problem: EmbeddingProblem):
    """It names the option with the limit."""
    with pytest.raises(UsageError, match=r"lookups of a rank take .* GiB.*--gib allows 0\.001"):
        EmbeddingWorkbench(BenchOptions("cpu", "uniform", 0.001)).candidates(problem, 3)


def test_ranks_share_the_memory_of_the_largest_one():
    """The tables of one rank do not overlap."""
    shard = ShardWork("fused", "table_wise", 30_000, 8, (1.0,), 8)
    shards = [shard] * 3
    other = [replace(shard, rows=50_000), replace(shard, sharding_type="row_wise")]
    device = Device("cpu")
    device.make_room([shards, other])
    places = [
        [table.data_ptr() for table in tables_of(kernels_on(device, *rank))]
        for rank in (shards, other)
    ]
    assert places[0][0] == places[1][0]
    assert max(map(max, places)) - places[0][0] < 1.01 * 4 * 3 * 30_000 * (8 + 1)
    assert len(set(places[1])) == len(places[1])  # the tables of one rank do not overlap
