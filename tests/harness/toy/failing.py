"""The toy family's variants that die, never end, or do harm while they are timed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from harness.contract import Prepared, Progress
from toy.family import TOY, Decision, Observed, ToyProblem, round_robin

HUNGER = 64 * 2**20


def _announce(problem: ToyProblem) -> None:
    problem.leave("pid", str(os.getpid()))


def _start_grandchild(problem: ToyProblem) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    silent = subprocess.DEVNULL
    problem.leave("grandchild", str(subprocess.Popen(command, stdout=silent, stderr=silent).pid))


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
    _start_grandchild(problem)
    _announce(problem)
    return _never_return()


@TOY.decider("killed-parent", same_as="reference")
def killed_parent(problem: ToyProblem) -> Decision:
    _start_grandchild(problem)
    os.kill(os.getpid(), signal.SIGKILL)
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
