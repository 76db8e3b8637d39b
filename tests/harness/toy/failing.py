"""The toy family's variants that die, never end, or do harm while they are timed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

from harness.contract import Prepared, Progress
from toy.family import TOY, Decision, Observed, ToyProblem, round_robin


@TOY.decider("killed", same_as="reference")
def killed(problem: ToyProblem) -> Decision:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("dead")


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


@TOY.variant("installed-raises", same_as="reference")
def installed_raises(problem: ToyProblem) -> Prepared[Decision]:
    def run() -> Decision:
        raise ValueError("while installed")

    return Prepared(run, installed=changed_world)


@TOY.decider("undisturbed", same_as="reference")
def undisturbed(problem: ToyProblem) -> Decision:
    assert not World.changed, "disturbed by another variant"
    return round_robin(problem)


def _announce(problem: ToyProblem, name: str = "pid") -> None:
    problem.leave(name, str(os.getpid()))


@TOY.decider("endless", same_as="reference")
def endless(problem: ToyProblem) -> Decision:
    """Sleep for ever, at a hundredth of the work each second."""
    _announce(problem)
    started = time.monotonic()
    looks = count()

    def progress() -> Progress:
        if next(looks) == 0:  # as reading a growing dictionary may
            raise RuntimeError("dictionary changed size during iteration")
        return Progress(int(100 * (time.monotonic() - started)), 10_000, "items")

    if Observed.recorder is not None:
        Observed.recorder.progress = progress
    time.sleep(600)
    raise AssertionError("never stopped")


@TOY.decider("silent", same_as="reference")
def silent(problem: ToyProblem) -> Decision:
    """Sleep for ever without reporting progress."""
    _announce(problem)
    time.sleep(600)
    raise AssertionError("never stopped")


def _start_grandchild(problem: ToyProblem) -> None:
    grandchild = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    problem.leave("grandchild", str(grandchild.pid))


@TOY.decider("silent-parent", same_as="reference")
def silent_parent(problem: ToyProblem) -> Decision:
    """Start another process, and sleep for ever."""
    _start_grandchild(problem)
    _announce(problem)
    time.sleep(600)
    raise AssertionError("never stopped")


@TOY.decider("killed-parent", same_as="reference")
def killed_parent(problem: ToyProblem) -> Decision:
    """Start another process, and die."""
    _start_grandchild(problem)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("dead")


@TOY.decider("raising-parent", same_as="reference")
def raising_parent(problem: ToyProblem) -> Decision:
    """Start another process, and raise an error."""
    _start_grandchild(problem)
    raise ValueError("failed beside a process of its own")


@TOY.decider("killed-fork", same_as="reference")
def killed_fork(problem: ToyProblem) -> Decision:
    """Fork a process that keeps every open file, and die."""
    forked = os.fork()
    if not forked:
        time.sleep(600)
        os._exit(0)
    problem.leave("grandchild", str(forked))
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("dead")


def _later(problem: ToyProblem, then: Callable[[], Any]) -> Prepared[Decision]:
    """Call `then` from the second call on, and decide what it returns, if anything."""
    calls = count()
    return Prepared(lambda: (next(calls) and then()) or round_robin(problem))


def _raise(error: Exception) -> None:
    raise error


@TOY.variant("raises-later", same_as="reference")
def raises_later(problem: ToyProblem) -> Prepared[Decision]:
    """Pass the check, and fail from the second call on."""
    return _later(problem, partial(_raise, ValueError("worn out")))


@TOY.variant("changes-later", same_as="reference")
def changes_later(problem: ToyProblem) -> Prepared[Decision]:
    """Decide differently from the second call on, as a planner with leftover state may."""
    return _later(problem, lambda: round_robin(problem)[::-1])


@TOY.variant("killed-later", same_as="reference")
def killed_later(problem: ToyProblem) -> Prepared[Decision]:
    return _later(problem, lambda: os.kill(os.getpid(), signal.SIGKILL))


@TOY.variant("endless-later", same_as="reference")
def endless_later(problem: ToyProblem) -> Prepared[Decision]:
    return _later(problem, lambda: time.sleep(600))


@TOY.variant("close-raises", same_as="reference")
def close_raises(problem: ToyProblem) -> Prepared[Decision]:
    """Pass the check, and fail to close after the timed turns."""
    checking = Observed.recorder is not None

    def run() -> Decision:
        nonlocal checking
        checking = Observed.recorder is not None
        return round_robin(problem)

    def close() -> None:
        if not checking:
            raise OSError("cannot be closed")

    return Prepared(run, close=close)


@TOY.variant("slow-to-prepare", same_as="reference")
def slow_to_prepare(problem: ToyProblem) -> Prepared[Decision]:
    time.sleep(0.7)
    return Prepared(lambda: round_robin(problem))


@TOY.decider("unprintable", same_as="reference")
def unprintable(problem: ToyProblem) -> Decision:
    raise ValueError("a path that is no text: \udcff")


HUNGER = 64 * 2**20


@TOY.variant("hungry", same_as="reference")
def hungry(problem: ToyProblem) -> Prepared[Decision]:
    """Use much memory, but less than was used during preparation."""
    bytearray(2 * HUNGER)

    def run() -> Decision:
        bytearray(HUNGER)
        return round_robin(problem)

    return Prepared(run)


@TOY.decider("hungry-endless", same_as="reference")
def hungry_endless(problem: ToyProblem) -> Decision:
    """Use much memory, and sleep for ever without reporting progress."""
    food = bytearray(HUNGER)
    time.sleep(600)
    raise AssertionError(f"never stopped, with {len(food)} bytes")
