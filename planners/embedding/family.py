"""The family: the real TorchRec planner, and what is said and counted about it.

Nothing here imports torchrec before a problem is built: listing variants must be quick, and must
work where torchrec is not installed.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.registry import (
    Counter,
    Explanation,
    Family,
    Names,
    Planning,
    Quality,
    Question,
    RankTable,
    Recorder,
    Topology,
    WorkloadSpec,
)
from planners.embedding.captured.workload import brought, captured_label, is_captured
from planners.embedding.importing.reading import IMPORTING
from planners.embedding.inventory import inventory
from planners.embedding.releases.declared import RELEASES
from planners.embedding.suite import GOALS, STUDIES
from planners.embedding.workloads import label, list_workloads, load_tables

if TYPE_CHECKING:
    from planners.embedding.plan import Plan
    from planners.embedding.problem import EmbeddingProblem


def _build(workload: WorkloadSpec, topology: Topology) -> "EmbeddingProblem":
    if is_captured(workload):
        from planners.embedding.captured.problem import build_captured

        return build_captured(workload.name, topology)
    from planners.embedding.problem import build

    return build(workload, topology)


def _facts(problem: "EmbeddingProblem") -> Mapping[str, float | str]:
    return problem.facts()


def _fingerprint(plan: "Plan") -> str:
    from planners.embedding.plan import fingerprint

    return fingerprint(plan)


def _validate(problem: "EmbeddingProblem", plan: "Plan") -> None:
    from planners.embedding.plan import validate

    validate(problem, plan)


def _quality(problem: "EmbeddingProblem", plan: "Plan") -> Mapping[str, float]:
    from planners.embedding.quality import quality

    return quality(problem, plan)


def _document(problem: "EmbeddingProblem", plan: "Plan") -> Mapping[str, Any]:
    from planners.embedding.plan_file import document

    return document(problem, plan)


def _ranks(problem: "EmbeddingProblem", plan: "Plan") -> RankTable:
    from planners.embedding.plan import perf_by_rank, storage_by_rank

    gib = 2**30
    hbm, ddr = storage_by_rank(problem, plan)
    return RankTable(
        columns=("ms", "HBM GiB", "DDR GiB"),
        rows=tuple(
            (ms, on_gpu / gib, on_host / gib)
            for ms, on_gpu, on_host in zip(perf_by_rank(problem, plan), hbm, ddr, strict=True)
        ),
        capacities=(None, _of_all(problem.usable_hbm), _of_all(problem.usable_ddr)),
        bar="ms",
    )


def _of_all(usable: Sequence[int]) -> float | None:
    """Return GiB that every rank can fill, None where ranks differ."""
    return usable[0] / 2**30 if len(set(usable)) == 1 else None


def _explaining(
    problem: "EmbeddingProblem", plan: "Plan", question: "Question[Plan]"
) -> Explanation:
    from planners.embedding.explaining.explain import explain

    return explain(problem, plan, question)


def _limited(problem: "EmbeddingProblem", seconds: float) -> "EmbeddingProblem":
    return replace(problem, search_seconds=seconds)


def _observe(recorder: Recorder) -> AbstractContextManager[None]:
    from planners.embedding.observer import observe

    return observe(recorder)


def _capturing(names: Names) -> AbstractContextManager[Callable[[], Mapping[str, Any] | None]]:
    from planners.embedding.captured.recording import recording

    return recording(names)


def _label(workload: WorkloadSpec) -> WorkloadSpec:
    if is_captured(workload):
        return captured_label(workload)
    load_tables(workload)  # what is wrong with it is better said before a process is started
    return label(workload)


FAMILY: Family["EmbeddingProblem", "Plan"] = Family(
    name="embedding",
    summary="where embedding tables go: TorchRec's EmbeddingShardingPlanner",
    build=_build,
    label=_label,
    brings=brought,
    facts=_facts,
    fingerprint=_fingerprint,
    validate=_validate,
    quality=_quality,
    qualities=(
        Quality("max_rank_ms", "ms", "lower", "cost of the slowest rank, by torchrec's estimate"),
        Quality(
            "bound_ms",
            "ms",
            "higher",
            "what no plan costs less than, proven by linear and integer programmes",
            bounds="max_rank_ms",
        ),
        Quality("gap", "", "lower", "max_rank_ms / bound_ms - 1"),
        Quality("mean_rank_ms", "ms", "lower", "mean cost of a rank, by torchrec's estimate"),
        Quality("imbalance", "", "lower", "slowest rank over mean rank"),
        Quality("hbm_peak_fraction", "", "lower", "fullest rank's share of the usable HBM"),
        Quality("ddr_peak_fraction", "", "lower", "fullest rank's share of its host memory"),
    ),
    observe=_observe,
    counters=(
        Counter("estimates", "shards whose perf an estimator was asked for"),
        Counter("proposals", "combinations of options that the proposers put forward"),
        Counter("partitions", "proposals that the partitioner tried to place"),
        Counter("deepcopy_calls", "calls of copy.deepcopy, inner ones left out"),
        Counter("objects_copied", "objects that these calls copied"),
        Counter("plan_copies", "deep copies of a proposal or a plan"),
        Counter("device_copies", "deep copies of devices or of the topology"),
        Counter("annotation_lookups", "scans of an estimator's configuration for an annotation"),
    ),
    phases=(
        "enumerate",
        "arrays",
        "search",
        "propose",
        "copy",
        "partition",
        "copy_devices",
        "rate",
        "other",
    ),
    workloads=list_workloads,
    requires=("torch", "torchrec", "fbgemm_gpu"),
    preload=("planners.embedding.quality", "planners.embedding.observer"),
    benchmarks=(
        "dlrm-856[tables=10,seed=1]/dgx_a100_80gb:16",
        "synthetic[tables=10,seed=7,memory=tight]/dgx_a100_80gb:16",
    ),
    studies=STUDIES,
    goals=GOALS,
    inventory=inventory,
    importing=IMPORTING,
    topology_arguments="planners.embedding.topology_arguments:TOPOLOGY",
    releases=RELEASES,
    planning=Planning(variant="certified", document=_document, ranks=_ranks, limited=_limited),
    explaining=_explaining,
    capturing=_capturing,
)
