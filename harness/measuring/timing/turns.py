"""A turn: one or several calls of a prepared variant, timed together; and observers of turns."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from harness.contract import Measured, Prepared
from harness.contract.calls import collection_off
from harness.execution.bootstrap import Report
from harness.measuring.timing.clock import Clock


class Observer:
    """Receives the events of timing; this one does nothing.

    `report` is the connection through which forks reach the parent process, if there is one.
    """

    report: Report | None = None

    def turn_begins(self, name: str) -> None:
        """A variant's turn begins."""

    def turn_ended(self, name: str, decision: Any) -> None:
        """A variant's turn has ended with a decision; this is not timed."""

    def together(self, processes: int) -> None:
        """Several processes begin to run side by side."""

    def counting(self, name: str) -> None:
        """The work of a variant's call is counted next."""

    def block_ended(self, block: int, turns: Sequence["Sample"]) -> None:
        """The block with this number has been timed."""


class Sample(NamedTuple):
    """Seconds of a call in one turn of a variant; no wall seconds where a core was shared.

    `turn_s` is the length of the whole turn, with the calls and all around them.
    """

    name: str
    cpu_s: float
    wall_s: float | None
    thread_cpu_s: float | None
    turn_s: float = 0.0


class Turn(NamedTuple):
    """Mean wall and CPU seconds of a call, and its decision.

    CPU seconds are of all threads, so that work which is moved to another one is not a speed-up;
    `thread_cpu_s`, of the calling thread alone, is None for a call that was measured elsewhere.
    """

    wall_s: float
    cpu_s: float
    thread_cpu_s: float | None
    decision: Any


def timed_turn(prepared: Prepared[Any], clock: Clock, calls: int = 1) -> Turn:
    """Call a prepared variant `calls` times; return the mean times of a call."""
    wall = cpu = thread_cpu = 0.0
    # Renewing must not be timed; otherwise the clock is read once, since a call may be too short
    # for it.
    rounds, calls_of_round = (calls, 1) if prepared.renew else (1, calls)
    with prepared.installed(), collection_off():
        for _ in range(rounds):
            prepared.begin()
            if calls_of_round > 1:  # the caches of the processor hold another variant's data
                prepared.run()
            wall_start, cpu_start, thread_start = clock.wall(), clock.cpu(), clock.thread_cpu()
            for _ in range(calls_of_round):
                result = prepared.run()
                if isinstance(result, Measured):
                    wall += result.wall_s
                    cpu += result.cpu_s
            if not isinstance(result, Measured):
                wall += clock.wall() - wall_start
                cpu += clock.cpu() - cpu_start
                thread_cpu += clock.thread_cpu() - thread_start
    if isinstance(result, Measured):
        return Turn(wall / calls, cpu / calls, None, result.decision)
    return Turn(wall / calls, cpu / calls, thread_cpu / calls, result)
