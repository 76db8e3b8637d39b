"""Declares torchrec's releases and commits to `shardbench releases` and `history`."""

from pathlib import Path

from harness.contract import Commits, Quality, Releases, Series

SERIES = Series(
    library="torchrec",
    driver=Path(__file__).with_name("driver.py"),
    problems=(
        "dlrm-856[tables=10,seed=1]/dgx_a100_80gb:16",
        "dlrm-856[tables=20,seed=1]/dgx_a100_80gb:16",
    ),
    parts={"enumerate": "listing the options", "search": "all else of one plan"},
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
    # Before the drivers named `harness.series`, before they chose planners, before the harness
    # counted, which leaves out four calls of the drivers' own, and before they were one module.
    earlier=(
        "1d203809ac78",
        "f3c2a1b49fd2",
        "c8bbb92e974d",
        "55e1acb12922",
        "3219ccf5251a",
        "4a47eed29118",
        "c2c693111b27",
        "277dc54f90ec",
    ),
    planners={
        "greedy": "the greedy proposer",
        "default": "the proposers that it uses when none is named",
        "dynamic-programming": "DynamicProgrammingProposer",
    },
    releases=Releases(phases=("enumerate", "propose", "partition", "rate", "other")),
    commits=Commits(
        package="torchrec",
        paths=("torchrec/distributed/planner",),
        shims="planners.embedding.series.shims",
        preloaded=("torch", "fbgemm_gpu", "planners.embedding.workloads.catalog"),
        pull_requests="https://github.com/meta-pytorch/torchrec/pull/{number}",
    ),
)
