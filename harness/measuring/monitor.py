"""Run a job in a child process, and tell how far it has come."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from harness.contract import Progress
from harness.execution.child import run
from harness.execution.messages import Failed, Stage
from harness.measuring.jobs import BUILDING, CALL, Job, Reported, TurnTimed


@dataclass(frozen=True, slots=True)
class Event:
    """What a progress display shows: a stage of the comparison, and how far it has come.

    `step` counts variants while checking and blocks while timing; `steps` is 0 where how many
    there will be is not known.
    """

    stage: str
    variant: str
    step: int
    steps: int
    progress: Progress | None = None


Listener = Callable[[Event], None]


@dataclass(slots=True)
class OverBudget:
    """A call of variant `subject` that was stopped, and what it had reported, with when.

    `peak_memory_bytes` is the peak until then: the whole call would have had that much or more.
    """

    elapsed_s: float = 0.0
    subject: str = ""
    peak_memory_bytes: int | None = None
    first: tuple[float, Progress] | None = None
    last: tuple[float, Progress] | None = None

    def projection(self) -> float | None:
        """Project the whole call in seconds from the pace between first and last progress."""
        if self.first is None or self.last is None:
            return None
        (start, before), (end, after) = self.first, self.last
        if after.total is None or after.done <= before.done:
            return None
        pace = (end - start) / (after.done - before.done)
        return end + pace * max(0, after.total - after.done)


class _Monitor:
    """Turns the messages of a job into events, and keeps what a stopped call had reported."""

    def __init__(self, event: Event, listen: Listener) -> None:
        self._event, self._listen = event, listen
        self._began = time.monotonic()
        self.over = OverBudget()

    def __call__(self, message: Any) -> None:
        match message:
            case Stage():
                self._began = time.monotonic()
                if message.what == CALL:
                    self._tell(variant=message.subject, progress=None)
            case TurnTimed(block):
                self._event = replace(self._event, step=block + 1)
            case Reported(progress, peak_memory_bytes):
                self.over.peak_memory_bytes = peak_memory_bytes
                if progress is not None:
                    self.over.last = (time.monotonic() - self._began, progress)
                    self.over.first = self.over.first or self.over.last
                    self._tell(progress=progress)

    def _tell(self, **changes: Any) -> None:
        self._event = replace(self._event, **changes)
        self._listen(self._event)


def run_job(
    work: Callable[..., Any],
    job: Job,
    *arguments: Any,
    event: Event,
    listen: Listener,
    memory_gib: float,
) -> Any | Failed | OverBudget:
    """Run a job in a child process; returns its result, or why there is none.

    Args:
        work: `run_check`, `run_sampling` or `run_profile`.
        job: what the work is given first.
        arguments: what it is given beside that.
        event: what to begin with; what changes of it is told to `listen`.
        listen: called with each event.
        memory_gib: how much resident memory the process may have, with all that it starts.
    """
    monitor = _Monitor(event, listen)
    listen(event)
    first = job.stage(BUILDING)
    outcome = run(work, job, *arguments, first=first, listen=monitor, memory_gib=memory_gib)
    if isinstance(outcome, Failed) and (outcome.cause, outcome.stage.what) == ("time", CALL):
        monitor.over.elapsed_s, monitor.over.subject = outcome.elapsed_s, outcome.subject
        return monitor.over
    return outcome
