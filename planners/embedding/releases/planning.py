"""A problem and its planner as the `upstream` variant makes them, for any release of torchrec.

Only what releases from 1.2.0 to 1.9.2 have alike is used, so nothing here may import the modules
beside this folder that work with the installed release alone. A test holds the two together.
"""

import hashlib
import json
from dataclasses import dataclass

import torch
from torch import nn
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.constants import BATCH_SIZE
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import GreedyProposer
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints, ShardingOption
from torchrec.distributed.planner.types import Topology as TorchrecTopology
from torchrec.distributed.types import ShardingType
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from harness.registry import Topology, UsageError, WorkloadSpec
from planners.embedding.tables import Table
from planners.embedding.workloads import MEMORY, load_tables, memory_setting, scaled

_RESERVED_FRACTION = 0.15
_KERNELS = (EmbeddingComputeKernel.FUSED.value, EmbeddingComputeKernel.FUSED_UVM_CACHING.value)
_DATA_TYPES = {"fp32": DataType.FP32, "fp16": DataType.FP16, "bf16": DataType.BF16}


class ModelParallelSharder(EmbeddingBagCollectionSharder):
    """TorchRec's sharder without data parallelism, which neither kernel can do."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        """Return torchrec's sharding types but `data_parallel`, in its order."""
        every: list[str] = super().sharding_types(compute_device_type)
        return [each for each in every if each != ShardingType.DATA_PARALLEL.value]


@dataclass(frozen=True, slots=True)
class ReleaseProblem:
    """Tables to place and where, in the words of the release that is loaded."""

    topology: TorchrecTopology
    module: nn.Module
    constraints: dict[str, ParameterConstraints]
    sharders: list[ModelParallelSharder]

    def enumerator(self) -> EmbeddingEnumerator:
        """Return a new enumerator."""
        return EmbeddingEnumerator(
            topology=self.topology, batch_size=BATCH_SIZE, constraints=self.constraints
        )

    def enumerate(self) -> list[ShardingOption]:
        """Return all options of all tables."""
        found: list[ShardingOption] = self.enumerator().enumerate(self.module, self.sharders)
        return found

    def plan(self) -> list[ShardingOption]:
        """Plan with a new planner and the greedy proposer; a second plan of one may be wrong."""
        planner = EmbeddingShardingPlanner(
            topology=self.topology,
            enumerator=self.enumerator(),
            storage_reservation=FixedPercentageStorageReservation(percentage=_RESERVED_FRACTION),
            proposer=GreedyProposer(),
            partitioner=GreedyPerfPartitioner(),
            constraints=self.constraints,
            stats=[],
            debug=False,
        )
        planner.plan(self.module, self.sharders)
        return list(planner._best_plan or ())


def build(workload: WorkloadSpec, topology: Topology) -> ReleaseProblem:
    """Build a workload on a topology; raises UsageError where the workload is malformed."""
    tables = load_tables(workload)
    memory = memory_setting(workload)
    if memory == "mixed":
        raise UsageError("Releases are measured with tables in GPU memory, not with memory=mixed.")
    if memory is not None:
        usable = int(topology.hbm_bytes * (1 - _RESERVED_FRACTION)) * topology.gpus
        tables = scaled(tables, int(MEMORY[memory] * usable))
    return ReleaseProblem(
        torchrec_topology(topology),
        _module(tables),
        {
            table.name: ParameterConstraints(
                compute_kernels=list(_KERNELS), pooling_factors=list(table.pooling_factors)
            )
            for table in tables
        },
        [ModelParallelSharder()],
    )


def torchrec_topology(topology: Topology) -> TorchrecTopology:
    """Build torchrec's Topology by its constructor, which every release has.

    The factory that 1.8.0 asks for came with 1.6; both give the planner the same figures.
    """
    known = {"ddr_cap": topology.ddr_bytes, "inter_host_bw": topology.inter_host_bw}
    return TorchrecTopology(
        world_size=topology.gpus,
        local_world_size=topology.gpus_in_domain,
        compute_device="cuda",
        hbm_cap=topology.hbm_bytes,
        intra_host_bw=topology.intra_host_bw,
        hbm_mem_bw=topology.hbm_bw,
        hbm_to_ddr_mem_bw=topology.hbm_to_ddr_bw,
        **{name: value for name, value in known.items() if value is not None},
    )


def _module(tables: tuple[Table, ...]) -> nn.Module:
    return EmbeddingBagCollection(
        device=torch.device("meta"),
        tables=[
            EmbeddingBagConfig(
                name=table.name,
                num_embeddings=table.rows,
                embedding_dim=table.dim,
                data_type=_DATA_TYPES[table.dtype],
                feature_names=[f"{table.name}:{index}" for index in range(table.features)],
            )
            for table in tables
        ],
    )


def fingerprint(plan: list[ShardingOption]) -> str:
    """Hash what a plan says about each table, as the family does."""
    said = sorted(
        [
            option.fqn,
            option.sharding_type,
            option.compute_kernel,
            [[shard.size, shard.offset, shard.rank] for shard in option.shards],
        ]
        for option in plan
    )
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def max_rank_ms(problem: ReleaseProblem, plan: list[ShardingOption]) -> float:
    """Return the milliseconds of the slowest rank, by the release's own estimate."""
    milliseconds = [0.0] * problem.topology.world_size
    for option in plan:
        for shard in option.shards:
            milliseconds[shard.rank] += shard.perf.total
    return max(milliseconds)
