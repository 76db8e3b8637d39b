"""A planning problem: tables and a topology, as the torchrec objects that a planner takes."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import types as torchrec_types
from torchrec.distributed.planner.constants import BATCH_SIZE
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import (
    ShardEstimator,
    ShardingOption,
    StorageReservation,
)
from torchrec.distributed.types import ModuleSharder

from harness.contract import Machine, Topology, WorkloadSpec
from planners.embedding.capture.file import CapturedOptions, CapturedProblem
from planners.embedding.estimates.estimator import (
    calibrated_estimators,
    estimated_again,
    judging_enumerator,
    torchrec_estimators,
)
from planners.embedding.estimates.machines import find_machine
from planners.embedding.plan_files.table import PlanTable
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.tables.files import Table
from planners.embedding.tables.torchrec_objects import (
    KERNELS,
    RESERVED_FRACTION,
    ModelParallelSharder,
    SequenceSharder,
    constraints_of,
    embedding_model,
    module_paths,
    weights_digest,
)
from planners.embedding.workloads.catalog import assigned, load_tables, sized_tables, sizes_of
from planners.embedding.workloads.mixture import mixture

# The share of the tables' bytes that fits into host memory in a `mixed` problem. The tables take
# twice the usable HBM. At least 0.63 of their bytes must leave HBM, since a cached table keeps a
# fifth there. At 0.75 no proposer of torchrec 1.8.0 places synthetic[tables=30,seed=7] on 16 GPUs.
_MIXED_DDR_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class MoveBudget:
    """The current plan of the tables, and the GiB that a new plan may move.

    `effort` is the work allowed for a front of plans, as a fraction of the usual work.
    """

    previous: PlanTable
    gib: float
    effort: float = 1.0


@dataclass(frozen=True, slots=True)
class EmbeddingProblem:
    """Tables and topology: the arguments of `EmbeddingShardingPlanner` and of its `plan`."""

    tables: tuple[Table, ...]
    topology: torchrec_types.Topology
    module: nn.Module
    constraints: dict[str, torchrec_types.ParameterConstraints]
    sharders: list[ModuleSharder[nn.Module]]
    usable_hbm: tuple[int, ...]  # bytes that the planner may fill, for each rank
    usable_ddr: tuple[int, ...]
    memory: str
    assigned: str
    paths: tuple[str, ...] = ()  # of each table's module; empty if all are in the model itself
    batch_size: int = BATCH_SIZE
    kernels: frozenset[str] = frozenset(KERNELS)
    reservation: Callable[[], StorageReservation] | None = None
    options: CapturedOptions | None = None  # only for a captured problem, as `live`
    live: CapturedProblem | None = None
    machine: Machine | None = None  # whose estimate judges plans, else TorchRec's does
    search_seconds: float | None = None  # for variants that have a time limit
    moving: MoveBudget | None = None  # for variants that can limit the bytes moved
    weights_digest: str = ""  # of a model with real weights, which planning must not change
    changes: tuple[str, ...] = ()  # sentences: what a remedy changed in the problem asked for
    # Figures that hold for every plan, such as `bound_ms`, once they are computed.
    known: dict[str, float] = field(default_factory=dict, compare=False, repr=False)

    @property
    def fqns(self) -> tuple[str, ...]:
        """Torchrec's name of each table: its module's path, a dot, and the table's name."""
        paths = self.paths or ("",) * len(self.tables)
        return tuple(f"{path}.{table.name}" for path, table in zip(paths, self.tables, strict=True))

    def storage_reservation(self) -> StorageReservation:
        """Return a new storage reservation; a reservation keeps state, so each plan needs one."""
        if self.reservation is not None:
            return self.reservation()
        return FixedPercentageStorageReservation(percentage=RESERVED_FRACTION)

    def reserved(self, topology: torchrec_types.Topology | None = None) -> torchrec_types.Topology:
        """Return the topology, by default the problem's, with the memory that a reservation leaves.

        Raises torchrec's PlannerError if the reservation needs more than there is.
        """
        return self.storage_reservation().reserve(
            topology=topology or self.topology,
            batch_size=self.batch_size,
            module=self.module,
            sharders=self.sharders,
            constraints=self.constraints,
        )

    def enumerator(
        self, kind: type[EmbeddingEnumerator], estimators: list[ShardEstimator] | None = None
    ) -> EmbeddingEnumerator:
        """Return a new enumerator of class `kind`, with torchrec's estimators by default.

        For a captured problem it returns the captured options.
        """
        make = kind if self.options is None else self.options.enumerating(kind)
        return make(
            topology=self.topology,
            batch_size=self.batch_size,
            constraints=self.constraints,
            estimator=estimators,
        )

    def judging_enumerator(self) -> EmbeddingEnumerator:
        """Return a new enumerator of options with the estimates by which plans are judged."""
        if self.machine is None:
            return self.enumerator(DistinctShardEnumerator)
        return judging_enumerator(self.machine, self.topology, self.batch_size, self.constraints)

    def judged(self, plan: Sequence[ShardingOption]) -> Sequence[ShardingOption]:
        """Return the options of a plan with the estimates by which plans are judged."""
        if self.machine is None:
            return plan
        estimators = calibrated_estimators(self.machine, self.topology, self.constraints)
        return estimated_again(plan, estimators, self.sharders)

    def by_torchrec(self, plan: Sequence[ShardingOption]) -> Sequence[ShardingOption]:
        """Return the options of a plan with torchrec's estimates."""
        if self.machine is None:
            return plan
        return estimated_again(
            plan, torchrec_estimators(self.topology, self.constraints), self.sharders
        )

    def facts(self) -> dict[str, float | str]:
        """Return facts that describe the problem; the first one, `tables`, is its size."""
        return {
            "tables": len(self.tables),
            "features": sum(table.features for table in self.tables),
            "table GiB": round(sum(table.bytes for table in self.tables) / 2**30, 2),
            "usable HBM GiB": round(max(sum(self.usable_hbm), 0) / 2**30, 2),
            "usable DDR GiB": round(sum(self.usable_ddr) / 2**30, 2),
            "batch size": self.batch_size,
            "memory": self.memory,
            "assigned": self.assigned,
            **({"estimate": self.machine.name} if self.machine else {}),
            **({"live plan": self.live.decision} if self.live else {}),
        }


