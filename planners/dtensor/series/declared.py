"""Declare the problems and counters that `shardbench releases` measures on torch releases."""

from pathlib import Path

from harness.contract import Releases, Series

SERIES = Series(
    library="torch",
    driver=Path(__file__).with_name("driver.py"),
    problems=(
        "ops/dgx_a100_80gb:8",
        "mlp/dgx_a100_80gb:8",
        "optimizer[impl=fused,lr=changing]/dgx_a100_80gb:8",
    ),
    parts={"miss": "the first step"},
    counters={
        "misses": "decisions that had to be made in the first step",
        "hits": "decisions that were remembered in the step after it",
        "warm_calls": "calls that the step after it makes",
        "objects_kept": "Python objects that outlive a step, for each of 50 steps",
        "bytes_kept": "bytes of these objects",
    },
    earlier=("f103b5085372", "e07b8bbe11b1", "d3dbf0c6c5b3", "6ba2af53124a"),
    releases=Releases(
        phases=("miss", "hit"),
        by_hand="the index has torch only with CUDA, in half a gigabyte and more that does not "
        "load without CUDA's libraries; name a folder that holds a build for CPUs with --at.",
    ),
)
