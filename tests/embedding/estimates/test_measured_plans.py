"""Plans of a small problem, and real kernels that compute their ranks."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from harness.contract import UsageError, WorkloadSpec
from harness.contract.abilities.estimates import BenchOptions
from harness.contract.registry import load_registry
from harness.topologies.lookup import find_topology
from planners.embedding.decision import fingerprint, validate
from planners.embedding.estimates.calibration import torchrec_bytes
from planners.embedding.estimates.device import Device
from planners.embedding.estimates.different_plans import different_plans
from planners.embedding.estimates.kernels import RankKernels
from planners.embedding.estimates.lookup_distributions import Uniform
from planners.embedding.estimates.shard_work import ShardWork, shards_by_rank
from planners.embedding.estimates.workbench import Workbench
from planners.embedding.problem import EmbeddingProblem

FAMILY = load_registry().find("embedding")
WORKLOAD = WorkloadSpec("synthetic", {"tables": "6", "seed": "3", "memory": "roomy"})


@pytest.fixture(scope="module")
def problem() -> EmbeddingProblem:
    return FAMILY.work.build(WORKLOAD, find_topology("dgx_a100_80gb", 4))


@pytest.fixture(scope="module")
def plans(problem: EmbeddingProblem):
    return different_plans(problem, 8, 0)


def kernels_on(device: Device, *shards: ShardWork) -> RankKernels:
    return RankKernels(shards, device, Uniform(), 0)


def test_plans_to_measure_are_different_valid_and_spread(problem: EmbeddingProblem, plans):
    assert len({fingerprint(plan) for _, plan in plans}) == len(plans) == 8
    for _, plan in plans:
        validate(problem, plan)
    slowest = [FAMILY.work.quality(problem, plan)["max_rank_ms"] for _, plan in plans]
    assert max(slowest) > 1.3 * min(slowest)
    assert "certified" in plans[0][0]


def test_estimates_that_are_worked_out_here_are_torchrecs_own(problem: EmbeddingProblem, plans):
    bandwidth = problem.topology.hbm_mem_bw
    compared = 0
    for _, plan in plans:
        for rank in shards_by_rank(plan.options, problem.topology):
            for work, shard in rank:
                is_even = work.share * work.row_parts == pytest.approx(1, rel=1e-9)
                if work.kernel == "fused" and is_even:
                    assert torchrec_bytes(work) / bandwidth == pytest.approx(
                        shard.perf.fwd_compute, rel=1e-6
                    )
                    compared += 1
    assert compared > 20


@pytest.mark.parametrize("is_weighted", [False, True])
def test_kernels_of_a_rank_look_up_and_learn(is_weighted: bool):
    kernels = kernels_on(
        Device("cpu"),
        ShardWork("a", "fused", "table_wise", 100, 8, (3.0,), 32, is_weighted=is_weighted),
        ShardWork("b", "fused", "row_wise", 50, 16, (0.5, 1.0), 32, share=0.25, row_parts=4),
    )
    outputs = [tuple(output.shape) for output in kernels._outputs]
    assert outputs == [(32, 8), (32, 32)]
    before = [output.detach().clone() for output in kernels._outputs]
    kernels.backward()
    kernels.forward()
    assert all(not (a == b).all() for a, b in zip(before, kernels._outputs, strict=True))


def test_tables_of_one_sharding_type_share_a_kernel_as_in_torchrec():
    shards = [ShardWork(str(n), "fused", "table_wise", 10, 4 * n, (1.0,), 8) for n in (1, 2, 3)]
    other = ShardWork("r", "fused", "row_wise", 10, 4, (1.0,), 8)
    kernels = kernels_on(Device("cpu"), *shards, other)
    assert [tuple(output.shape) for output in kernels._outputs] == [(8, 24), (8, 4)]


def test_a_backward_pass_has_a_forward_pass_before_it_that_is_not_timed():
    shard = ShardWork("a", "fused", "table_wise", 100, 8, (3.0,), 32)
    passes = kernels_on(Device("cpu"), shard).passes()
    for _ in range(2):
        passes["backward"].begin()
        passes["backward"].run()


def test_ranks_are_cut_to_the_memory_that_there_is_with_a_note(problem: EmbeddingProblem):
    found = Workbench(BenchOptions("cpu", "uniform", 0.05)).candidates(problem, 3)
    assert any("rows at most" in note for note in found.notes)
    assert any("keep to kernel 'fused'" in note for note in found.notes)
    keys = {rank.work.key for decision in found.decisions for rank in decision.ranks}
    assert len(keys) <= 3 * 4
    passes: Mapping = found.decisions[0].ranks[0].work.passes()
    passes["both"].run()


def test_lookups_that_do_not_fit_into_memory_are_one_sentence(problem: EmbeddingProblem):
    with pytest.raises(UsageError, match=r"lookups of a rank take .* GiB.*--memory allows 0\.001"):
        Workbench(BenchOptions("cpu", "uniform", 0.001)).candidates(problem, 3)


def test_ranks_share_the_memory_of_the_largest_one():
    shards = [ShardWork(str(n), "fused", "table_wise", 30_000, 8, (1.0,), 8) for n in range(3)]
    other = [replace(shards[0], rows=50_000), replace(shards[0], sharding_type="row_wise")]
    device = Device("cpu")
    device.make_room([shards, other])
    places = [kernel_memory(kernels_on(device, *rank)) for rank in (shards, other)]
    assert places[0][0] == places[1][0]
    assert max(map(max, places)) - places[0][0] < 1.01 * 4 * 3 * 30_000 * (8 + 1)
    assert len(set(places[1])) == len(places[1])  # the tables of one rank do not overlap


def kernel_memory(rank: RankKernels) -> list[int]:
    """Return the addresses of a rank's tables and of their optimizer's state."""
    kernels = [group.lookup for group in rank._groups]
    return [held.data_ptr() for k in kernels for held in (k.weights_host, k.momentum1_host)]