def build(workload: WorkloadSpec, topology: Topology) -> EmbeddingProblem:
    """Build the planning problem of a workload; raises UsageError if the workload is malformed."""
    if workload.name == "mixture":
        tables, drawn = load_tables(workload), mixture(workload)
        topology, weights = drawn.on(topology, tables), "meta"
        memory = f"HBM {drawn.hbm:g} and DDR {drawn.ddr:g} of the tables"
        constraints, kernels = drawn.constraints(tables), drawn.kernels
        sharders: list[ModuleSharder[nn.Module]] = [EmbeddingBagCollectionSharder()]
    else:
        sizes = sizes_of(workload)
        usable_hbm = int(topology.hbm_bytes * (1 - RESERVED_FRACTION)) * topology.gpus
        tables = sized_tables(workload, usable_hbm)
        if sizes.memory == "mixed":
            wanted = int(_MIXED_DDR_SHARE * sum(table.bytes for table in tables)) // topology.gpus
            topology = replace(topology, ddr_bytes=min(wanted, topology.ddr_bytes or wanted))
        memory, weights = sizes.memory or "as listed", sizes.weights
        constraints, kernels = constraints_of(tables), KERNELS
        sharders = [ModelParallelSharder(), SequenceSharder()]
    machines = torchrec_topology(topology)
    module = embedding_model(tables, weights)
    storage = machines.devices[0].storage
    return EmbeddingProblem(
        tables=tables,
        topology=machines,
        module=module,
        constraints=constraints,
        sharders=sharders,
        paths=module_paths(tables),
        usable_hbm=(int((1 - RESERVED_FRACTION) * storage.hbm),) * topology.gpus,
        usable_ddr=(storage.ddr,) * topology.gpus,
        memory=memory,
        assigned=assigned(workload.name),
        kernels=frozenset(kernels),
        machine=find_machine(topology.machine) if topology.machine else None,
        weights_digest=weights_digest(module),
    )


def torchrec_topology(topology: Topology) -> torchrec_types.Topology:
    """Build torchrec's Topology, with workarounds for torchrec 1.9.2.

    The factory ignores bandwidths unless a flag is set. `pod_size` changes no bandwidth, so an
    NVLink domain of several hosts is passed as one large host.
    """
    return torchrec_types.TopologyFactory.create_topology(
        trainer_config=torchrec_types.TrainerConfig(
            world_size=topology.gpus, local_world_size=topology.gpus_in_domain
        ),
        hardware_config=torchrec_types.HardwareConfig(
            hbm_cap_bytes=topology.hbm_bytes,
            ddr_cap_bytes=topology.ddr_bytes,
            intra_host_bw=topology.intra_host_bw,
            inter_host_bw=topology.inter_host_bw,
            hbm_mem_bw=topology.hbm_bw,
            hbm_to_ddr_mem_bw=topology.hbm_to_ddr_bw,
        ),
        kernel_config=torchrec_types.KernelConfig(
            compute_device="cuda", use_hardware_based_bandwidth=True
        ),
    )


def changed(problem: EmbeddingProblem, **fields: Any) -> EmbeddingProblem:
    """Return the problem with other fields, and the memory that its reservation then leaves."""
    other = replace(problem, known={}, moving=None, live=None, **fields)
    left = [device.storage for device in memory_left(other).devices]
    return replace(
        other,
        usable_hbm=tuple(storage.hbm for storage in left),
        usable_ddr=tuple(storage.ddr for storage in left),
    )


def memory_left(
    problem: EmbeddingProblem, topology: torchrec_types.Topology | None = None
) -> torchrec_types.Topology:
    """Return the topology, by default the problem's, with the memory that a reservation leaves.

    If the reservation needs more than there is, less than no HBM is left: -1 byte.
    """
    try:
        return problem.reserved(topology)
    except torchrec_types.PlannerError:
        return with_memory(topology or problem.topology, hbm=-1)


def with_memory(topology: torchrec_types.Topology, **amounts: int) -> torchrec_types.Topology:
    """Return a copy of a topology whose devices all have `hbm` or `ddr` bytes of memory."""
    other = copy.copy(topology)
    other._devices = [
        replace(device, storage=replace(device.storage, **amounts)) for device in topology.devices
    ]
    return other
