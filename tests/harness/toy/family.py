"""A toy family of planners that deal `size` items out to GPUs.

Child processes import this package by name. A workload's parameter `folder` names a folder in which
variants write their process ids and record their actions.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

from msgspec import Meta

from harness.contract import (
    Counter,
    Family,
    InfeasibleDecision,
    Quality,
    Recorder,
    Study,
    Topology,
    WorkloadSpec,
)
from harness.contract.workloads import Count, Parameters, read_parameters

Decision = tuple[int, ...]

NOT_THERE = "a_module_that_does_not_exist"


@dataclass(frozen=True)
class ToyProblem:
    size: int
    gpus: int
    folder: Path | None

    def leave(self, name: str, text: str = "") -> None:
        """Write a file into the folder, completely or not at all."""
        if self.folder is not None:
            partial_file = self.folder / f".{name}.partial"
            partial_file.write_text(text, encoding="utf-8")
            partial_file.replace(self.folder / name)


class Observed:
    """The recorder that the observer has installed; None outside of an observed call."""

    recorder: Recorder | None = None


class ToyParameters(Parameters, frozen=True):
    size: Count = 6
    folder: str | None = None
    build: Annotated[float, Meta(gt=0, le=100)] = 0.0  # seconds


def build(workload: WorkloadSpec, topology: Topology) -> ToyProblem:
    asked = read_parameters(workload, ToyParameters)
    time.sleep(asked.build)
    return ToyProblem(asked.size, topology.gpus, Path(asked.folder) if asked.folder else None)


def fingerprint(decision: Decision) -> str:
    return "-".join(map(str, decision))


def validate(problem: ToyProblem, decision: Decision) -> None:
    if len(decision) != problem.size or not set(decision) <= set(range(problem.gpus)):
        raise InfeasibleDecision(f"{decision} does not deal {problem.size} items out.")


def quality(problem: ToyProblem, decision: Decision) -> Mapping[str, float]:
    return {"fullest": max(decision.count(gpu) for gpu in range(problem.gpus))}


def facts(problem: ToyProblem) -> Mapping[str, float | str]:
    return {
        "items": problem.size,
        "gpus": problem.gpus,
        "hash_seed": os.environ.get("PYTHONHASHSEED", "none"),
    }


@contextmanager
def observe(recorder: Recorder) -> Iterator[None]:
    Observed.recorder = recorder
    try:
        yield
    finally:
        Observed.recorder = None


def count(name: str, amount: int = 1) -> None:
    if Observed.recorder is not None:
        Observed.recorder.counters[name] += amount


def round_robin(problem: ToyProblem) -> Decision:
    count("dealt", problem.size)
    count("undeclared")
    return tuple(item % problem.gpus for item in range(problem.size))


def work(steps: int) -> int:
    """Use a few microseconds of CPU time per step; the amount of work is always the same."""
    return sum(sum(range(500)) for _ in range(steps))


TOY: Family[ToyProblem, Decision] = Family(
    name="toy",
    summary="deals items out",
    implementation=__name__,
    qualities=(Quality("fullest", "items", "lower", "items on the fullest GPU"),),
    counters=(
        Counter("dealt", "items that were dealt out"),
        Counter("returned", "items that nobody wanted"),
    ),
    studies=(
        Study("toy[size=4]/dgx_a100_80gb:2", ("same",), "first"),
        Study("toy[size=6]/dgx_a100_80gb:2", ("own",), "second"),
    ),
)


def with_work(family: Family[Any, Any], **functions: Any) -> Family[Any, Any]:
    """Return a family with other functions in its implementation."""
    names = ("build", "facts", "fingerprint", "validate", "quality", "observe")
    held = {name: getattr(family.work, name) for name in names}
    return replace(family, implementation=SimpleNamespace(**held | functions))
