"""The family: dispatch of ops on torch's DTensor, and what is said and counted about it.

Nothing here imports torch before a problem is built: listing variants must be quick.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from harness.registry import (
    Counter,
    Explanation,
    Family,
    Inventory,
    Names,
    Quality,
    Question,
    Recorder,
    Topology,
    WorkloadSpec,
)
from planners.dtensor.releases.declared import RELEASES
from planners.dtensor.suite import GOALS, STUDIES
from planners.dtensor.workloads import brings, label, list_workloads

if TYPE_CHECKING:
    from planners.dtensor.decision import Decision
    from planners.dtensor.problem import DTensorProblem


def _build(workload: WorkloadSpec, topology: Topology) -> "DTensorProblem":
    from planners.dtensor.problem import build

    return build(workload, topology)


def _facts(problem: "DTensorProblem") -> Mapping[str, float | str]:
    return problem.facts()


def _fingerprint(decision: "Decision") -> str:
    from planners.dtensor.decision import fingerprint

    return fingerprint(decision)


def _validate(_: "DTensorProblem", decision: "Decision") -> None:
    from planners.dtensor.decision import validate

    validate(decision)


def _quality(problem: "DTensorProblem", decision: "Decision") -> Mapping[str, float]:
    from planners.dtensor.programs.world import playing_one_rank
    from planners.dtensor.quality import quality

    with playing_one_rank(problem.ranks_per_host):
        return quality(decision)


def _explaining(
    problem: "DTensorProblem", decision: "Decision", question: "Question[Decision]"
) -> Explanation:
    from planners.dtensor.explain import explain

    return explain(problem, decision, question)


def _observe(recorder: Recorder) -> AbstractContextManager[None]:
    from planners.dtensor.observer import observe

    return observe(recorder)


def _inventory(workload: WorkloadSpec, topology: Topology | None) -> Inventory:
    from planners.dtensor.inventory import inventory

    return inventory(workload, topology)


def _capturing(names: Names) -> AbstractContextManager[Callable[[], Mapping[str, Any]]]:
    from planners.dtensor.capture.recording import capturing

    return capturing(names)


FAMILY: Family["DTensorProblem", "Decision"] = Family(
    name="dtensor",
    summary="how each op runs on a mesh: sharding propagation of PyTorch's DTensor",
    build=_build,
    label=label,
    brings=brings,
    facts=_facts,
    fingerprint=_fingerprint,
    validate=_validate,
    quality=_quality,
    qualities=(
        Quality(
            "redistribute_us",
            "us",
            "lower",
            "cost of the redistributions of inputs, by torch's model of collectives",
        ),
        Quality(
            "cheapest_us",
            "us",
            "higher",
            "what the same ops cost at least, by torch's exhaustive search",
            bounds="redistribute_us",
        ),
        Quality(
            "worse_decisions", "", "lower", "ops that cost more than the cheapest strategy for them"
        ),
        Quality(
            "unlike_recorded",
            "",
            "lower",
            "results and moved inputs of a captured step that are not as they were recorded",
        ),
    ),
    observe=_observe,
    counters=(
        Counter("lookups", "times that a decision was looked for"),
        Counter("hits", "decisions that were remembered"),
        Counter("misses", "decisions that had to be made"),
        Counter("specs_built", "DTensor specs put together"),
        Counter("pytree_passes", "passes of pytree over arguments"),
        Counter("strategies_expanded", "strategies put together to choose from"),
        Counter("cache_entries", "decisions kept after the call"),
        Counter("cache_bytes", "bytes of the Python objects that they hold"),
    ),
    phases=("propagate", "redistribute", "other"),
    workloads=list_workloads,
    requires=("torch",),
    preload=("planners.dtensor.problem", "planners.dtensor.observer"),
    benchmarks=(
        "mlp/dgx_a100_80gb:8",
        "miss[dims=2]/dgx_a100_80gb:16",
        "dynamic/dgx_a100_80gb:16",
    ),
    inventory=_inventory,
    releases=RELEASES,
    studies=STUDIES,
    goals=GOALS,
    explaining=_explaining,
    capturing=_capturing,
)
