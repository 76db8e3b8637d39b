"""Calibration recovers the coefficients of a made-up device; plans measured by real kernels."""

import math
from collections.abc import Sequence
from dataclasses import replace

import built_problem
import numpy as np
import pytest
import torch
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import Shard, ShardingOption

from harness.contract import BenchOptions, NotApplicable, UsageError, WorkloadSpec
from harness.topologies.lookup import read_topologies
from planners.embedding import FAMILY
from planners.embedding.coefficients import (
    BACKWARD,
    DEVICE_BW,
    read_coefficients,
    write_coefficients,
)
from planners.embedding.decision import Plan, fingerprint, validate
from planners.embedding.estimates.calibration import LAUNCH, PASSES, START, TERMS, Calibration
from planners.embedding.estimates.coefficient_fit import (
    HELD_OUT,
    POINTS,
    DesignPoint,
    Times,
    design,
    fit_machine,
    torchrec_bytes,
)
from planners.embedding.estimates.estimator import calibrated_estimators
from planners.embedding.estimates.kernels import Device, RankKernels
from planners.embedding.estimates.shard_work import LookupDistribution, ShardWork, shards_by_rank
from planners.embedding.estimates.workbench import (
    EmbeddingWorkbench,
    different_plans,
    memory_candidates,
    with_kernels,
)
from planners.embedding.problem import EmbeddingProblem

UNIFORM = LookupDistribution()

# Milliseconds per unit of each term, in the order of the form, then of a kernel and of a pass.
TRUE = {
    "forward": (3e-6, 1e-8, 3e-8, 1.5e-7, 1e-5, 6e-6, 1e-9, 1e-7, 1e-5, *(0.0,) * 6, 0.3, 0.4),
    "backward": (
        *(6e-6, 1.5e-8, 2e-8, 2e-7, 3e-5, 2e-5, 2e-8, 9e-8, 2e-5),
        *(2e-7, 3e-7, 9e-7, 4e-8, 9e-5, 2e-7, 0.1, 0.2),
    ),
}
DEVICE = Calibration(
    {"cache.near": 2.0**20, "cache.far": 2.0**25, DEVICE_BW: 9e6, BACKWARD: 1.6}
    | {
        f"fused.cached.{passed}.{term}": value
        for passed in PASSES
        for term, value in zip((*TERMS, LAUNCH, START), TRUE[passed], strict=True)
    }
)


def times_of(points: list[DesignPoint], noise: float = 0.0) -> Times:
    """Return the made-up device's milliseconds for each point and pass, with random noise."""
    rng = np.random.default_rng(0)

    def milliseconds(point: DesignPoint, passed: str) -> float:
        kernels = len({(shard.sharding_type, shard.is_weighted) for shard in point.shards})
        starts = kernels * TRUE[passed][-2] + TRUE[passed][-1]
        return sum(DEVICE.shard_ms(shard, passed) for shard in point.shards) + starts

    return {
        point.key: {
            passed: milliseconds(point, passed) * math.exp(rng.normal(0, noise))
            for passed in PASSES
        }
        for point in points
    }


def test_calibrating_finds_the_coefficients_of_a_made_up_device():
    """Times with noise give caches, coefficients within their intervals, and small errors."""
    points = design("fused")
    machine = fit_machine(points, times_of(points, noise=0.02), UNIFORM)
    calibration = Calibration(read_coefficients(machine.columns["coefficients"]))
    for size, true in zip(calibration.caches, DEVICE.caches, strict=True):
        assert 0.5 <= size / true <= 2  # of a grid of sizes
    for point in points:
        if point.purpose.startswith(HELD_OUT):
            ratio = calibration.rank_ms(point.shards) / DEVICE.rank_ms(point.shards)
            assert ratio == pytest.approx(1, abs=0.12)
    inside = [
        figure.low <= DEVICE.values[figure.name] <= figure.high
        for figure in machine.figures
        if figure.name.startswith("fused.cached")
    ]
    assert len(inside) == 34
    assert sum(inside) >= 27  # of intervals at 95 %, some of which share what they explain
    errors = {error.purpose: error.error for error in machine.errors}
    assert errors.keys() == POINTS.keys()
    assert errors[HELD_OUT] < 0.04


def test_too_few_points_are_refused():
    """One sentence names the number that a fit needs."""
    points = design("fused", share=0.1)[:5]
    with pytest.raises(UsageError, match="a fit needs 12"):
        fit_machine(points, times_of(points), UNIFORM)


