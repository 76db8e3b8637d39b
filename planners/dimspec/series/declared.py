"""Declare ColossalAI's commits and counters for `shardbench history`."""

from pathlib import Path

from harness.contract import Commits, Quality, Series

SERIES = Series(
    library="colossalai",
    driver=Path(__file__).with_name("driver.py"),
    problems=("all-pairs[rank=3,mesh=2x4]/dgx_a100_80gb:8",),
    parts={"conversion": "all conversions"},
    counters={
        "dictionaries_built": "dictionaries of differences that were built",
        "dim_specs_built": "objects made for how one dimension is sharded",
        "sharding_specs_built": "objects made for how a tensor is sharded",
        "difference_calls": "calls that ask a DimSpec for its distance to another one",
        "conversions": "conversions that were asked for",
        "searches": "conversions that were searched for",
        "distinct_searches": "distinct conversions that were asked for",
        "expansions": "times that all candidates of a step were listed",
    },
    qualities=(
        Quality("reported_millions", "M", "lower", "the costs that were reported, in millions"),
    ),
    earlier=("97674c959221", "f055fd11e437", "27b2f17a032c"),
    commits=Commits(
        package="colossalai",
        paths=(
            "colossalai/tensor/comm_spec.py",
            "colossalai/tensor/shape_consistency.py",
            "colossalai/tensor/sharding_spec.py",
            "colossalai/tensor/utils.py",
            "colossalai/device/device_mesh.py",
        ),
        shims="planners.dimspec.series.shims",
        preloaded=("torch", "numpy"),
        pull_requests="https://github.com/hpcaitech/ColossalAI/pull/{number}",
    ),
)
