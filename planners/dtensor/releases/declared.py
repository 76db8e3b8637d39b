"""The declaration of torch for `shardbench releases`."""

from pathlib import Path

from harness.contract import Releases

RELEASES = Releases(
    library="torch",
    driver=Path(__file__).with_name("driver.py"),
    problems=(
        "ops/dgx_a100_80gb:8",
        "mlp/dgx_a100_80gb:8",
        "optimizer[impl=fused,lr=changing]/dgx_a100_80gb:8",
    ),
    profiled="miss",
    phases=("miss", "hit"),
    counters={
        "misses": "decisions that had to be made in the first step",
        "hits": "decisions that were remembered in the step after it",
        "warm_calls": "calls that the step after it makes",
        "objects_kept": "Python objects that outlive a step, for each of 50 steps",
        "bytes_kept": "bytes of these objects",
    },
    by_hand="the index has torch only with CUDA, in half a gigabyte and more that does not load "
    "without CUDA's libraries; name a folder that holds a build for CPUs with --at.",
)
