"""The family: conversions between shardings, and what is said and counted about them."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.registry import Counter, Family, Quality, Recorder, Topology, WorkloadSpec
from planners.dimspec.suite import GOALS, STUDIES
from planners.dimspec.workloads import label, list_workloads

if TYPE_CHECKING:
    from planners.dimspec.decision import Decision
    from planners.dimspec.problem import DimSpecProblem


def _build(workload: WorkloadSpec, topology: Topology) -> "DimSpecProblem":
    from planners.dimspec.problem import build

    return build(workload, topology)


def _facts(problem: "DimSpecProblem") -> Mapping[str, float | str]:
    return problem.facts()


def _fingerprint(decision: "Decision") -> str:
    from planners.dimspec.decision import fingerprint

    return fingerprint(decision)


def _validate(problem: "DimSpecProblem", decision: "Decision") -> None:
    from planners.dimspec.decision import validate

    validate(problem, decision)


def _quality(problem: "DimSpecProblem", decision: "Decision") -> Mapping[str, float]:
    from planners.dimspec.quality import quality

    return quality(problem, decision)


def _observe(recorder: Recorder) -> AbstractContextManager[None]:
    from planners.dimspec.observer import observe

    return observe(recorder)


FAMILY: Family["DimSpecProblem", "Decision"] = Family(
    name="dimspec",
    summary="how a tensor gets from one sharding to another: ColossalAI's conversions",
    build=_build,
    label=label,
    facts=_facts,
    fingerprint=_fingerprint,
    validate=_validate,
    quality=_quality,
    qualities=(
        Quality(
            "cost_millions",
            "M",
            "lower",
            "what the steps of all conversions truly cost, in millions of ColossalAI's cost units",
        ),
        Quality(
            "cheapest_millions",
            "M",
            "higher",
            "what the same conversions cost at least, by Dijkstra's search over the same steps",
            bounds="cost_millions",
        ),
        Quality(
            "reported_millions",
            "M",
            "lower",
            "the costs that were reported: ColossalAI counts the first of several steps again",
        ),
        Quality(
            "dearer_conversions", "", "lower", "distinct conversions that cost more than they must"
        ),
        Quality(
            "unlike_recorded",
            "",
            "lower",
            "distinct conversions whose path, patterns or cost are not those that were recorded",
        ),
    ),
    observe=_observe,
    counters=(
        Counter("dictionaries_built", "dictionaries of differences put together", enough=1),
        Counter("dim_specs_built", "objects made for how one dimension is sharded"),
        Counter("sharding_specs_built", "objects made for how a tensor is sharded"),
        Counter("difference_calls", "times that a DimSpec was asked how far another one is"),
        Counter("conversions", "conversions that were asked for"),
        Counter("searches", "conversions that were searched for", enough="distinct_searches"),
        Counter("distinct_searches", "different conversions that were asked for"),
        Counter("expansions", "times that all candidates of a step were put together"),
    ),
    phases=("dictionaries", "expansion", "other"),
    workloads=list_workloads,
    preload=("planners.dimspec.quality", "planners.dimspec.observer"),
    benchmarks=("resnet50[calls=1000]/dgx_a100_80gb:4",),
    studies=STUDIES,
    goals=GOALS,
)
