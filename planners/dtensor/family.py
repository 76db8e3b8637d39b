"""The dtensor family: dispatch of ops on torch's DTensor. This module does not import torch."""

from typing import TYPE_CHECKING

from harness.contract import Abilities, Counter, Family, Quality
from planners.dtensor.series.declared import SERIES
from planners.dtensor.suite import STATEMENTS, STUDIES
from planners.dtensor.workloads import WORKLOADS, label

if TYPE_CHECKING:
    from planners.dtensor.decision import Decision
    from planners.dtensor.problem import DTensorProblem


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
        explain="planners.dtensor.explain:explain",
        inventory="planners.dtensor.counting.inventory:inventory",
        series=SERIES,
    ),
)
