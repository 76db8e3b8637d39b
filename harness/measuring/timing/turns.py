"""Time a turn, which is one or several calls of a prepared variant, or a call to warm up."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from harness.contract import Measured, Prepared
from harness.contract.calls import collection_off
from harness.execution.usage import helpers
from harness.execution.worker import Report
from harness.measuring.timing.clock import Clock

# If other threads and processes use more CPU time than this share of a call, and than these
# seconds, they do part of the work, so the call must not be restricted to one core.
_IDLE_THREADS, _IDLE_SECONDS = 0.02, 0.001
_MOSTLY_WAITING = 3.0  # the wall time of such a call is above this multiple of its CPU time


class Observer:
    """Receive the events of timing; subclasses override the methods, which do nothing here.

    `report` is the connection on which forks send messages to the parent process, or None.
    """

    report: Report | None = None

    def turn_begins(self, name: str) -> None:
        """Called before a variant's turn."""

    def turn_ended(self, name: str, decision: Any) -> None:
        """Called after a variant's turn with its decision, outside of the timed interval."""

    def together(self, processes: int) -> None:
        """Called before this number of processes run side by side."""

    def counting(self, name: str) -> None:
        """Called before the work of a variant's call is counted."""

    def block_ended(self, block: int, turns: Sequence["Sample"]) -> None:
        """Called after a block with its number, from 0, and its samples."""


class Sample(NamedTuple):
    """The mean seconds of a call in one turn of variant `name`.

    `wall_s` is None if the core was shared, and `thread_cpu_s` for a call in another process.
    `turn_s` is the CPU seconds of the whole turn, including its set-up; 0 if not measured.
    """

    name: str
    cpu_s: float
    wall_s: float | None
    thread_cpu_s: float | None
    turn_s: float = 0.0


class Turn(NamedTuple):
    """The mean wall and CPU seconds of a call in one turn, and the last call's decision.

    `cpu_s` includes all threads and child processes: moving work there is not a speed-up.
    `thread_cpu_s` is of the calling thread only; None for a call measured in another process.
    """

    wall_s: float
    cpu_s: float
    thread_cpu_s: float | None
    decision: Any


def timed_turn(prepared: Prepared[Any], clock: Clock, calls: int = 1) -> Turn:
    """Call a prepared variant `calls` times in its `installed` context; return the mean times."""
    wall = cpu = thread_cpu = 0.0
    # With `renew`, each call is timed alone, to exclude renewing. Otherwise all calls are timed
    # together, because a single call may be too short for the clock.
    rounds, calls_of_round = (calls, 1) if prepared.renew else (1, calls)
    with prepared.installed(), collection_off():
        for _ in range(rounds):
            prepared.begin()
            if calls_of_round > 1:  # untimed: the processor's caches have another variant's data
                prepared.run()
            # `cpu` looks for child processes, so it is read first, and last after the calls.
            cpu_start, wall_start, thread_start = clock.cpu(), clock.wall(), clock.thread_cpu()
            for _ in range(calls_of_round):
                result = prepared.run()
                if isinstance(result, Measured):
                    wall += result.wall_s
                    cpu += result.cpu_s
            if not isinstance(result, Measured):
                thread_cpu += clock.thread_cpu() - thread_start
                wall += clock.wall() - wall_start
                cpu += clock.cpu() - cpu_start
    if isinstance(result, Measured):
        return Turn(wall / calls, cpu / calls, None, result.decision)
    return Turn(wall / calls, cpu / calls, thread_cpu / calls, result)


class Call(NamedTuple):
    """The seconds of a warm-up call, and of entering its variant's `installed` context.

    `is_alone` means that one thread of this process did all the work, and can do it in a fork.
    `may_fork` is False if a fork would lack something that the call uses, and `waits` is True if
    the call waits for most of its wall time, or works where its CPU time is not counted.
    """

    wall_s: float
    cpu_s: float
    install_s: float
    is_alone: bool
    may_fork: bool
    waits: bool

    @property
    def lasts_s(self) -> float:
        """The CPU seconds, which other programs do not lengthen; wall seconds if not `is_alone`."""
        return self.cpu_s if self.is_alone else self.wall_s


def timed_call(prepared: Prepared[Any], clock: Clock, helpers_before: int) -> Call:
    """Make one call, and measure its duration and whether this thread does all of its work.

    `helpers_before` is the number of threads and child processes before the first call.
    """
    install = clock.wall()
    with prepared.installed(), collection_off():
        install = clock.wall() - install
        prepared.begin()
        cpu, wall, thread_cpu, waits = clock.cpu(), clock.wall(), clock.thread_cpu(), clock.waits()
        result = prepared.run()
        thread_cpu, wall = clock.thread_cpu() - thread_cpu, clock.wall() - wall
        cpu, waits = clock.cpu() - cpu, clock.waits() - waits
    is_measured = isinstance(result, Measured)
    # A fork has no threads but its own, and would share its parent's child processes.
    may_fork = is_measured or (prepared.may_fork and helpers() <= helpers_before)
    mostly_waits = waits > 0 and wall > _MOSTLY_WAITING * cpu and not is_measured
    is_alone = cpu - thread_cpu <= max(_IDLE_SECONDS, _IDLE_THREADS * cpu)
    is_alone &= may_fork and not mostly_waits and not is_measured
    return Call(wall, cpu, install, is_alone, may_fork, mostly_waits)
