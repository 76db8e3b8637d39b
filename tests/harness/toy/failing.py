"""The toy family's variants that die, never end, or do harm while they are timed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from harness.contract import Prepared, Progress
from toy.family import TOY, Decision, Observed, ToyProblem, round_robin

HUNGER = 64 * 2**20
Step = Callable[[ToyProblem], Any]


def _decider(name: str, *steps: Step) -> None:
    """Register a variant that takes these steps and keeps their results; the last never ends."""

    @TOY.decider(name, same_as="reference")
    def decide(problem: ToyProblem) -> Decision:
        kept = [step(problem) for step in steps]
        raise AssertionError(f"went on after {len(kept)} steps")


def _later(name: str, step: Step) -> None:
    """Register a variant that takes a step from the second call on, and decides what it returns."""

    @TOY.variant(name, same_as="reference")
    def prepare(problem: ToyProblem) -> Prepared[Decision]:
        calls = count()
        return Prepared(lambda: (next(calls) and step(problem)) or round_robin(problem))


def _sleep(problem: ToyProblem) -> None:
    time.sleep(600)
    raise AssertionError("never stopped")


def _die(problem: ToyProblem) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _raise(error: Exception) -> Step:
    def step(problem: ToyProblem) -> None:
        raise error

    return step


def _announce(problem: ToyProblem) -> None:
    problem.leave("pid", str(os.getpid()))


def _start_grandchild(problem: ToyProblem) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    silent = subprocess.DEVNULL
    problem.leave("grandchild", str(subprocess.Popen(command, stdout=silent, stderr=silent).pid))


def _tell_progress(problem: ToyProblem) -> None:
    """Do a hundredth of the work each second."""
    started = time.monotonic()
    if Observed.recorder is not None:
        Observed.recorder.progress = lambda: Progress(
            int(100 * (time.monotonic() - started)), 10_000, "items"
        )


_decider("endless", _announce, _tell_progress, _sleep)
_decider("silent", _announce, _sleep)
_decider("silent-parent", _start_grandchild, _announce, _sleep)
_decider("killed-parent", _start_grandchild, _die)
_decider("unprintable", _raise(ValueError("a path that is no text: \udcff")))
_decider("hungry-endless", lambda problem: bytearray(HUNGER), _sleep)
_later("changes-later", lambda problem: round_robin(problem)[::-1])
_later("endless-later", _sleep)


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
