"""Estimators with the coefficients of a calibrated machine, for TorchRec's planner and ours."""

import csv

from torchrec.distributed.planner.estimator.annotations import backward_compute, forward_compute
from torchrec.distributed.planner.estimator.config import EmbeddingPerfEstimatorConfig
from torchrec.distributed.planner.estimator.estimator import (
    EmbeddingPerfEstimator,
    EmbeddingShardingPerfEvaluator,
    get_embedding_perf_sharding_evaluator,
)
from torchrec.distributed.planner.estimator.types import ShardPerfContext
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import ParameterConstraints, ShardEstimator, Topology
from torchrec.distributed.types import ShardingType

from harness.contract import UsageError, read_file
from planners.embedding.calibration.coefficients import Calibration
from planners.embedding.calibration.shards import ShardWork

_WHOLE = "table_wise", "column_wise", "table_column_wise"
_DTYPES = {4.0: "float32", 2.0: "float16"}


class CalibratedPerfConfig(EmbeddingPerfEstimatorConfig):
    """TorchRec's configuration with what shards compute by a calibration, and all else as it is.

    Kernels that were not calibrated keep TorchRec's own estimate.
    """

    name = "calibrated"

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration

    @forward_compute  # type: ignore[untyped-decorator]  # torchrec's
    def forward_ms(self, context: ShardPerfContext) -> float:
        """Return the milliseconds of a shard's forward pass."""
        if not self.calibration.covers(context.compute_kernel):
            return float(_evaluator(context)._default_fwd_comp(context, self))
        return self.calibration.shard_ms(shard_of(context), "forward")

    @backward_compute  # type: ignore[untyped-decorator]  # torchrec's
    def backward_ms(self, context: ShardPerfContext) -> float:
        """Return the milliseconds of a shard's backward pass, the update included."""
        if not self.calibration.covers(context.compute_kernel):
            return float(_evaluator(context)._default_bwd_comp(context, self))
        return self.calibration.shard_ms(shard_of(context), "backward")


def _evaluator(context: ShardPerfContext) -> EmbeddingShardingPerfEvaluator:
    return get_embedding_perf_sharding_evaluator(context.sharding_type, context.is_inference)


def shard_of(context: ShardPerfContext) -> ShardWork:
    """Return what TorchRec asks about as a shard that could be measured."""
    kind = context.sharding_type
    parts = 1
    if kind == ShardingType.ROW_WISE.value:
        parts = context.world_size
    elif kind not in _WHOLE:
        parts = context.intra_group_size
    share = context.hash_size / max(context.hash_size_for_clamping, 1) if parts > 1 else 1.0
    numbers = zip(context.input_lengths, context.num_poolings, strict=True)
    samples = int(context.batch_sizes[0]) * context.world_size
    return ShardWork(
        table=context.table_name,
        kernel=context.compute_kernel,
        sharding_type=kind,
        rows=max(context.hash_size, 1),
        columns=context.emb_dim,
        lookups=tuple(length * poolings * share for length, poolings in numbers),
        samples=samples,
        dtype=_DTYPES.get(context.table_data_type_size, "float32"),
        is_weighted=context.is_weighted,
        share=share,
        row_parts=parts,
    )


def calibrated_estimators(
    calibration: Calibration | str,
    topology: Topology,
    constraints: dict[str, ParameterConstraints] | None = None,
) -> list[ShardEstimator]:
    """Return the estimators to give an `EmbeddingEnumerator` of TorchRec's.

    Args:
        calibration: a calibration, or the topology file that `shardbench calibrate` wrote.
        topology: TorchRec's topology to plan for.
        constraints: TorchRec's, as the planner has them.

    Raises UsageError where the file has no coefficients.
    """
    if isinstance(calibration, str):
        calibration = calibration_in(calibration)
    config = CalibratedPerfConfig(calibration)
    return [
        EmbeddingPerfEstimator(topology=topology, constraints=constraints, config=config),
        EmbeddingStorageEstimator(topology=topology, constraints=constraints),
    ]


def calibration_in(file: str) -> Calibration:
    """Return the calibration in a topology file; raises UsageError where there is none."""
    lines = read_file(file).decode("utf-8-sig", "replace").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    for row in rows:
        if found := Calibration.parse(row.get("coefficients") or ""):
            return found
    raise UsageError(f"{file} has no coefficients; `shardbench calibrate` writes a file with them.")
