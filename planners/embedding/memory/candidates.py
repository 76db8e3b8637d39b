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
    TopologyFactory,
    TrainerConfig,
)
from torchrec.distributed.planner.utils import build_sharder_data_map, sharder_name
from torchrec.distributed.types import PipelineType

from harness.contract import NotApplicable, RankMemory
from planners.embedding.decision import Plan
from planners.embedding.memory.estimator import (
    INPUTS,
    OF_RANK,
    OPTIMIZER,
    OPTIMIZERS,
    OUTPUTS,
    PEAK,
    WEIGHTS,
    Terms,
    derived_terms,
    group_of,
)
from planners.embedding.memory.rank import RankJob, measure_rank
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.search.options import with_shards


def memory_candidates(
    problem: EmbeddingProblem, plans: Sequence[tuple[str, Plan]], device: str, seed: int
) -> Iterator[RankMemory]:
    """Yield the ranks of each plan with the most and the least memory, with each optimizer.

    Raises NotApplicable unless all tables are pooled. On a CPU, ranks with an empty shard are left
    out, because fbgemm's backward pass fails on these at random.
    """
    if other := next((table for table in problem.tables if table.lookup != "pooled"), None):
        raise NotApplicable(
            f"Memory is measured for pooled tables; {other.name} is {other.lookup}."
        )
    if problem.paths:
        raise NotApplicable("Memory is measured for tables, not for the model of a captured file.")
    # fbgemm has no Adam on a CPU.
    optimizers = [name for name in OPTIMIZERS if device == "cuda" or name != "adam"]
    for name, plan in plans:
        options = _in_order(problem, plan)
        for optimizer in optimizers:
            jobs = rank_jobs(problem, plan, optimizer, device, seed)
            derived = derived_terms(options, problem.topology, optimizer)
            torchrecs = torchrec_terms(problem, options, optimizer)
            by_peak = sorted(jobs, key=lambda rank: derived[rank][OF_RANK][PEAK])
            for rank in sorted({*by_peak[:1], *by_peak[-1:]}):
                estimated = {"torchrec": torchrecs[rank], "calibrated": derived[rank]}
                yield RankMemory(name, optimizer, rank, measure_rank, jobs[rank], estimated)


def rank_jobs(
    problem: EmbeddingProblem, plan: Plan, optimizer: str, device: str, seed: int = 0
) -> dict[int, RankJob]:
    """Return the jobs that play a plan's ranks on one device, by rank.

    On a CPU, ranks with an empty shard are left out.
    """
    topology, options = problem.topology, _in_order(problem, plan)
    empty = {
        shard.rank for option in options for shard in option.shards if not math.prod(shard.size)
    }
    # The shards of all ranks are placed on the first device of a host.
    one_device = TopologyFactory.create_topology(
        trainer_config=TrainerConfig(world_size=topology.world_size, local_world_size=1),
        kernel_config=KernelConfig(compute_device=device),
    )
    placed = to_sharding_plan(options, one_device)
    return {
        rank: RankJob(
            problem.tables,
            placed,
            rank,
            topology.world_size,
            topology.intra_group_size,
            problem.batch_size,
            optimizer,
            device,
            seed,
        )
        for rank in range(topology.world_size)
        if device == "cuda" or rank not in empty
    }


def _in_order(problem: EmbeddingProblem, plan: Plan) -> list[ShardingOption]:
    """Return a plan's options in the order of the tables, and so of the module's groups."""
    order = {name: number for number, name in enumerate(problem.fqns)}
    return sorted(plan.options, key=lambda option: order[option.fqn])


def torchrec_terms(
    problem: EmbeddingProblem, plan: Sequence[ShardingOption], optimizer: str
) -> list[Terms]:
    """Return TorchRec's estimate for each rank of a plan, in bytes of HBM and host memory.

    Its estimator returns sums only. So each term is a difference of two settings.
    """
    copies = []  # estimates overwrite shards, and an optimizer is attached to the tensor
    for option in plan:
        copied = with_shards(option, [Shard(shard.size, shard.offset) for shard in option.shards])
        vars(copied)["_tensor"] = torch.empty_like(option.tensor, device="meta")
        copies.append(copied)
    sharders = {sharder_name(sharder.module_type): sharder for sharder in problem.sharders}

    def estimated(**settings: Any) -> list[int]:
        estimator = EmbeddingStorageEstimator(problem.topology, problem.constraints, **settings)
        estimator.estimate(copies, build_sharder_data_map(sharders))
        return [s.storage.hbm + s.storage.ddr for copied in copies for s in copied.shards]

    weights = estimated(is_inference=True)
    untrained = estimated()
    # The estimate of a pipelined job counts inputs twice, and outputs not at all.
    pipelined = estimated(pipeline_type=PipelineType.TRAIN_SPARSE_DIST)
    for copied in copies:
        copied.tensor._optimizer_classes = [OPTIMIZERS[optimizer].kind]
    trained = estimated()
    ranks: list[Terms] = [{OF_RANK: {PEAK: 0}} for _ in problem.topology.devices]
    shards = [(group_of(option.sharding_type), s.rank) for option in plan for s in option.shards]
    for (group, rank), weight, total, twice, whole in zip(
        shards, weights, untrained, pipelined, trained, strict=True
    ):
        inputs = (twice - weight) // 2
        terms = {
            WEIGHTS: weight,
            OPTIMIZER: whole - total,
            INPUTS: inputs,
            OUTPUTS: total - weight - inputs,
        }
        summed = ranks[rank].setdefault(group, dict.fromkeys(terms, 0))
        for term, size in terms.items():
            summed[term] += size
        ranks[rank][OF_RANK][PEAK] += whole
    return ranks
