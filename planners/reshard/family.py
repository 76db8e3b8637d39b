"""The family: resharding of a static program, and what is said and counted about it.

Nothing here imports torch before a problem is built: listing variants must be quick.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from harness.registry import (
    Counter,
    Family,
    Inventory,
    Quality,
    Recorder,
    Topology,
    WorkloadSpec,
)
from planners.reshard.suite import GOALS, STUDIES
from planners.reshard.workloads import checked, list_workloads

if TYPE_CHECKING:
    from planners.reshard.problem import ReshardDecision, ReshardProblem


def _build(workload: WorkloadSpec, topology: Topology) -> "ReshardProblem":
    from planners.reshard.problem import build

    return build(workload, topology)


def _facts(problem: "ReshardProblem") -> Mapping[str, float | str]:
    return problem.facts()


def _fingerprint(decision: "ReshardDecision") -> str:
    from planners.reshard.decision import fingerprint

    return fingerprint(decision)


def _validate(problem: "ReshardProblem", decision: "ReshardDecision") -> None:
    from planners.reshard.decision import validate

    validate(problem, decision)


def _quality(problem: "ReshardProblem", decision: "ReshardDecision") -> Mapping[str, float]:
    from planners.reshard.quality import quality

    return quality(problem, decision)


def _observe(recorder: Recorder) -> AbstractContextManager[None]:
    from planners.reshard.observer import observe

    return observe(recorder)


def _inventory(workload: WorkloadSpec, topology: Topology | None) -> Inventory:
    from planners.reshard.inventory import inventory

    return inventory(workload, topology)


FAMILY: Family["ReshardProblem", "ReshardDecision"] = Family(
    name="reshard",
    summary="how a program gets its communication: Paddle's static auto-parallel reshard",
    build=_build,
    label=checked,
    facts=_facts,
    fingerprint=_fingerprint,
    validate=_validate,
    quality=_quality,
    qualities=(
        Quality("moved_mib", "MiB", "lower", "what a rank sends, receives, gathers and reduces"),
        Quality("inserted_ops", "", "lower", "ops that were inserted and stayed"),
    ),
    observe=_observe,
    counters=(
        Counter("syncs", "times that the whole block was looked at", enough="batches"),
        Counter("batches", "batches of insertions or removals"),
        Counter("ops_visited", "ops that were looked at to bring the block in line", "edits"),
        Counter("edits", "ops that were inserted or removed"),
        Counter("values_visited", "values that were looked at to bring the block in line"),
        Counter("inserts", "ops that were inserted"),
        Counter("removals", "ops that were removed"),
        Counter("parses", "inputs for which ops were inserted, or looked for"),
        Counter("crossed_bytes", "bytes of names and attributes that crossed to C++ or back"),
    ),
    phases=("syncing", "searching", "inserting", "removing", "other"),
    workloads=list_workloads,
    requires=("torch",),
    preload=("torch", "planners.reshard.observer"),
    benchmarks=("transformer/dgx_a100_80gb:4",),
    inventory=_inventory,
    studies=STUDIES,
    goals=GOALS,
)
