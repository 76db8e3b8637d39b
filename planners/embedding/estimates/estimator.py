"""Estimators with a machine's calibrated coefficients, for TorchRec's planner and for ours."""

import copy
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import nn
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.estimator.annotations import backward_compute, forward_compute
from torchrec.distributed.planner.estimator.config import EmbeddingPerfEstimatorConfig
from torchrec.distributed.planner.estimator.estimator import EmbeddingPerfEstimator
from torchrec.distributed.planner.estimator.types import ShardPerfContext
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import (
    BasicCommsBandwidths,
    ParameterConstraints,
    Shard,
    ShardEstimator,
    ShardingOption,
    Topology,
)
from torchrec.distributed.planner.utils import build_sharder_data_map, sharder_name
from torchrec.distributed.types import ModuleSharder

from harness.contract import Machine
from planners.embedding.estimates.calibration import PASSES, Calibration
from planners.embedding.estimates.machines import LINKS, find_machine
from planners.embedding.estimates.memory import OPTIMIZERS, StepStorageEstimator
from planners.embedding.estimates.shard_work import work_of_context
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.options import with_shards
from planners.embedding.search.space import load_of_plan

_FORWARD, _BACKWARD = PASSES
_FUSED, DENSE = EmbeddingComputeKernel.FUSED.value, EmbeddingComputeKernel.DENSE.value


class CalibratedPerfConfig(EmbeddingPerfEstimatorConfig):
    """TorchRec's estimator configuration, with calibrated times of computation.

    Only pooled lookups with fused kernels were measured. A dense (data-parallel) table is estimated
    as a fused one, and a sequence as a pooled lookup that writes a vector for each index.
    """

    name = "calibrated"

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration

    @forward_compute  # type: ignore[untyped-decorator]  # torchrec's
    def forward_ms(self, context: ShardPerfContext) -> float:
        """Return the milliseconds of a shard's forward pass."""
        return self._ms(context, _FORWARD)

    @backward_compute  # type: ignore[untyped-decorator]  # torchrec's
    def backward_ms(self, context: ShardPerfContext) -> float:
        """Return the milliseconds of a shard's backward pass, which includes the weight update."""
        return self._ms(context, _BACKWARD)

    def _ms(self, context: ShardPerfContext, passed: str) -> float:
        work = work_of_context(context)
        if not self.calibration.covers(work.kernel):
            work = replace(work, kernel=_FUSED)
        return self.calibration.shard_ms(work, passed)


def judging_enumerator(
    machine: Machine,
    topology: Topology,
    batch_size: int | None,
    constraints: dict[str, ParameterConstraints] | None,
) -> DistinctShardEnumerator:
    """Return an enumerator of options that a machine has kernels for, with its estimates."""
    made = DistinctShardEnumerator(
        topology,
        batch_size,
        constraints,
        estimator=calibrated_estimators(machine, topology, constraints),
    )
    made.kernels = frozenset({*Calibration(machine.values).kernels, DENSE})
    return made


def calibrated_estimators(
    machine: Machine | str,
    topology: Topology,
    constraints: dict[str, ParameterConstraints] | None = None,
) -> list[ShardEstimator]:
    """Return estimators to pass to TorchRec's `EmbeddingEnumerator`.

    Args:
        machine: a machine, the name of one that shardbench includes, or a file of `shardbench
            calibrate`.
        topology: TorchRec's topology to plan for; the machine's links replace its, if measured.
        constraints: the planner's constraints, by table name.

    Raises UsageError for an unknown machine, and for a file without coefficients.
    """
    values = find_machine(machine).values
    linked = topology
    if LINKS in values:
        linked = copy.copy(topology)
        linked._comms_bandwidths = BasicCommsBandwidths(values[LINKS], values[LINKS])
    config = CalibratedPerfConfig(Calibration(values))
    return [
        EmbeddingPerfEstimator(topology=linked, constraints=constraints, config=config),
        StepStorageEstimator(topology=topology, constraints=constraints),
    ]


def torchrec_estimators(
    topology: Topology, constraints: dict[str, ParameterConstraints] | None = None
) -> list[ShardEstimator]:
    """Return torchrec's own estimators."""
    kinds = EmbeddingPerfEstimator, EmbeddingStorageEstimator
    return [kind(topology=topology, constraints=constraints) for kind in kinds]


def torchrec_peaks(
    plan: Iterable[ShardingOption],
    topology: Topology,
    optimizer: str,
    constraints: dict[str, ParameterConstraints],
    sharders: Iterable[ModuleSharder[nn.Module]],
) -> list[int]:
    """Return TorchRec's estimate for each rank of a plan, in bytes of HBM and host memory."""
    optimized = [copy.copy(option) for option in plan]
    for option in optimized:  # whose tensor has the optimizer
        vars(option)["_tensor"] = torch.empty_like(option.tensor, device="meta")
        option.tensor._optimizer_classes = [OPTIMIZERS[optimizer].kind]
    again = estimated_again(optimized, torchrec_estimators(topology, constraints), sharders)
    used = load_of_plan(again, topology.world_size).used
    return [hbm + ddr for hbm, ddr, _ in used.tolist()]


def estimated_again(
    plan: Iterable[ShardingOption],
    estimators: Iterable[ShardEstimator],
    sharders: Iterable[ModuleSharder[nn.Module]],
) -> list[ShardingOption]:
    """Return copies of a plan's options with the estimates of these estimators."""
    copies = [
        with_shards(
            option, [Shard(shard.size, shard.offset, rank=shard.rank) for shard in option.shards]
        )
        for option in plan
    ]
    by_name = {sharder_name(sharder.module_type): sharder for sharder in sharders}
    for estimator in estimators:
        estimator.estimate(copies, build_sharder_data_map(by_name))
    return copies
