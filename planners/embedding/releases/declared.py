"""What `shardbench releases torchrec` measures."""

from pathlib import Path

from harness.contract import Quality, Releases

RELEASES = Releases(
    library="torchrec",
    driver=Path(__file__).with_name("driver.py"),
    problems=(
        "dlrm-856[tables=10,seed=1]/dgx_a100_80gb:16",
        "dlrm-856[tables=20,seed=1]/dgx_a100_80gb:16",
    ),
    profiled="enumerate",
    phases=("enumerate", "propose", "partition", "rate", "other"),
    qualities=(Quality("max_rank_ms", "ms", "lower", "cost of the slowest rank, by its estimate"),),
    counters={
        "deepcopy_calls": "calls of copy.deepcopy, inner ones left out",
        "objects_copied": "objects that these calls copied",
        "plan_copies": "deep copies of a proposal or a plan",
        "device_copies": "deep copies of devices or of the topology",
        "annotation_lookups": "scans of an estimator's configuration for an annotation",
        "estimates": "shards whose perf an estimator was asked for",
        "proposals": "combinations of options that the proposer put forward",
        "partitions": "proposals that the partitioner tried to place",
    },
)
