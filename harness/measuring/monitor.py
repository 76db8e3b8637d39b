"""Run a job in a child process, and report its progress and that of the whole comparison."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from msgspec import structs

from harness.contract import Progress
from harness.execution.child import run
from harness.execution.memory import shared_limit_gib
from harness.execution.messages import Failed, Stage
from harness.measuring.jobs import Reported
from harness.measuring.request import BUILDING, CALL, Job


@dataclass(frozen=True, slots=True)
class Event:
    """A stage of the comparison and its progress, for a progress display.

    `step` counts variants while checking and blocks while timing; `steps` is their total, 0 if
    unknown. `doing` is the current part of a check, and `left_s` an estimate of the seconds until
    the whole comparison ends.
    """

    stage: str
    variant: str
    step: int
    steps: int
    progress: Progress | None = None
    doing: str = ""
    left_s: float | None = None


CHECKING = "checking"
# A variant that passes its check is called at least once to warm up and four times to be timed,
# and sometimes once more, if the first block ran with wrong shares of the core (see `SideBySide`).
_LEAST_CALLS = 6

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
                elif message.what == CALL:
                    event = replace(event, variant=message.subject, progress=None)
                else:
                    return
            case Reported(Progress(done=blocks)) if event.stage != CHECKING:
                event = replace(event, step=blocks)
                return
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
        return structs.replace(outcome, reason=outcome.reason.replace("passed its", together))
    if isinstance(outcome, Failed) and (outcome.cause, outcome.stage.what) == ("time", CALL):
        over.elapsed_s, over.subject = outcome.elapsed_s, outcome.subject
        return over
    return outcome


class Remaining:
    """Estimate the seconds until a comparison ends, from the checks that have ended."""

    def __init__(
        self, checks: int, timing_seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin with the number of checks, and the seconds for the timing that follows them."""
        self._left, self._timing_seconds, self._now = checks, timing_seconds, now
        self._took: list[float] = []
        self._calls: list[float] = []
        self._began = now()

    def check_begins(self) -> None:
        """Record that a check begins."""
        self._began = self._now()

    def check_ended(self, call_seconds: float | None) -> None:
        """Record that a check has ended; `call_seconds` is its call's time, None if it failed."""
        self._took.append(self._now() - self._began)
        self._left -= 1
        if call_seconds is not None:
            self._calls.append(call_seconds)
        self._began = self._now()

    def seconds(self) -> float | None:
        """Return the estimated seconds until the end; None until the first check has ended."""
        if not self._took:
            return None
        spent, mean = self._now() - self._began, fmean(self._took)
        per_call = fmean(self._calls) if self._calls else 0.0
        calls = sum(self._calls) + self._left * per_call
        timing = max(self._timing_seconds, _LEAST_CALLS * calls) if calls else 0.0
        if not self._left:
            return max(0.0, timing - spent)
        return max(0.0, mean - spent) + (self._left - 1) * mean + timing
