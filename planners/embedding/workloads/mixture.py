"""Generates varied test problems: table sizes, kernels, sharding types, scarce memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from torchrec.distributed.embedding_types import EmbeddingComputeKernel as Kernel
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.types import ShardingType

from harness.contract import Topology, WorkloadSpec, read_parameters
from planners.embedding.tables.files import Table
from planners.embedding.tables.torchrec_objects import RESERVED_FRACTION
from planners.embedding.workloads.catalog import DDR, HBM, KernelSet, MixtureParameters

_KERNELS: dict[KernelSet, tuple[Kernel, ...]] = {
    "all": (Kernel.DENSE, Kernel.FUSED, Kernel.FUSED_UVM, Kernel.FUSED_UVM_CACHING),
    "cached": (Kernel.FUSED, Kernel.FUSED_UVM_CACHING),
    "fused": (Kernel.FUSED,),
}
_TYPES = (
    tuple(ShardingType),
    (ShardingType.TABLE_WISE, ShardingType.ROW_WISE, ShardingType.COLUMN_WISE),
    (ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE),
    (ShardingType.ROW_WISE, ShardingType.TABLE_ROW_WISE, ShardingType.TABLE_COLUMN_WISE),
)
_SPARE = (0, 10 * 10**6, 60 * 10**6)  # bytes
_MIN_PARTITIONS = (None, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Mixture:
    """The constraints and the memory of a generated problem."""

    kernels: tuple[str, ...]
    sharding_types: tuple[str, ...]
    min_partition: int | None  # columns of a shard
    hbm: float  # of all ranks together, as a share of the tables' bytes
    spare: int  # bytes of HBM that each rank has in addition
    ddr: float

    def constraints(self, tables: Sequence[Table]) -> dict[str, ParameterConstraints]:
        """Return each table's constraints; `min_partition` is at most the table's dimension."""
        return {
            table.name: ParameterConstraints(
                sharding_types=list(self.sharding_types),
                compute_kernels=list(self.kernels),
                min_partition=self.min_partition and min(self.min_partition, table.dim),
                pooling_factors=list(table.pooling_factors),
            )
            for table in tables
        }

    def on(self, topology: Topology, tables: Sequence[Table]) -> Topology:
        """Return the topology with this mixture's HBM and DDR, as shares of the tables' bytes."""
        size = sum(table.bytes for table in tables) / topology.gpus
        return replace(
            topology,
            hbm_bytes=int((self.hbm * size + self.spare) / (1 - RESERVED_FRACTION)) + 1,
            ddr_bytes=int(self.ddr * size),
        )


def mixture(spec: WorkloadSpec) -> Mixture:
    """Return the Mixture of a workload `mixture[...]`; missing parameters are drawn by its seed."""
    asked = read_parameters(spec, MixtureParameters)
    random = Random(f"mixture/{asked.seed}")
    kernels = random.choice(tuple(_KERNELS))
    types = random.choice([_TYPES[0], random.choice(_TYPES[1:])])
    min_partition, hbm = random.choice(_MIN_PARTITIONS), random.choice(HBM)
    spare, ddr = random.choice(_SPARE), random.choice(DDR)
    return Mixture(
        kernels=tuple(kernel.value for kernel in _KERNELS[asked.kernels or kernels]),
        sharding_types=tuple(sharding_type.value for sharding_type in types),
        min_partition=min_partition,
        hbm=asked.hbm or hbm,
        spare=spare,
        ddr=asked.ddr or ddr,
    )
