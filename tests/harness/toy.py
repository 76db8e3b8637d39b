"""A toy family of planners that deal `size` items out to GPUs, well or badly in every way.

Child processes import this module by name. A workload's parameter `folder` names a folder in which
variants write their process ids and record their actions.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.contract import (
    Claim,
    Counter,
    Family,
    InfeasibleDecision,
    Measured,
    NotApplicable,
    Prepared,
    Progress,
    Quality,
    Recorder,
    Study,
    Topology,
    UsageError,
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


def build(workload: WorkloadSpec, topology: Topology) -> ToyProblem:
    asked = read_parameters(workload, ToyParameters)
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


def count_work(name: str, amount: int = 1) -> None:
    if Observed.recorder is not None:
        Observed.recorder.counters[name] += amount


def round_robin(problem: ToyProblem) -> Decision:
    count_work("dealt", problem.size)
    count_work("undeclared")
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


@TOY.decider("reference", reference=True, source="a textbook")
def reference(problem: ToyProblem) -> Decision:
    """Deal the items out in turn."""
    work(200)
    return round_robin(problem)


@TOY.decider("same", same_as="reference", claim=Claim(before=20, after=10, unit="min"))
def same(problem: ToyProblem) -> Decision:
    """Decide the same with a tenth of the work."""
    work(20)
    return round_robin(problem)


@TOY.variant("different", same_as="reference")
def different(problem: ToyProblem) -> Prepared[Decision]:
    def run() -> Decision:
        if problem.folder is not None:
            with (problem.folder / "different-calls").open("a") as file:
                file.write("x")
        return tuple(reversed(round_robin(problem)))

    return Prepared(run)


@TOY.variant("same-as-different", same_as="different")
def same_as_different(problem: ToyProblem) -> Prepared[Decision]:
    return Prepared(lambda: tuple(reversed(round_robin(problem))))


@TOY.variant("own")
def own(problem: ToyProblem) -> Prepared[Decision]:
    return Prepared(lambda: (0,) * problem.size)


@TOY.decider("plain", same_as="reference")
def plain(problem: ToyProblem) -> Decision:
    return round_robin(problem)


@TOY.variant("unprepared")
def unprepared(problem: ToyProblem):
    return round_robin(problem)


@TOY.decider("raises", same_as="reference")
def raises(problem: ToyProblem) -> Decision:
    raise ValueError("no item\nlikes me")


@TOY.decider("unprintable", same_as="reference")
def unprintable(problem: ToyProblem) -> Decision:
    raise ValueError("a path that is no text: \udcff")


@TOY.decider("refuses", same_as="reference")
def refuses(problem: ToyProblem) -> Decision:
    """Raise a UsageError, as a library that is called with wrong arguments may do."""
    raise UsageError("too many items for me")


@TOY.variant("infeasible")
def infeasible(problem: ToyProblem) -> Prepared[Decision]:
    return Prepared(lambda: (problem.gpus,) * problem.size)


@TOY.variant("missing", requires=(NOT_THERE, "sys"))
def missing(problem: ToyProblem) -> Prepared[Decision]:
    raise AssertionError("a variant that is not installed must not be prepared")


@TOY.variant("elsewhere", upstream="toy-1.0")
def elsewhere(problem: ToyProblem) -> Prepared[Decision]:
    raise AssertionError("a variant whose upstream is not installed must not be prepared")


@TOY.variant("aloof")
def aloof(problem: ToyProblem) -> Prepared[Decision]:
    raise NotApplicable("It has no part in this.")


@TOY.variant("prints", same_as="reference")
def prints(problem: ToyProblem) -> Prepared[Decision]:
    print("noise while preparing")

    def run() -> Decision:
        print("noise while running")
        os.write(1, b"noise below Python\n")
        subprocess.run(["echo", "noise of a grandchild"], check=True)
        return round_robin(problem)

    return Prepared(run)


@TOY.decider("measured", same_as="reference")
def measured(problem: ToyProblem) -> Measured[Decision]:
    work(10)
    return Measured(
        round_robin(problem), 0.5, 0.25, counters={"dealt": 77}, phases={"abroad": 0.25}
    )


HUNGER = 64 * 2**20


def _announce(problem: ToyProblem) -> None:
    problem.leave("pid", str(os.getpid()))


def _never_return() -> Decision:
    time.sleep(600)
    raise AssertionError("never stopped")


@TOY.decider("endless", same_as="reference")
def endless(problem: ToyProblem) -> Decision:
    """Do a hundredth of the work each second."""
    _announce(problem)
    started = time.monotonic()
    if Observed.recorder is not None:
        Observed.recorder.progress = lambda: Progress(
            int(100 * (time.monotonic() - started)), 10_000, "items"
        )
    return _never_return()


@TOY.decider("silent", same_as="reference")
def silent(problem: ToyProblem) -> Decision:
    _announce(problem)
    return _never_return()


@TOY.decider("silent-parent", same_as="reference")
def silent_parent(problem: ToyProblem) -> Decision:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    silent = subprocess.DEVNULL
    problem.leave("grandchild", str(subprocess.Popen(command, stdout=silent, stderr=silent).pid))
    _announce(problem)
    return _never_return()


@TOY.decider("hungry-endless", same_as="reference")
def hungry_endless(problem: ToyProblem) -> Decision:
    hoard = bytearray(HUNGER)
    return _never_return()[: len(hoard)]


@TOY.variant("changes-later", same_as="reference")
def changes_later(problem: ToyProblem) -> Prepared[Decision]:
    calls = count()
    return Prepared(lambda: round_robin(problem)[:: -1 if next(calls) else 1])


@TOY.variant("endless-later", same_as="reference")
def endless_later(problem: ToyProblem) -> Prepared[Decision]:
    calls = count()
    return Prepared(lambda: _never_return() if next(calls) else round_robin(problem))


class World:
    """The process state that variants change while they are installed."""

    changed = False


@contextmanager
def changed_world() -> Iterator[None]:
    assert not World.changed, "installed twice"
    World.changed = True
    try:
        yield
    finally:
        World.changed = False


@TOY.variant("installed", same_as="reference")
def installed(problem: ToyProblem) -> Prepared[Decision]:
    def run() -> Decision:
        assert World.changed, "not installed"
        return round_robin(problem)

    return Prepared(run, installed=changed_world)


@TOY.decider("undisturbed", same_as="reference")
def undisturbed(problem: ToyProblem) -> Decision:
    assert not World.changed, "disturbed by another variant"
    return round_robin(problem)


@TOY.variant("slow-to-prepare", same_as="reference")
def slow_to_prepare(problem: ToyProblem) -> Prepared[Decision]:
    time.sleep(0.7)
    return Prepared(lambda: round_robin(problem))


@TOY.variant("hungry", same_as="reference")
def hungry(problem: ToyProblem) -> Prepared[Decision]:
    """Use much memory, but less than was used during preparation."""
    bytearray(2 * HUNGER)

    def run() -> Decision:
        bytearray(HUNGER)
        return round_robin(problem)

    return Prepared(run)
