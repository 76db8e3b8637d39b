"""Builds a problem and a planner like the `upstream` variant, with any release of torchrec.

This module uses only names that all releases from 1.2.0 to 1.9.2 share, and imports no module that
works with the installed release alone. A test compares it with the variant.
"""

from dataclasses import dataclass

from torch import nn
from torchrec.distributed.planner.constants import BATCH_SIZE
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import GreedyProposer
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints, ShardingOption
from torchrec.distributed.planner.types import Topology as TorchrecTopology

from harness.contract import Topology, UsageError, WorkloadSpec
from planners.embedding.tables.torchrec_objects import (
    RESERVED_FRACTION,
    ModelParallelSharder,
    constraints_of,
    embedding_bags,
)
from planners.embedding.workloads.catalog import MEMORY, load_tables, memory_setting, scaled


@dataclass(frozen=True, slots=True)
class ReleaseProblem:
    """The tables and the topology, as objects of the torchrec release that is imported."""

    topology: TorchrecTopology
    module: nn.Module
    constraints: dict[str, ParameterConstraints]
    sharders: list[ModelParallelSharder]

    def enumerator(self) -> EmbeddingEnumerator:
        """Return a new EmbeddingEnumerator for this topology."""
        return EmbeddingEnumerator(
            topology=self.topology, batch_size=BATCH_SIZE, constraints=self.constraints
        )

    def plan(self) -> list[ShardingOption]:
        """Return the plan of a new planner; a planner that has planned before may plan wrongly."""
        planner = EmbeddingShardingPlanner(
            topology=self.topology,
            enumerator=self.enumerator(),
            storage_reservation=FixedPercentageStorageReservation(percentage=RESERVED_FRACTION),
            proposer=GreedyProposer(),
            partitioner=GreedyPerfPartitioner(),
            constraints=self.constraints,
            stats=[],
            debug=False,
        )
        planner.plan(self.module, self.sharders)
        return list(planner._best_plan or ())


def build(workload: WorkloadSpec, topology: Topology) -> ReleaseProblem:
    """Build a workload on a topology; raises UsageError if the workload is malformed."""
    tables = load_tables(workload)
    memory = memory_setting(workload)
    if memory == "mixed":
        raise UsageError("Releases are measured with tables in GPU memory, not with memory=mixed.")
    if memory is not None:
        usable = int(topology.hbm_bytes * (1 - RESERVED_FRACTION)) * topology.gpus
        tables = scaled(tables, int(MEMORY[memory] * usable))
    return ReleaseProblem(
        torchrec_topology(topology),
        embedding_bags(tables),
        constraints_of(tables),
        [ModelParallelSharder()],
    )


def torchrec_topology(topology: Topology) -> TorchrecTopology:
    """Build torchrec's Topology by its constructor, which every release has.

    The factory that 1.8.0 recommends exists since 1.6; both give the planner the same figures.
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
