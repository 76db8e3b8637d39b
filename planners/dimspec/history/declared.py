"""The declaration of ColossalAI for `shardbench history`."""

from pathlib import Path

from harness.contract import History, Quality

HISTORY = History(
    library="colossalai",
    driver=Path(__file__).with_name("driver.py"),
    package="colossalai",
    preloaded=("torch", "numpy"),
    paths=(
        "colossalai/tensor/comm_spec.py",
        "colossalai/tensor/shape_consistency.py",
        "colossalai/tensor/sharding_spec.py",
        "colossalai/tensor/utils.py",
        "colossalai/device/device_mesh.py",
    ),
    problems=("all-pairs[rank=3,mesh=2x4]/dgx_a100_80gb:8",),
    parts={"conversion": "all conversions"},
    counters={
        "dictionaries_built": "dictionaries of differences put together",
        "dim_specs_built": "objects made for how one dimension is sharded",
        "sharding_specs_built": "objects made for how a tensor is sharded",
        "difference_calls": "times that a DimSpec was asked how far another one is",
        "conversions": "conversions that were asked for",
        "searches": "conversions that were searched for",
        "distinct_searches": "different conversions that were asked for",
        "expansions": "times that all candidates of a step were put together",
    },
    qualities=(
        Quality("reported_millions", "M", "lower", "the costs that were reported, in millions"),
    ),
    pull_requests="https://github.com/hpcaitech/ColossalAI/pull/{number}",
)