def test_coefficients_are_written_and_read_again_in_a_topology_file():
    """The problem on that machine has them."""
    text = write_coefficients(DEVICE.values)
    base = "name,gpus_per_host,hbm_bytes,intra_host_bw,hbm_bw,hbm_to_ddr_bw,coefficients\n"
    row = f"mine,4,85899345920,300000000,2000000000,16000000,{text}\n"
    topology = read_topologies(base + row, "machine.csv")["mine"].sized(4)
    problem = FAMILY.work.build(WorkloadSpec("synthetic", {"tables": "2"}), topology)
    assert problem.coefficients == pytest.approx(DEVICE.values, rel=1e-5)
    assert problem.topology.hbm_mem_bw == pytest.approx(9e6)
    assert problem.topology.bwd_compute_multiplier == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("read", "text", "named"),
    [
        *((read_coefficients, text, "coefficient") for text in ("a=1;b", "a=-1", "a=1e999")),
        (read_coefficients, "device_bw=0", "device_bw"),
        *((LookupDistribution.named, text, "--ind") for text in ("zipf:9", "zipf:x", "normal", "")),
    ],
)
def test_wrong_texts_are_one_sentence(read, text: str, named: str):
    """It names the coefficient or the option."""
    with pytest.raises(UsageError, match=named):
        read(text)


@pytest.fixture(scope="module")
def problem() -> EmbeddingProblem:
    return built_problem.problem("synthetic[tables=6,seed=3,memory=roomy]", gpus=4)


def shards_in(plan: Sequence[ShardingOption], topology) -> list[tuple[ShardWork, Shard]]:
    return [pair for rank in shards_by_rank(plan, topology) for pair in rank]


def test_pooled_tables_have_calibrated_times_and_sequences_torchrecs_own(tmp_path):
    """Memory is not estimated for sequences."""
    file = tmp_path / "t.csv"
    file.write_text("rows,dim,pooling_factor,lookup\n9000,64,20,sequence\n8000,64,9,pooled\n")
    problem = built_problem.problem(str(file), gpus=4)
    estimators = calibrated_estimators(DEVICE, problem.topology, problem.constraints)
    own, calibrated = (
        problem.enumerator(EmbeddingEnumerator, made).enumerate(problem.module, problem.sharders)
        for made in (None, estimators)
    )
    pooled = [option for option in calibrated if option.is_pooled]
    pooled = [option for option in pooled if option.compute_kernel == "fused"]
    for option in pooled:
        for number, shard in enumerate(option.shards):
            shard.rank = number % 4
    assert len(pooled) > 3
    for work, shard in shards_in(pooled, problem.topology):
        assert shard.perf.fwd_compute == pytest.approx(DEVICE.shard_ms(work, "forward"))
        assert shard.perf.bwd_compute == pytest.approx(DEVICE.shard_ms(work, "backward"))
    for option, other in zip(own, calibrated, strict=True):
        if not option.is_pooled:
            assert [shard.perf for shard in option.shards] == [s.perf for s in other.shards]
    with pytest.raises(NotApplicable, match="table_0 is sequence"):
        list(memory_candidates(problem, [], "cpu", 0))


def test_the_variant_calibrated_plans_by_the_machine_and_is_rated_as_others(
    problem: EmbeddingProblem,
):
    """It needs a calibrated machine, by whose estimate its plan is as fast as the best."""
    with pytest.raises(NotApplicable, match="shardbench calibrate"):
        FAMILY.find("calibrated").prepared(problem)
    fused = with_kernels(
        replace(problem, coefficients=DEVICE.values, search_seconds=1.0), ["fused"]
    )
    plan, other = (FAMILY.find(name).prepared(fused).run() for name in ("calibrated", "certified"))
    validate(fused, plan)

    def by_machine(made: Plan) -> float:
        return max(
            sum(DEVICE.shard_ms(work, passed) for work, _ in rank for passed in PASSES)
            for rank in shards_by_rank(made.options, fused.topology)
        )

    assert by_machine(plan) <= by_machine(other) * 1.001
    quality = FAMILY.work.quality(fused, plan)
    assert quality["max_rank_ms"] >= quality["bound_ms"]


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


def test_bytes_that_are_worked_out_here_give_torchrecs_own_estimate(
    problem: EmbeddingProblem, plans
):
    """They do for whole tables with kernel `fused`."""
    pairs = [pair for _, plan in plans for pair in shards_in(plan.options, problem.topology)]
    whole = [pair for pair in pairs if pair[0].kernel == "fused" and pair[0].share == 1]
    assert len(whole) > 20
    for work, shard in whole:
        milliseconds = torchrec_bytes(work) / problem.topology.hbm_mem_bw
        assert milliseconds == pytest.approx(shard.perf.fwd_compute, rel=1e-6)


def kernels_on(device: Device, *shards: ShardWork) -> RankKernels:
    return RankKernels(shards, device, UNIFORM, 0)


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
