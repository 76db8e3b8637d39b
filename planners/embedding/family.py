"""The family: the real TorchRec planner, and what is said and counted about it.

Nothing here imports torchrec before a problem is built: listing variants must be quick, and must
work where torchrec is not installed.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.registry import Counter, Family, Quality, Recorder, Study, Topology, WorkloadSpec
from planners.embedding.workloads import label, list_workloads, load_tables

if TYPE_CHECKING:
    from planners.embedding.plan import Plan
    from planners.embedding.problem import EmbeddingProblem


def _build(workload: WorkloadSpec, topology: Topology) -> "EmbeddingProblem":
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
    from planners.embedding.plan import quality

    return quality(problem, plan)


def _observe(recorder: Recorder) -> AbstractContextManager[None]:
    from planners.embedding.observer import observe

    return observe(recorder)


def _label(workload: WorkloadSpec) -> WorkloadSpec:
    load_tables(workload)  # what is wrong with it is better said before a process is started
    return label(workload)


LADDER = ("double-deepcopy", "single-deepcopy", "custom-deepcopy", "copy-if-better", "upstream")
BEYOND = ("compiled", "dp-tzrec", "dp-compiled")
OWN_DECISIONS = ("uniform", "greedy-sum", "default", "dp-torchrec")

FAMILY: Family["EmbeddingProblem", "Plan"] = Family(
    name="embedding",
    summary="where embedding tables go: TorchRec's EmbeddingShardingPlanner",
    build=_build,
    label=_label,
    facts=_facts,
    fingerprint=_fingerprint,
    validate=_validate,
    quality=_quality,
    qualities=(
        Quality("max_rank_ms", "ms", "lower", "cost of the slowest rank, by torchrec's estimate"),
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
    preload=("planners.embedding.plan", "planners.embedding.observer"),
    benchmarks=(
        "dlrm-856[tables=10,seed=1]/dgx_a100_80gb:16",
        "synthetic[tables=10,seed=7,memory=tight]/dgx_a100_80gb:16",
    ),
    studies=(
        *(
            Study(f"dlrm-856[tables={tables},seed=1]/dgx_a100_80gb:16", LADDER, "copying ladder")
            for tables in (6, 12, 18, 24)
        ),
        Study(
            "dlrm-856[tables=32,seed=3,memory=tight]/dgx_a100_80gb:16",
            ("upstream", *OWN_DECISIONS),
            "time against quality",
        ),
    ),
)
