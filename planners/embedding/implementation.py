"""The embedding family's work on problems and plans; it imports torchrec."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.contract import Planning, RankTable, Topology, WorkloadSpec
from planners.embedding import problem as problems
from planners.embedding.capture.workload import is_captured
from planners.embedding.captured_problem import build_captured
from planners.embedding.decision import Plan, fingerprint, perf_by_rank, storage_by_rank, validate
from planners.embedding.observer import observe
from planners.embedding.plan_files.loader import document
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.quality import quality

__all__ = ["PLANNING", "build", "facts", "fingerprint", "observe", "quality", "validate"]

_GIB = 2**30


def build(workload: WorkloadSpec, topology: Topology) -> EmbeddingProblem:
    """Make the problem of a workload, listed or captured."""
    if is_captured(workload):
        return build_captured(workload.name, topology)
    return problems.build(workload, topology)


def facts(problem: EmbeddingProblem) -> Mapping[str, float | str]:
    """Return what to say about a problem, its number of tables first."""
    return problem.facts()


def _ranks(problem: EmbeddingProblem, plan: Plan) -> RankTable:
    hbm, ddr = storage_by_rank(problem, plan)
    return RankTable(
        columns=("ms", "HBM GiB", "DDR GiB"),
        rows=tuple(
            (ms, on_gpu / _GIB, on_host / _GIB)
            for ms, on_gpu, on_host in zip(perf_by_rank(problem, plan), hbm, ddr, strict=True)
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
