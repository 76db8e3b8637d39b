"""The dtensor family: dispatch of ops on torch's DTensor. This module does not import torch."""

from pathlib import Path
from typing import TYPE_CHECKING

from harness.contract import Abilities, Counter, Family, Quality, Releases, Series
from planners.dtensor.suite import STATEMENTS, STUDIES
from planners.dtensor.workloads import WORKLOADS, label

if TYPE_CHECKING:
    from planners.dtensor.decision import Decision
    from planners.dtensor.problem import DTensorProblem

_RELEASES_OF_TORCH = Series(
    library="torch",
    driver=Path(__file__).with_name("releases.py"),
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
    releases=Releases(
        phases=("miss", "hit"),
        by_hand="the index has torch only with CUDA, in half a gigabyte and more that does not "
        "load without CUDA's libraries; name a folder that holds a build for CPUs with --at.",
    ),
)

FAMILY: Family["DTensorProblem", "Decision"] = Family(
    name="dtensor",
    summary="how each op runs on a mesh: sharding propagation of PyTorch's DTensor",
    implementation="planners.dtensor.implementation",
    label=label,
    qualities=(
        Quality("redistribute_us", "us", "lower", "cost of moving inputs, by torch's own model"),
        Quality(
            "cheapest_us",
            "us",
            "higher",
            "least cost of the same ops, by torch's exhaustive search",
            bounds="redistribute_us",
        ),
        Quality("worse_decisions", "", "lower", "ops that cost more than their cheapest strategy"),
        Quality(
            "slowest_rank", "", "lower", "Muon: flops of the slowest rank, over an even split's"
        ),
        Quality("slowest_bound", "", "higher", "Muon: what no choice of owners is below"),
    ),
    counters=(
        Counter("lookups", "look-ups of a decision"),
        Counter("hits", "decisions found in a cache"),
        Counter("misses", "decisions that had to be made"),
        Counter("specs_built", "DTensor specs built"),
        Counter("pytree_passes", "passes of pytree over arguments"),
        Counter("strategies_expanded", "strategies built to choose from", sufficient="misses"),
        Counter("cache_entries", "decisions kept after the call"),
        Counter("cache_bytes", "bytes of the Python objects that they hold"),
        Counter("collectives", "collectives of a step"),
        Counter("collective_bytes", "bytes that a rank puts into them"),
        Counter("objects_kept", "Python objects that outlive a step, for each of 50 steps"),
        Counter("bytes_kept", "bytes of these objects"),
    ),
    phases=("propagate", "redistribute", "other"),
    workloads=lambda: WORKLOADS,
    requires=("torch",),
    benchmarks=("mlp/dgx_a100_80gb:8", "miss[dims=2]/dgx_a100_80gb:16", "dynamic/dgx_a100_80gb:16"),
    studies=STUDIES,
    statements=STATEMENTS,
    place=20,
    abilities=Abilities(
        explain="planners.dtensor.quality:explain",
        inventory="planners.dtensor.inventory:inventory",
        series=_RELEASES_OF_TORCH,
    ),
)
