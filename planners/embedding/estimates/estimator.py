"""Estimators with a machine's calibrated coefficients, for TorchRec's planner and for ours."""

import csv

from torchrec.distributed.planner.estimator.annotations import backward_compute, forward_compute
from torchrec.distributed.planner.estimator.config import EmbeddingPerfEstimatorConfig
from torchrec.distributed.planner.estimator.estimator import (
    EmbeddingPerfEstimator,
    get_embedding_perf_sharding_evaluator,
)
from torchrec.distributed.planner.estimator.types import ShardPerfContext
from torchrec.distributed.planner.types import ParameterConstraints, ShardEstimator, Topology

from harness.contract import UsageError, read_file
from planners.embedding.coefficients import read_coefficients
from planners.embedding.estimates.calibration import PASSES, Calibration
from planners.embedding.estimates.memory import StepStorageEstimator
from planners.embedding.estimates.shard_work import work_of_context

_FORWARD, _BACKWARD = PASSES


class CalibratedPerfConfig(EmbeddingPerfEstimatorConfig):
    """TorchRec's estimator configuration, with calibrated times of computation.

    Kernels without coefficients, and sequences, keep TorchRec's own estimate.
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
        if context.is_pooled and self.calibration.covers(context.compute_kernel):
            return self.calibration.shard_ms(work_of_context(context), passed)
        own = get_embedding_perf_sharding_evaluator(context.sharding_type, context.is_inference)
        estimate = own._default_fwd_comp if passed == _FORWARD else own._default_bwd_comp
        return float(estimate(context, self))


def calibrated_estimators(
    calibration: Calibration | str,
    topology: Topology,
    constraints: dict[str, ParameterConstraints] | None = None,
) -> list[ShardEstimator]:
    """Return estimators to pass to TorchRec's `EmbeddingEnumerator`.

    Args:
        calibration: a calibration, or a topology file written by `shardbench calibrate`.
        topology: TorchRec's topology to plan for.
        constraints: the planner's constraints, by table name.

    Raises UsageError if the file has no coefficients.
    """
    if isinstance(calibration, str):
        calibration = _calibration_in(calibration)
    config = CalibratedPerfConfig(calibration)
    return [
        EmbeddingPerfEstimator(topology=topology, constraints=constraints, config=config),
        StepStorageEstimator(topology=topology, constraints=constraints),
    ]


def _calibration_in(file: str) -> Calibration:
    lines = read_file(file).decode("utf-8-sig", "replace").splitlines()
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        if coefficients := read_coefficients(row.get("coefficients") or ""):
            return Calibration(coefficients)
    raise UsageError(f"{file} has no coefficients; `shardbench calibrate` writes a file with them.")
