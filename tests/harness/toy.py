"""A family whose job is to deal `size` items out to GPUs, with variants that misbehave.

Child processes import this module by name. A problem carries a folder, given as a parameter of the
workload, where variants leave their process ids and mark what they have done.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.contract import (
    Abilities,
    Claim,
    Counter,
    Family,
    Goal,
    InfeasibleDecision,
    Measured,
    NotApplicable,
    OverviewRow,
    Planning,
    Prepared,
    Progress,
    Quality,
    RankTable,
    Recorder,
    Study,
    Topology,
    UsageError,
    WorkloadSpec,
)
from harness.contract.registry import Registry
from harness.model.ids import at_most

Decision = tuple[int, ...]

NOT_THERE = "a_module_that_does_not_exist"


@dataclass(frozen=True)
class ToyProblem:
    size: int
    gpus: int
    folder: Path | None

    def leave(self, name: str, text: str = "") -> None:
        """Write a file into the folder, whole or not at all."""
        if self.folder is not None:
            partial_file = self.folder / f".{name}.partial"
            partial_file.write_text(text, encoding="utf-8")
            partial_file.replace(self.folder / name)


class _Observed:
    """What the observer has installed; None outside of an observed call."""

    recorder: Recorder | None = None


def build(workload: WorkloadSpec, topology: Topology) -> ToyProblem:
    workload.check_parameters(("size", "folder", "build"))
    time.sleep(workload.get("build", float, 0.0, "a number of seconds"))
    folder = workload.get("folder", Path, None, "a path")
    size = workload.get("size", at_most(10**9), 6, "a whole number of at least 1")
    return ToyProblem(size, topology.gpus, folder)


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
    _Observed.recorder = recorder
    try:
        yield
    finally:
        _Observed.recorder = None


def count(name: str, amount: int = 1) -> None:
    if _Observed.recorder is not None:
        _Observed.recorder.counters[name] += amount


def round_robin(problem: ToyProblem) -> Decision:
    count("dealt", problem.size)
    count("undeclared")
    return tuple(item % problem.gpus for item in range(problem.size))


def work(steps: int) -> int:
    """Keep the processor busy for some microseconds a step, by the same count every time."""
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
    # The sampling child needs it, and it takes half a second to import.
    preload=("scipy.special",),
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


def toy_registry() -> Registry:
    return Registry([TOY])


@TOY.variant("reference", reference=True, source="a textbook")
def reference(problem: ToyProblem) -> Prepared[Decision]:
    """Deal the items out in turn."""

    def run() -> Decision:
        work(200)
        return round_robin(problem)

    return Prepared(run)


@TOY.variant("same", same_as="reference", claim=Claim(before=20, after=10, unit="min"))
def same(problem: ToyProblem) -> Prepared[Decision]:
    """Decide the same with a tenth of the work."""

    def run() -> Decision:
        work(20)
        return round_robin(problem)

    return Prepared(run)


@TOY.variant("different", same_as="reference")
def different(problem: ToyProblem) -> Prepared[Decision]:
    problem.leave("different-was-prepared")

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


@TOY.variant("raises", same_as="reference")
def raises(problem: ToyProblem) -> Prepared[Decision]:
    def run() -> Decision:
        raise ValueError("no item\nlikes me")

    return Prepared(run)


@TOY.variant("refuses", same_as="reference")
def refuses(problem: ToyProblem) -> Prepared[Decision]:
    """Blame the user, as a library that is called with the wrong arguments may do."""

    def run() -> Decision:
        raise UsageError("too many items for me")

    return Prepared(run)


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


@TOY.variant("measured", same_as="reference")
def measured(problem: ToyProblem) -> Prepared[Decision]:
    def run() -> Measured[Decision]:
        work(10)
        return Measured(
            round_robin(problem), 0.5, 0.25, counters={"dealt": 77}, phases={"abroad": 0.25}
        )

    return Prepared(run)


@TOY.variant("measured-without-cpu", same_as="reference")
def measured_without_cpu(problem: ToyProblem) -> Prepared[Decision]:
    return Prepared(lambda: Measured(round_robin(problem), wall_s=0.03, cpu_s=0.0))


@TOY.variant("killed", same_as="reference")
def killed(problem: ToyProblem) -> Prepared[Decision]:
    def run() -> Decision:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("dead")

    return Prepared(run)


class _World:
    """What the variants that must be installed change in the process."""

    changed = False


@contextmanager
def changed_world() -> Iterator[None]:
    assert not _World.changed, "installed twice"
    _World.changed = True
    try:
        yield
    finally:
        _World.changed = False


@TOY.variant("installed", same_as="reference")
def installed(problem: ToyProblem) -> Prepared[Decision]:
    def run() -> Decision:
        assert _World.changed, "not installed"
        return round_robin(problem)

    return Prepared(run, installed=changed_world)


@TOY.variant("installed-raises", same_as="reference")
def installed_raises(problem: ToyProblem) -> Prepared[Decision]:
    def run() -> Decision:
        raise ValueError("while installed")

    return Prepared(run, installed=changed_world)


@TOY.variant("undisturbed", same_as="reference")
def undisturbed(problem: ToyProblem) -> Prepared[Decision]:
    def run() -> Decision:
        assert not _World.changed, "disturbed by another variant"
        return round_robin(problem)

    return Prepared(run)


def _announce(problem: ToyProblem, name: str = "pid") -> None:
    problem.leave(name, str(os.getpid()))


@TOY.variant("endless", same_as="reference")
def endless(problem: ToyProblem) -> Prepared[Decision]:
    """Sleep for ever, at a hundredth of the work each second."""

    def run() -> Decision:
        _announce(problem)
        started = time.monotonic()
        if _Observed.recorder is not None:
            _Observed.recorder.progress = lambda: Progress(
                int(100 * (time.monotonic() - started)), 10_000, "items"
            )
        time.sleep(600)
        raise AssertionError("never stopped")

    return Prepared(run)


@TOY.variant("stumbling", same_as="reference")
def stumbling(problem: ToyProblem) -> Prepared[Decision]:
    """Sleep for ever; the first look at the progress fails, as a dict that grows may make it."""

    def run() -> Decision:
        looks = 0

        def progress() -> Progress:
            nonlocal looks
            looks += 1
            if looks == 1:
                raise RuntimeError("dictionary changed size during iteration")
            return Progress(looks, 1000, "items")

        assert _Observed.recorder is not None
        _Observed.recorder.progress = progress
        time.sleep(600)
        raise AssertionError("never stopped")

    return Prepared(run)


@TOY.variant("silent", same_as="reference")
def silent(problem: ToyProblem) -> Prepared[Decision]:
    """Sleep for ever without a word."""

    def run() -> Decision:
        _announce(problem)
        time.sleep(600)
        raise AssertionError("never stopped")

    return Prepared(run)


def _start_grandchild(problem: ToyProblem) -> None:
    grandchild = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    problem.leave("grandchild", str(grandchild.pid))


@TOY.variant("silent-parent", same_as="reference")
def silent_parent(problem: ToyProblem) -> Prepared[Decision]:
    """Start a process of its own, and wait for it for ever."""

    def run() -> Decision:
        _start_grandchild(problem)
        _announce(problem)
        time.sleep(600)
        raise AssertionError("never stopped")

    return Prepared(run)


@TOY.variant("killed-parent", same_as="reference")
def killed_parent(problem: ToyProblem) -> Prepared[Decision]:
    """Start a process of its own, and die."""

    def run() -> Decision:
        _start_grandchild(problem)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("dead")

    return Prepared(run)


@TOY.variant("raising-parent", same_as="reference")
def raising_parent(problem: ToyProblem) -> Prepared[Decision]:
    """Start a process of its own, and fail."""

    def run() -> Decision:
        _start_grandchild(problem)
        raise ValueError("failed beside a process of its own")

    return Prepared(run)


@TOY.variant("killed-fork", same_as="reference")
def killed_fork(problem: ToyProblem) -> Prepared[Decision]:
    """Fork a process that keeps every open file, and die."""

    def run() -> Decision:
        forked = os.fork()
        if not forked:
            time.sleep(600)
            os._exit(0)
        problem.leave("grandchild", str(forked))
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("dead")

    return Prepared(run)


def _later(problem: ToyProblem, then: Any) -> Prepared[Decision]:
    calls = 0

    def run() -> Decision:
        nonlocal calls
        calls += 1
        if calls > 1:
            then()
        return round_robin(problem)

    return Prepared(run)


def _raise(error: Exception) -> None:
    raise error


@TOY.variant("raises-later", same_as="reference")
def raises_later(problem: ToyProblem) -> Prepared[Decision]:
    """Pass the check, and fail from the second call on."""
    return _later(problem, partial(_raise, ValueError("worn out")))


@TOY.variant("changes-later", same_as="reference")
def changes_later(problem: ToyProblem) -> Prepared[Decision]:
    """Keep state between calls: the second one decides otherwise, as a reused planner may."""
    calls = 0

    def run() -> Decision:
        nonlocal calls
        calls += 1
        return round_robin(problem) if calls == 1 else round_robin(problem)[::-1]

    return Prepared(run)


@TOY.variant("killed-later", same_as="reference")
def killed_later(problem: ToyProblem) -> Prepared[Decision]:
    return _later(problem, lambda: os.kill(os.getpid(), signal.SIGKILL))


@TOY.variant("endless-later", same_as="reference")
def endless_later(problem: ToyProblem) -> Prepared[Decision]:
    return _later(problem, lambda: time.sleep(600))


@TOY.variant("close-raises", same_as="reference")
def close_raises(problem: ToyProblem) -> Prepared[Decision]:
    """Leave nothing undone in the check, and fail to close after the timed turns."""
    checking = _Observed.recorder is not None

    def run() -> Decision:
        nonlocal checking
        checking = _Observed.recorder is not None
        return round_robin(problem)

    def close() -> None:
        if not checking:
            raise OSError("cannot be closed")

    return Prepared(run, close=close)


@TOY.variant("slow-to-prepare", same_as="reference")
def slow_to_prepare(problem: ToyProblem) -> Prepared[Decision]:
    time.sleep(0.7)
    return Prepared(lambda: round_robin(problem))


@TOY.variant("unprintable", same_as="reference")
def unprintable(problem: ToyProblem) -> Prepared[Decision]:
    def run() -> Decision:
        raise ValueError("a path that is no text: \udcff")

    return Prepared(run)


HUNGER = 64 * 2**20


@TOY.variant("hungry", same_as="reference")
def hungry(problem: ToyProblem) -> Prepared[Decision]:
    """Use much memory, and less of it than was used before."""
    bytearray(2 * HUNGER)

    def run() -> Decision:
        bytearray(HUNGER)
        return round_robin(problem)

    return Prepared(run)


@TOY.variant("hungry-endless", same_as="reference")
def hungry_endless(problem: ToyProblem) -> Prepared[Decision]:
    """Use much memory, and sleep for ever without a word."""

    def run() -> Decision:
        food = bytearray(HUNGER)
        time.sleep(600)
        raise AssertionError(f"never stopped, with {len(food)} bytes")

    return Prepared(run)


def _family(name: str, **changes: Any) -> Family[ToyProblem, Decision]:
    return replace(TOY, name=name, variants=dict(TOY.variants), **changes)


def _with_slow_reference() -> Family[ToyProblem, Decision]:
    family = _family("toy")
    variants = dict(family.variants)
    variants["reference"] = replace(variants["reference"], prepare=silent)
    return replace(family, variants=variants)


def slow_reference_registry() -> Registry:
    """The family with a reference that never returns."""
    return Registry([_with_slow_reference()])


def _slow_quality(problem: ToyProblem, decision: Decision) -> Mapping[str, float]:
    time.sleep(0.7)
    return quality(problem, decision)


def slow_quality_registry() -> Registry:
    """The family with a quality that takes longer to find than the decision."""
    return Registry([with_work(_family("toy"), quality=_slow_quality)])


def _label(workload: WorkloadSpec) -> WorkloadSpec:
    return WorkloadSpec(workload.name.upper(), workload.parameters)


def _bounded_quality(problem: ToyProblem, decision: Decision) -> Mapping[str, float]:
    fullest = quality(problem, decision)["fullest"]
    return {"fullest": fullest, "least": problem.size / problem.gpus}


_FIGURES: dict[str, float] = {}


def figures(problem: ToyProblem, known: Mapping[str, float]) -> Mapping[str, float]:
    """Return the bound, and note in the folder that it was worked out unless it was known."""
    if not known and problem.folder is not None:
        with (problem.folder / "worked-out").open("a") as file:
            file.write(f"{os.getpid()}\n")
    _FIGURES.update(known or {"least": problem.size / problem.gpus})
    return _FIGURES


def _quality_with_figures(problem: ToyProblem, decision: Decision) -> Mapping[str, float]:
    known = _FIGURES or figures(problem, {})
    return {"fullest": quality(problem, decision)["fullest"], "least": known["least"]}


def figures_registry() -> Registry:
    """The family with a bound that is worked out once for a problem."""
    (bounded,) = bounded_registry().families
    abilities = replace(bounded.abilities, figures=figures)
    family = replace(bounded, abilities=abilities)
    return Registry([with_work(family, quality=_quality_with_figures)])


def no_figures_registry() -> Registry:
    """The same, where working the bound out fails ahead of the checks."""
    (family,) = figures_registry().families
    abilities = replace(family.abilities, figures=lambda problem, known: {}["nothing"])
    return Registry([replace(family, abilities=abilities)])


def _document(problem: ToyProblem, decision: Decision) -> Mapping[str, Any]:
    return {"gpu_of_item": decision}


def _ranks(problem: ToyProblem, decision: Decision) -> RankTable:
    dealt = [decision.count(gpu) for gpu in range(problem.gpus)]
    return RankTable(
        ("items", "GiB"), tuple((amount, amount / 8) for amount in dealt), (None, 80.0), "items"
    )


def _limited(problem: ToyProblem, seconds: float) -> ToyProblem:
    problem.leave("limit", f"{seconds:g}")
    return problem


def bounded_registry() -> Registry:
    """The family with a bound, a study against another variant, goals, and plans for use."""
    problem = "toy[size=4]/dgx_a100_80gb:2"
    return Registry(
        [
            with_work(
                _family(
                    "toy",
                    qualities=(
                        *TOY.qualities,
                        Quality(
                            "least", "items", "higher", "what must be on one", bounds="fullest"
                        ),
                    ),
                    studies=(
                        Study(problem, ("own",), "against another", against="same"),
                        Study("toy[size=6]/dgx_a100_80gb:2", ("same",), "large", large=True),
                    ),
                    goals=(
                        Goal("own is even", problem, "own", "quality", 1.0, "others", "fullest"),
                        Goal("own is quick", problem, "own", "seconds", 60.0),
                        Goal("same is quick", problem, "same", "times faster", 1.0),
                    ),
                    abilities=Abilities(planning=Planning("same", _document, _ranks, _limited)),
                ),
                quality=_bounded_quality,
            )
        ]
    )


def overview_registry() -> Registry:
    """The family with rows of an overview, about two problems."""
    here, elsewhere = "toy[size=4]/dgx_a100_80gb:2", "toy[size=6]/dgx_a100_80gb:2"
    rows = (
        OverviewRow("Toys", here, today="reference", ours="same"),
        OverviewRow("Rated", elsewhere, today="reference", ours="same", rated_on=here),
        OverviewRow("Others", elsewhere, today="reference", ours="same"),
    )
    return Registry([_family("toy", overview=rows)])


def labelled_registry() -> Registry:
    """The family with workloads that are called otherwise than they are given."""
    return Registry([_family("toy", label=_label)])


def preloading_registry(module: str) -> Registry:
    """The family with a module that its child processes are forked from."""
    return Registry([_family("toy", preload=(module,))])
