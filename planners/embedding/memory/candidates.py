"""Plans to measure the memory of: their ranks, with TorchRec's estimate and ours."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torchrec.distributed.planner.planners import to_sharding_plan
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import (
    KernelConfig,
    Shard,
    ShardingOption,
    Topology,
    TopologyFactory,
    TrainerConfig,
)
from torchrec.distributed.planner.utils import build_sharder_data_map, sharder_name
from torchrec.distributed.types import PipelineType

from harness.contract import NotApplicable, RankMemory
from planners.embedding.decision import Plan
from planners.embedding.memory.rank_bytes import measure_rank
from planners.embedding.memory.rank_model import RankJob
from planners.embedding.memory.shard_bytes import (
    CACHED,
    INPUTS,
    OF_RANK,
    OPTIMIZER,
    OPTIMIZERS,
    OUTPUTS,
    PEAK,
    WEIGHTS,
    Terms,
    derived_terms,
)
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.search.options import with_shards

_NOT_ON_CPU = "adam"

# TorchRec's estimate of a pipelined job counts inputs twice, and outputs only on request.
_PIPELINED: dict[str, Any] = {"pipeline_type": PipelineType.TRAIN_SPARSE_DIST}


def memory_candidates(
    problem: EmbeddingProblem, plans: Sequence[tuple[str, Plan]], device: str, seed: int
) -> list[RankMemory]:
    """Return the ranks of each plan with the most and the least memory, with each optimizer.

    Raises NotApplicable unless all tables are pooled. On a CPU, ranks with an empty shard are left
    out, because fbgemm's backward pass fails on these at random.
    """
    if other := next((table for table in problem.tables if table.lookup != "pooled"), None):
        raise NotApplicable(
            f"Memory is measured for pooled tables; {other.name} is {other.lookup}."
        )
    if problem.live is not None or problem.paths:
        raise NotApplicable("Memory is measured for tables, not for the model of a captured file.")
    names = [name for name in OPTIMIZERS if device == "cuda" or name != _NOT_ON_CPU]
    return [
        rank
        for name, plan in plans
        for optimizer in names
        for rank in _ranks(problem, name, plan, optimizer, device, seed)
    ]


def rank_jobs(
    problem: EmbeddingProblem, plan: Plan, optimizer: str, device: str, seed: int = 0
) -> dict[int, RankJob]:
    """Return the jobs that play a plan's ranks on one device, by rank.

    On a CPU, ranks with an empty shard are left out.
    """
    topology, options = problem.topology, _in_order(problem, plan)
    kernels: dict[str, str] = {}
    for option in options:
        kernel = kernels.setdefault(option.sharding_type, option.compute_kernel)
        if kernel != option.compute_kernel:
            kernels[option.sharding_type] = "several kernels"
    empty = {
        shard.rank for option in options for shard in option.shards if not math.prod(shard.size)
    }
    made = to_sharding_plan(options, _one_device(topology.world_size, device))
    return {
        rank: RankJob(
            problem.tables,
            made,
            rank,
            topology.world_size,
            topology.intra_group_size,
            problem.batch_size,
            optimizer,
            device,
            {kind: f"{kind}, {kernel}" for kind, kernel in kernels.items()},
            seed,
        )
        for rank in range(topology.world_size)
        if device == "cuda" or rank not in empty
    }


def _in_order(problem: EmbeddingProblem, plan: Plan) -> list[ShardingOption]:
    """Return a plan's options in the order of the tables, and so of the module's groups."""
    order = {name: number for number, name in enumerate(problem.fqns)}
    return sorted(plan.options, key=lambda option: order[option.fqn])


def _one_device(ranks: int, device: str) -> Topology:
    """Return a topology that places the shards of all ranks on the first device of their host."""
    return TopologyFactory.create_topology(
        trainer_config=TrainerConfig(world_size=ranks, local_world_size=1),
        kernel_config=KernelConfig(compute_device=device),
    )


def _ranks(
    problem: EmbeddingProblem, name: str, plan: Plan, optimizer: str, device: str, seed: int
) -> Iterator[RankMemory]:
    options = _in_order(problem, plan)
    estimates = {
        "torchrec": torchrec_terms(problem, options, optimizer),
        "calibrated": derived_terms(options, problem.topology, optimizer),
    }
    peaks = [terms[OF_RANK][PEAK] for terms in estimates["calibrated"]]
    jobs = rank_jobs(problem, plan, optimizer, device, seed)
    usable = sorted(jobs, key=peaks.__getitem__)
    for rank in sorted({*usable[:1], *usable[-1:]}):
        job = jobs[rank]
        estimated = {
            estimate: {job.names.get(kind, kind): terms for kind, terms in by_rank[rank].items()}
            for estimate, by_rank in estimates.items()
        }
        yield RankMemory(name, optimizer, rank, measure_rank, job, estimated)


def torchrec_terms(
    problem: EmbeddingProblem, plan: Sequence[ShardingOption], optimizer: str
) -> list[Terms]:
    """Return TorchRec's estimate for each rank of a plan, in bytes of HBM and host memory.

    Its estimator returns sums only. So each term is a difference of two settings.
    """
    sums = zip(
        _estimated(problem, plan, is_inference=True),
        _estimated(problem, plan),
        _estimated(problem, plan, optimizer),
        _estimated(problem, plan, **_PIPELINED),
        _estimated(problem, plan, **_PIPELINED, run_embedding_at_peak_memory=True),
        strict=True,
    )
    ranks: list[Terms] = [{OF_RANK: {PEAK: 0}} for _ in problem.topology.devices]
    shards = [(option.sharding_type, shard.rank) for option in plan for shard in option.shards]
    for (kind, rank), (weights, default, trained, pipelined, at_peak) in zip(
        shards, sums, strict=True
    ):
        outputs = at_peak - pipelined
        inputs = pipelined - (default - outputs)
        terms = {
            WEIGHTS: weights,
            OPTIMIZER: trained - default,
            CACHED: default - weights - inputs - outputs,
            INPUTS: inputs,
            OUTPUTS: outputs,
        }
        summed = ranks[rank or 0].setdefault(kind, dict.fromkeys(terms, 0))
        for term, size in terms.items():
            summed[term] += size
            ranks[rank or 0][OF_RANK][PEAK] += size
    return ranks


def _estimated(
    problem: EmbeddingProblem, plan: Sequence[ShardingOption], optimizer: str = "", **settings: Any
) -> list[int]:
    """Return TorchRec's bytes of each shard of a plan, with these settings of its estimator."""
    copies = []
    for option in plan:
        tensor = torch.empty(option.tensor.shape, dtype=option.tensor.dtype, device="meta")
        if optimizer:
            tensor._optimizer_classes = [OPTIMIZERS[optimizer].kind]
        copied = with_shards(option, [Shard(shard.size, shard.offset) for shard in option.shards])
        vars(copied)["_tensor"] = tensor
        copies.append(copied)
    estimator = EmbeddingStorageEstimator(
        topology=problem.topology, constraints=problem.constraints, **settings
    )
    sharders = {sharder_name(sharder.module_type): sharder for sharder in problem.sharders}
    estimator.estimate(copies, build_sharder_data_map(sharders))
    return [shard.storage.hbm + shard.storage.ddr for copied in copies for shard in copied.shards]
