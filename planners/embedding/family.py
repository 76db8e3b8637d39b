"""The embedding family: qualities, counters, phases and abilities for TorchRec's planner.

This module does not import torchrec, so that listing variants is quick and works without it.
"""

from typing import TYPE_CHECKING

from harness.contract import Abilities, Counter, Family, Quality
from planners.embedding.series.declared import SERIES
from planners.embedding.studies import STATEMENTS, STUDIES
from planners.embedding.workloads.catalog import brings, label, list_workloads

if TYPE_CHECKING:
    from planners.embedding.decision import Plan
    from planners.embedding.problem import EmbeddingProblem


FAMILY: Family["EmbeddingProblem", "Plan"] = Family(
    name="embedding",
    summary="where embedding tables go: TorchRec's EmbeddingShardingPlanner",
    implementation="planners.embedding.implementation",
    label=label,
    brings=brings,
    qualities=(
        Quality("max_rank_ms", "ms", "lower", "cost of the slowest rank, by the estimate"),
        Quality(
            "bound_ms",
            "ms",
            "higher",
            "proven lower bound for all plans, by linear and integer programmes",
            bounds="max_rank_ms",
        ),
        Quality("gap", "", "lower", "max_rank_ms / bound_ms - 1"),
        Quality("mean_rank_ms", "ms", "lower", "mean cost of a rank, by the estimate"),
        Quality("imbalance", "", "lower", "slowest rank over mean rank"),
        Quality("hbm_peak_fraction", "", "lower", "fullest rank's share of the usable HBM"),
        Quality("ddr_peak_fraction", "", "lower", "fullest rank's share of its host memory"),
        Quality(
            "torchrec_ms", "ms", "lower", "max_rank_ms by torchrec's estimate, beside a machine's"
        ),
        Quality(
            "torchrec_hbm_fraction",
            "",
            "lower",
            "hbm_peak_fraction by torchrec's estimate, likewise",
        ),
    ),
    counters=(
        Counter("estimates", "shards for which an estimator calculated perf"),
        Counter("proposals", "combinations of options that the proposers put forward"),
        Counter("partitions", "proposals that the partitioner tried to place"),
        Counter("deepcopy_calls", "calls of copy.deepcopy, inner ones left out"),
        Counter("objects_copied", "objects that these calls copied"),
        Counter("plan_copies", "deep copies of a proposal or a plan"),
        Counter("device_copies", "deep copies of devices or of the topology"),
        Counter("annotation_lookups", "scans of an estimator's configuration for an annotation"),
        Counter("option_hashes", "options hashed, to know proposals again"),
        Counter("option_sums", "sums of storage or perf over an option's shards"),
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
    benchmarks=(
        "dlrm-856[tables=10,seed=1]/dgx_a100_80gb:16",
        "synthetic[tables=10,seed=7,memory=roomy]/dgx_a100_80gb:16",
    ),
    studies=STUDIES,
    statements=STATEMENTS,
    place=10,
    abilities=Abilities(
        planning="planners.embedding.planning:PLANNING",
        explain="planners.embedding.explain.explain:explain",
        explain_table="planners.embedding.explain.explain:explain_table",
        capture="planners.embedding.capture.recording:recording",
        inventory="planners.embedding.inventory:inventory",
        importing="planners.embedding.importing.importer:read",
        series=SERIES,
        topology="planners.embedding.importing.topology_arguments:TOPOLOGY",
        figures="planners.embedding.quality:figures",
        machines="planners.embedding.estimates.machines:devices",
        measuring="planners.embedding.measuring.workbench:EmbeddingWorkbench",
    ),
)
