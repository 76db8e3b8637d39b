"""Run a job in a child process, and report its progress and that of the whole comparison."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from harness.contract import Progress
from harness.execution.child import run
from harness.execution.usage import shared_limit_gib
from harness.execution.worker import Failed, Stage
from harness.measuring.jobs import Reported
from harness.measuring.request import BUILDING, CALL, Job


@dataclass(frozen=True, slots=True)
class Event:
    """A stage of the comparison and its progress, for a progress display.

    `step` counts variants while checking and blocks while timing; `steps` is their total, 0 if
    unknown. `doing` is the current part of a check, and `at_most_s` the limit of a call that is
    checked, or of all timing, in seconds.
    """

    stage: str
    variant: str
    step: int
    steps: int
    progress: Progress | None = None
    doing: str = ""
    at_most_s: float | None = None


CHECKING = "checking"

Listener = Callable[[Event], None]


@dataclass(slots=True)
class OverBudget:
    """A call of variant `subject` that was stopped after `elapsed_s` seconds, over its budget.

    `first` and `last` are its first and last progress reports, with the seconds since the call
    began. `peak_memory_bytes` is a lower bound on the peak of the whole call.
    """

    elapsed_s: float = 0.0
    subject: str = ""
    peak_memory_bytes: int | None = None
    first: tuple[float, Progress] | None = None
    last: tuple[float, Progress] | None = None

    def report(self, seconds: float, progress: Progress) -> None:
        """Record a progress report; start over if its unit changes or its count goes down."""
        last, self.last = self.last, (seconds, progress)
        if last is None or last[1].unit != progress.unit or last[1].done > progress.done:
            self.first = self.last

    def projection(self) -> float | None:
        """Return the projected seconds of the whole call, at the pace from `first` to `last`.

        None without two reports. If more steps follow the reported one, it is a lower bound.
        """
        if self.first is None or self.last is None:
            return None
        (start, before), (end, after) = self.first, self.last
        if after.total is None or after.done <= before.done:
            return None
        pace = (end - start) / (after.done - before.done)
        return end + pace * max(0, after.total - after.done)


def run_job(
    work: Callable[..., Any],
    job: Job,
    *arguments: Any,
    event: Event,
    listen: Listener,
    memory_gib: float,
    held: int = 1,
) -> Any | Failed | OverBudget:
    """Run a job's work in a child process; return its result, or the reason for having none.

    `listen` is called with the event, and again each time that it changes. The child process has
    `held` variants at a time, and `memory_gib` for each, as far as the machine has that much.
    """
    over = OverBudget()
    began = time.monotonic()

    def take(message: Any) -> None:
        nonlocal began, event
        match message:
            case Stage():
                began = time.monotonic()
                if event.stage == CHECKING:
                    event = replace(event, doing=message.what, progress=None)
                else:
                    return
            case Reported(Progress(done=blocks)) if event.stage != CHECKING:
                event = replace(event, step=blocks)
            case Reported(progress):
                over.peak_memory_bytes = message.peak_memory_bytes
                if progress is None:
                    return
                over.report(time.monotonic() - began, progress)
                event = replace(event, progress=progress)
        listen(event)

    if event.stage == CHECKING:
        event = replace(event, doing=BUILDING)
    listen(event)
    first = job.stage(BUILDING)
    shared_gib = shared_limit_gib(memory_gib, held)
    outcome = run(work, job, *arguments, first=first, listen=take, memory_gib=shared_gib)
    if isinstance(outcome, Failed) and outcome.cause == "memory" and held > 1:
        together = "passed, together with those that were timed beside it, the"
        return replace(outcome, reason=outcome.reason.replace("passed its", together))
    if isinstance(outcome, Failed) and (outcome.cause, outcome.stage.what) == ("time", CALL):
        over.elapsed_s, over.subject = outcome.elapsed_s, outcome.subject
        return over
    return outcome
