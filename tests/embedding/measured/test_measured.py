"""Plans measured by real kernels, and coefficients found again on a made-up device."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator

from harness.contract import NotApplicable, UsageError, WorkloadSpec
from harness.contract.abilities.validation import Bench, FittedMachine
from harness.topologies.csv_files import read_topologies
from harness.topologies.lookup import find_topology
from planners.embedding.calibration.coefficients import BACKWARD, DEVICE_BW, Calibration
from planners.embedding.calibration.estimator import calibrated_estimators
from planners.embedding.calibration.indices import Reuse, Uniform, Zipf, indices_named
from planners.embedding.calibration.shards import ShardWork, shards_by_rank
from planners.embedding.calibration.terms import CACHED, PASSES, kernels_of, torchrec_bytes
from planners.embedding.decision import fingerprint, validate
from planners.embedding.family import FAMILY
from planners.embedding.measured.fitting import Times, fit_sweep
from planners.embedding.measured.kernels import Device, RankKernels, prepared_passes
from planners.embedding.measured.measurable import MEASURABLE
from planners.embedding.measured.plans import different_plans
from planners.embedding.measured.sweep import FITTED_PURPOSES, HELD_OUT, PURPOSES, Point, design
from planners.embedding.problem import EmbeddingProblem

WORKLOAD = WorkloadSpec("synthetic", {"tables": "6", "seed": "3", "memory": "roomy"})

# Of a made-up device: milliseconds per unit of each term, in the order of the form.
TRUE = {
    "forward": (3e-6, 1e-8, 3e-8, 1.5e-7, 1e-5, 6e-6, 1e-9, 1e-7, 1e-5, *(0.0,) * 6),
    "backward": (
        *(6e-6, 1.5e-8, 2e-8, 2e-7, 3e-5, 2e-5, 2e-8, 9e-8, 2e-5),
        *(2e-7, 3e-7, 9e-7, 4e-8, 9e-5, 2e-7),
    ),
}
LAUNCH = {"forward": 0.3, "backward": 0.1}
START = {"forward": 0.4, "backward": 0.2}


def made_up() -> Calibration:
    values = {"cache.near": 2.0**20, "cache.far": 2.0**25, DEVICE_BW: 9e6, BACKWARD: 1.6}
    for passed in PASSES:
        for term, value in zip(CACHED.terms, TRUE[passed], strict=True):
            values[f"fused.cached.{passed}.{term}"] = value
        values[f"fused.cached.{passed}.launch"] = LAUNCH[passed]
        values[f"fused.cached.{passed}.start"] = START[passed]
    return Calibration(values)


def taken(points: list[Point], noise: float, seed: int = 0) -> Times:
    """Return what the made-up device takes, each time off by chance."""
    device, rng = made_up(), np.random.default_rng(seed)
    return {
        point.key: {
            passed: (
                sum(device.shard_ms(shard, passed) for shard in point.shards)
                + LAUNCH[passed] * kernels_of(point.shards)
                + START[passed]
            )
            * math.exp(rng.normal(0, noise))
            for passed in PASSES
        }
        for point in points
    }


def calibration_of(found: FittedMachine) -> Calibration:
    calibration = Calibration.parse(found.columns["coefficients"])
    assert calibration is not None
    return calibration


@pytest.fixture(scope="module")
def problem() -> EmbeddingProblem:
    return FAMILY.work.build(WORKLOAD, find_topology("dgx_a100_80gb", 4))


@pytest.fixture(scope="module")
def plans(problem: EmbeddingProblem):
    return different_plans(problem, 6, 0)


def test_calibrating_finds_the_coefficients_of_a_made_up_device():
    points = design("fused")
    found = fit_sweep(points, taken(points, noise=0.02), Uniform())
    device = made_up()
    for size, true in zip(calibration_of(found).caches, device.caches, strict=True):
        assert 0.5 <= size / true <= 2  # of a grid of sizes
    for point in points:
        if point.purpose not in FITTED_PURPOSES:
            ratio = calibration_of(found).rank_ms(point.shards) / device.rank_ms(point.shards)
            assert ratio == pytest.approx(1, abs=0.12)
    inside = [
        each.low <= device.values[each.name] <= each.high
        for each in found.figures
        if each.name.startswith("fused.cached") and each.name in device.values
    ]
    assert len(inside) == 34
    assert sum(inside) >= 27  # of intervals at 95 %, some of which share what they explain
    errors = {(each.form, each.purpose): each.error for each in found.errors}
    assert errors["cached", HELD_OUT] < 0.04 < errors["torchrec", HELD_OUT]


def test_without_noise_what_the_fit_says_of_other_sizes_is_right():
    points = design("fused", seed=1)
    found = fit_sweep(points, taken(points, noise=0.0), Uniform())
    errors = {(each.form, each.purpose): each.error for each in found.errors}
    for purpose in PURPOSES:
        assert errors["cached", purpose] < 0.005


def test_too_small_a_sweep_is_refused():
    points = design("fused", share=0.1)[:5]
    with pytest.raises(UsageError, match="a fit needs 12"):
        fit_sweep(points, taken(points, 0.0), Uniform())


def test_coefficients_are_written_and_read_again_in_a_topology_file():
    text = str(made_up())
    base = "name,gpus_per_host,hbm_bytes,intra_host_bw,hbm_bw,hbm_to_ddr_bw,coefficients\n"
    row = f"mine,4,85899345920,300000000,2000000000,16000000,{text}\n"
    topology = read_topologies(base + row, "machine.csv")["mine"].sized(4)
    problem = FAMILY.work.build(WORKLOAD, topology)
    assert problem.calibration is not None
    assert problem.calibration.values == pytest.approx(made_up().values, rel=1e-5)
    assert problem.topology.hbm_mem_bw == pytest.approx(9e6)
    assert problem.topology.bwd_compute_multiplier == pytest.approx(1.6)


@pytest.mark.parametrize("text", ["a=1;b", "a=-1", "device_bw=0", "a=1e999"])
def test_wrong_coefficients_are_one_sentence(text: str):
    with pytest.raises(UsageError, match="coefficient"):
        Calibration.parse(text)


def test_plans_to_measure_are_different_valid_and_spread(problem: EmbeddingProblem, plans):
    assert len({fingerprint(plan) for _, plan in plans}) == len(plans) == 6
    for _, plan in plans:
        validate(problem, plan)
    slowest = [FAMILY.work.quality(problem, plan)["max_rank_ms"] for _, plan in plans]
    assert max(slowest) > 1.3 * min(slowest)
    assert "certified" in plans[0][0]


def test_estimates_that_are_worked_out_here_are_torchrecs_own(problem: EmbeddingProblem, plans):
    bandwidth = problem.topology.hbm_mem_bw
    checked = 0
    for _, plan in plans:
        for rank in shards_by_rank(plan.options, problem.topology):
            for work, shard in rank:
                if work.share * work.row_parts == pytest.approx(1, rel=1e-9):
                    assert torchrec_bytes(work) / bandwidth == pytest.approx(
                        shard.perf.fwd_compute, rel=1e-6
                    )
                    checked += 1
    assert checked > 20


def test_the_estimator_gives_torchrec_what_is_measured_of_shards(problem: EmbeddingProblem):
    device = made_up()
    enumerator = EmbeddingEnumerator(
        problem.topology,
        batch_size=problem.batch_size,
        constraints=problem.constraints,
        estimator=calibrated_estimators(device, problem.topology, problem.constraints),
    )
    for option in enumerator.enumerate(problem.module, problem.sharders):
        if option.compute_kernel != "fused":
            continue
        for number, shard in enumerate(option.shards):
            shard.rank = number % problem.topology.world_size
        for rank in shards_by_rank([option], problem.topology):
            for work, shard in rank:
                assert shard.perf.fwd_compute == pytest.approx(device.shard_ms(work, "forward"))
                assert shard.perf.bwd_compute == pytest.approx(device.shard_ms(work, "backward"))


def test_the_variant_calibrated_plans_by_the_machine_and_is_rated_as_others(
    problem: EmbeddingProblem,
):
    from planners.embedding.measured.measurable import _on_cpu

    with pytest.raises(NotApplicable, match="shardbench calibrate"):
        FAMILY.find("calibrated").prepared(problem)
    fused, _ = _on_cpu(replace(problem, calibration=made_up(), search_seconds=1.0))
    plan = FAMILY.find("calibrated").prepared(fused).run()
    validate(fused, plan)
    other = FAMILY.find("certified").prepared(fused).run()

    def by_machine(made) -> float:
        ranks = shards_by_rank(made.options, fused.topology)
        return max(
            sum(made_up().shard_ms(work, passed) for work, _ in rank for passed in PASSES)
            for rank in ranks
        )

    assert by_machine(plan) <= by_machine(other) * 1.001
    quality = FAMILY.work.quality(fused, plan)
    assert quality["max_rank_ms"] >= quality["bound_ms"]


@pytest.mark.parametrize("is_weighted", [False, True])
def test_kernels_of_a_rank_look_up_and_learn(is_weighted: bool):
    shards = [
        ShardWork("a", "fused", "table_wise", 100, 8, (3.0,), 32, is_weighted=is_weighted),
        ShardWork("b", "fused", "row_wise", 50, 16, (0.5, 1.0), 32, share=0.25, row_parts=4),
    ]
    kernels = RankKernels(shards, Device("cpu"), Uniform(), 0)
    outputs = [tuple(output.shape) for output in kernels._outputs]
    assert outputs == [(32, 8), (32, 32)]
    before = [output.detach().clone() for output in kernels._outputs]
    kernels.backward()
    kernels.forward()
    assert all(not (a == b).all() for a, b in zip(before, kernels._outputs, strict=True))


def test_tables_of_one_sharding_type_share_a_kernel_as_in_torchrec():
    shards = [ShardWork(str(n), "fused", "table_wise", 10, 4 * n, (1.0,), 8) for n in (1, 2, 3)]
    kernels = RankKernels(
        [*shards, ShardWork("r", "fused", "row_wise", 10, 4, (1.0,), 8)],
        Device("cpu"),
        Uniform(),
        0,
    )
    assert [tuple(output.shape) for output in kernels._outputs] == [(8, 24), (8, 4)]


def test_a_backward_pass_has_a_forward_pass_before_it_that_is_not_timed():
    shard = ShardWork("a", "fused", "table_wise", 100, 8, (3.0,), 32)
    passes = prepared_passes([shard], Device("cpu"), Uniform(), 0)
    for _ in range(2):
        passes["backward"].begin()
        passes["backward"].run()


@pytest.mark.parametrize("indices", [Uniform(), Zipf(1.05), Zipf(1.0), Reuse()])
@pytest.mark.parametrize(("rows", "count"), [(50, 4000), (20_000, 5000), (10**6, 20_000)])
def test_draws_repeat_rows_as_the_distribution_says(indices, rows: int, count: int):
    drawn = indices.draw(rows, count, np.random.default_rng(0))
    assert drawn.min() >= 0
    assert drawn.max() < rows
    assert len(np.unique(drawn)) == pytest.approx(indices.distinct(rows, count), rel=0.15)
    assert indices.share_of_hottest(rows, rows, count) == pytest.approx(1, abs=1e-6)
    assert indices.share_of_hottest(rows, 0, count) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("text", ["zipf:9", "zipf:x", "normal", ""])
def test_other_distributions_are_refused(text: str):
    with pytest.raises(UsageError, match="--indices must be uniform"):
        indices_named(text)


def test_ranks_are_cut_to_the_memory_that_there_is_and_it_is_said(problem: EmbeddingProblem):
    bench = MEASURABLE.candidates(problem, 3, Bench("cpu", "uniform", 0.05))
    assert any("rows at most" in note for note in bench.notes)
    assert any("keep to kernel 'fused'" in note for note in bench.notes)
    keys = {rank.work.key for each in bench.candidates for rank in each.ranks}
    assert len(keys) <= 3 * 4
    passes: Mapping = bench.candidates[0].ranks[0].work.passes()
    passes["both"].run()


def test_lookups_that_do_not_fit_into_memory_are_one_sentence(problem: EmbeddingProblem):
    with pytest.raises(UsageError, match=r"lookups of a rank take .* GiB.*--memory allows 0\.001"):
        MEASURABLE.candidates(problem, 3, Bench("cpu", "uniform", 0.001))


def test_ranks_share_the_memory_of_the_largest_one():
    shards = [ShardWork(str(n), "fused", "table_wise", 30_000, 8, (1.0,), 8) for n in range(3)]
    other = [replace(shards[0], rows=50_000), replace(shards[0], sharding_type="row_wise")]
    device = Device("cpu")
    device.make_room([shards, other])
    places = [kernel_memory(RankKernels(each, device, Uniform(), 0)) for each in (shards, other)]
    assert places[0][0] == places[1][0]
    assert max(map(max, places)) - places[0][0] < 1.01 * 4 * 3 * 30_000 * (8 + 1)
    assert len(set(places[1])) == len(places[1])  # what one rank has does not overlap


def kernel_memory(rank: RankKernels) -> list[int]:
    """Return the addresses of a rank's tables and of what their optimizer holds."""
    kernels = [group._kernel for group in rank._groups]
    return [each.data_ptr() for k in kernels for each in (k.weights_host, k.momentum1_host)]


def test_a_device_that_is_not_there_is_one_sentence():
    with pytest.raises(UsageError, match="cpu or cuda"):
        Device("tpu")
