"""The embedding family's work on problems and plans; it imports torchrec."""

from collections.abc import Sequence
from dataclasses import replace
from operator import methodcaller

from harness.contract import Planning, RankTable, Topology, WorkloadSpec
from harness.contract.captured_file import is_captured_file
from planners.embedding import problem as problems
from planners.embedding.captured_problem import build_captured
from planners.embedding.decision import Plan, fingerprint, storage_by_rank, validate
from planners.embedding.observer import observe
from planners.embedding.plan_files.loader import document
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.quality import quality
from planners.embedding.torchrec_objects import perf_by_rank

__all__ = ["PLANNING", "build", "facts", "fingerprint", "observe", "quality", "validate"]

facts = methodcaller("facts")
"""Return what to say about a problem, its size first."""

_GIB = 2**30


def build(workload: WorkloadSpec, topology: Topology) -> EmbeddingProblem:
    """Make the problem of a workload, listed or captured."""
    if is_captured_file(workload.name):
        return build_captured(workload.name, topology)
    return problems.build(workload, topology)


def _ranks(problem: EmbeddingProblem, plan: Plan) -> RankTable:
    perf = perf_by_rank(plan.options, problem.topology)
    hbm, ddr = storage_by_rank(problem, plan)
    return RankTable(
        columns=("ms", "HBM GiB", "DDR GiB"),
        rows=tuple(
            (ms, on_gpu / _GIB, on_host / _GIB)
            for ms, on_gpu, on_host in zip(perf, hbm, ddr, strict=True)
        ),
        capacities=(None, _of_all(problem.usable_hbm), _of_all(problem.usable_ddr)),
        bar="ms",
    )


def _of_all(usable: Sequence[int]) -> float | None:
    """Return GiB that every rank can fill, None where ranks differ."""
    return usable[0] / _GIB if len(set(usable)) == 1 else None


PLANNING: Planning[EmbeddingProblem, Plan] = Planning(
    variant="certified",
    document=document,
    ranks=_ranks,
    limited=lambda problem, seconds: replace(problem, search_seconds=seconds),
)
