"""Plans to measure the memory of: their ranks, with TorchRec's estimate and ours."""

import math
from collections.abc import Iterator, Sequence

from torchrec.distributed.planner.planners import to_sharding_plan
from torchrec.distributed.planner.types import (
    KernelConfig,
    Topology,
    TopologyFactory,
    TrainerConfig,
)

from harness.contract import MemoryCandidate, NotApplicable, RankMemory
from planners.embedding.decision import Plan
from planners.embedding.memory.rank_bytes import OF_RANK, OPTIMIZERS, PEAK, RankJob, measure_rank
from planners.embedding.memory.step_peak import derived_terms
from planners.embedding.memory.torchrec_terms import torchrec_terms
from planners.embedding.problem import EmbeddingProblem

_NOT_ON_CPU = "adam"


def memory_candidates(
    problem: EmbeddingProblem, plans: Sequence[tuple[str, Plan]], device: str, seed: int
) -> list[MemoryCandidate]:
    """Return each plan with each optimizer; raises NotApplicable for another model than tables.

    Of each plan, the ranks with the most and with the least memory are measured. On a CPU, ranks
    with an empty shard are left out, because fbgemm's backward pass fails on these at random.
    """
    if problem.live is not None or problem.paths:
        raise NotApplicable("Memory is measured for tables, not for the model of a captured file.")
    names = [name for name in OPTIMIZERS if device == "cuda" or name != _NOT_ON_CPU]
    return [
        MemoryCandidate(name, optimizer, [*_ranks(problem, plan, optimizer, device, seed)])
        for name, plan in plans
        for optimizer in names
    ]


def _ranks(
    problem: EmbeddingProblem, plan: Plan, optimizer: str, device: str, seed: int
) -> Iterator[RankMemory]:
    topology = problem.topology
    # As the options are in the order of the tables, so are the groups of the sharded module.
    order = {name: number for number, name in enumerate(problem.fqns)}
    options = sorted(plan.options, key=lambda option: order[option.fqn])
    estimates = {
        "torchrec": torchrec_terms(problem, options, optimizer),
        "calibrated": derived_terms(options, topology, optimizer),
    }
    kernels: dict[str, str] = {}
    for option in options:
        kernel = kernels.setdefault(option.sharding_type, option.compute_kernel)
        if kernel != option.compute_kernel:
            kernels[option.sharding_type] = "several kernels"
    peaks = [terms[OF_RANK][PEAK] for terms in estimates["calibrated"]]
    empty = {
        shard.rank for option in options for shard in option.shards if not math.prod(shard.size)
    }
    usable = sorted(
        (rank for rank in range(topology.world_size) if device == "cuda" or rank not in empty),
        key=peaks.__getitem__,
    )
    made = to_sharding_plan(options, _on(topology, device))
    for rank in sorted({*usable[:1], *usable[-1:]}):
        job = RankJob(
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
        estimated = {
            name: {job.names.get(kind, kind): terms for kind, terms in by_rank[rank].items()}
            for name, by_rank in estimates.items()
        }
        yield RankMemory(rank, measure_rank, job, estimated)


def _on(topology: Topology, device: str) -> Topology:
    return TopologyFactory.create_topology(
        trainer_config=TrainerConfig(
            world_size=topology.world_size, local_world_size=topology.intra_group_size
        ),
        kernel_config=KernelConfig(compute_device=device),
    )
