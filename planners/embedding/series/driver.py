"""Drives one release or commit of torchrec's planner, in a child process that imports it.

The planner and its problem are those of variant `upstream`; a test compares them. This module uses
only names that all releases from 1.2.0 to 1.9.2 share, and imports no module that works with the
installed release alone.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torchrec
from torch import nn
from torchrec.distributed.planner.constants import BATCH_SIZE
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import GreedyProposer
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    Proposer,
    ShardingOption,
    Topology as TorchrecTopology,
)
from torchrec.distributed.types import ModuleSharder

from harness.contract import Driven, Recorder, Topology, UsageError, WorkloadSpec
from planners.embedding.series.observing import counted, phases
from planners.embedding.tables.torchrec_objects import (
    RESERVED_FRACTION,
    ModelParallelSharder,
    SequenceSharder,
    constraints_of,
    embedding_model,
    plan_fingerprint,
)
from planners.embedding.workloads.catalog import sized_tables, sizes_of


def drive(workload: WorkloadSpec, topology: Topology, planner: str) -> Driven:
    """Return a problem that a new planner plans in each call."""
    problem = build(workload, topology)

    def run(recorder: Recorder) -> list[Any]:
        with phases(recorder), recorder.call():
            return problem.plan(planner or "greedy")

    def parts() -> dict[str, Any]:
        enumerator = problem.enumerator()
        return {
            "enumerate": lambda: enumerator.enumerate(problem.module, problem.sharders),
            "search": lambda: problem.plan(planner or "greedy"),
        }

    def quality(plan: list[Any]) -> dict[str, float]:
        perf: Counter[int] = Counter()  # ms by rank; until 2023-05 a shard's perf was a number
        for option in plan:
            for shard in option.shards:
                perf[shard.rank] += getattr(shard.perf, "total", shard.perf)
        return {"max_rank_ms": max(perf.values())}

    return Driven(torchrec, run, plan_fingerprint, parts, counted, quality)


@dataclass(frozen=True, slots=True)
class ReleaseProblem:
    """The tables and the topology, as objects of the torchrec release that is imported."""

    topology: TorchrecTopology
    module: nn.Module
    constraints: dict[str, ParameterConstraints]
    sharders: list[ModuleSharder[nn.Module]]

    def enumerator(self) -> EmbeddingEnumerator:
        """Return a new EmbeddingEnumerator for this topology."""
        return EmbeddingEnumerator(
            topology=self.topology, batch_size=BATCH_SIZE, constraints=self.constraints
        )

    def plan(self, named: str = "greedy") -> list[ShardingOption]:
        """Return the plan of a new planner; a planner that has planned before may plan wrongly."""
        planner = EmbeddingShardingPlanner(
            topology=self.topology,
            enumerator=self.enumerator(),
            storage_reservation=FixedPercentageStorageReservation(percentage=RESERVED_FRACTION),
            proposer=_proposer(named),
            partitioner=GreedyPerfPartitioner(),
            constraints=self.constraints,
            stats=[],
            debug=False,
        )
        planner.plan(self.module, self.sharders)
        return list(planner._best_plan or ())


def _proposer(named: str) -> Proposer | None:
    """Return the proposer of one of the declared planners, None for those that are the default."""
    if named == "dynamic-programming":  # since 2024-08
        from torchrec.distributed.planner.proposers import DynamicProgrammingProposer

        return DynamicProgrammingProposer()
    return None if named == "default" else GreedyProposer()


def build(workload: WorkloadSpec, topology: Topology) -> ReleaseProblem:
    """Build a workload on a topology; raises UsageError if the workload is malformed."""
    sizes = sizes_of(workload)
    if sizes.memory == "mixed":
        raise UsageError("Releases are measured with tables in GPU memory, not with memory=mixed.")
    usable = int(topology.hbm_bytes * (1 - RESERVED_FRACTION)) * topology.gpus
    tables = sized_tables(workload, usable)
    return ReleaseProblem(
        torchrec_topology(topology),
        embedding_model(tables, sizes.weights),
        constraints_of(tables),
        [ModelParallelSharder(), SequenceSharder()],
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
