"""Follow a child process: tell how far it has come, and end the wait when it takes too long."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.contract import Progress
from harness.execution.child import Child
from harness.execution.messages import (
    CallEnded,
    CheckDone,
    Closed,
    Failed,
    Message,
    Prepares,
    ProfileDone,
    Reported,
    SamplingDone,
    TurnBegins,
    TurnEnded,
)
from harness.measuring.sampling import Times
from harness.model.settings import SETUP_SECONDS

_POLL_SECONDS = 0.1
# What is measured is known by then.
_CLOSING_SECONDS = 30.0


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
    """A call that was stopped after `elapsed_s`, and what it had reported, with when.

    `peak_memory_bytes` is the peak until then: the whole call would have had that much or more.
    """

    elapsed_s: float
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


Outcome = CheckDone | SamplingDone | ProfileDone | Failed | OverBudget


_BUILDING = "building the problem"
_CALL = "the call"
_AFTER_CALL = "what followed its call"
_STAGES = {
    Prepares: "its set-up",
    TurnBegins: _CALL,
    CallEnded: _AFTER_CALL,
    TurnEnded: _AFTER_CALL,
}


class _Stage:
    """What a child is at, since when, and for how many seconds it may be."""

    def __init__(self, what: str, seconds: float) -> None:
        self.what = what
        self._seconds = seconds
        self._began = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    @property
    def is_too_long(self) -> bool:
        return self.elapsed > self._seconds


def follow(
    process: Child,
    event: Event,
    budget: float,
    listen: Listener,
    times: dict[str, Times] | None = None,
    setup_budget: float = SETUP_SECONDS,
) -> Outcome | tuple[str, Failed | OverBudget]:
    """Follow a child until it is done, has failed, takes too long, or has too much memory.

    A call may take `budget` seconds; each of the rest may take `setup_budget`: building the
    problem, setting a variant up, and what follows a call.

    While timing, `times` takes the turns in, and a failure or a call over budget comes with the
    variant that it is due to: the one that had the last turn.
    """
    return _Following(process, event, budget, listen, times, setup_budget).outcome()


class _Following:
    """One child that is followed, and whom it is at work for."""

    def __init__(
        self,
        process: Child,
        event: Event,
        budget: float,
        listen: Listener,
        times: dict[str, Times] | None,
        setup_budget: float,
    ) -> None:
        self._process = process
        self._event = event
        self._budget, self._setup_budget = budget, setup_budget
        self._listen = listen
        self._times = times
        self._busy = ""
        self._over = OverBudget(0.0)
        self._begin(_BUILDING)

    def _begin(self, what: str, busy: str = "") -> None:
        self._busy = busy or self._busy
        self._stage = _Stage(what, self._budget if what == _CALL else self._setup_budget)

    def outcome(self) -> Outcome | tuple[str, Failed | OverBudget]:
        """Follow to the end."""
        self._listen(self._event)
        while True:
            message = self._process.receive(_POLL_SECONDS)
            if (told := self._take(message)) is not None:
                if self._times is not None:
                    self._wait_until_closed()
                return self._due(told)
            if (stopped := self._beyond_a_limit(message)) is not None:
                return self._due(stopped)

    def _due(self, outcome: Outcome) -> Outcome | tuple[str, Failed | OverBudget]:
        if isinstance(outcome, Failed):
            outcome = replace(outcome, output=self._process.printed())
        if isinstance(outcome, Failed | OverBudget) and self._times is not None and self._busy:
            return self._busy, outcome
        return outcome

    def _take(self, message: Message | None) -> Outcome | None:
        """Take a message in; returns the outcome where it is one."""
        match message:
            case Prepares(variant) | TurnBegins(variant) | CallEnded(variant) | TurnEnded(variant):
                if self._times and variant not in self._times:
                    return Failed("The child process told of a variant that it was not given.")
                self._begin(_STAGES[type(message)], variant)
        match message:
            case Failed():
                return self._out_of_memory() if message.out_of_memory else message
            case CheckDone() | SamplingDone() | ProfileDone():
                return message
            case TurnBegins():
                self._event = replace(self._event, variant=message.variant, progress=None)
                self._listen(self._event)
            case TurnEnded() if self._times is not None:
                turn = message.wall_s, message.cpu_s, message.thread_cpu_s
                self._times[message.variant].add(message.block, *turn)
                self._event = replace(self._event, step=message.block + 1)
            case Reported():
                self._over.peak_memory_bytes = message.peak_memory_bytes
                if message.progress is not None:
                    self._take_progress(message.progress)
        return None

    def _take_progress(self, progress: Progress) -> None:
        now = (self._stage.elapsed, progress)
        self._over.first, self._over.last = self._over.first or now, now
        self._event = replace(self._event, progress=progress)
        self._listen(self._event)

    def _beyond_a_limit(self, message: Message | None) -> Failed | OverBudget | None:
        if self._process.is_beyond_memory():
            return self._out_of_memory()
        # Only where nothing waits to be read: what does may say that the call is over.
        if message is not None or not self._stage.is_too_long:
            return None
        if self._stage.what == _CALL:
            self._over.elapsed_s = self._stage.elapsed
            return self._over
        return Failed(
            f"{self._stage.what} was stopped after {self._stage.elapsed:.0f} s",
            unbuilt=self._stage.what == _BUILDING,
        )

    def _out_of_memory(self) -> Failed:
        limit = f"memory limit of {self._process.memory_gib:g} GiB"
        if self._times is not None and len(self._times) > 1:
            return Failed(f"passed, together with those that were timed beside it, the {limit}")
        return Failed(f"passed its {limit}")

    def _wait_until_closed(self) -> None:
        """Let what was prepared be closed; that it cannot be changes nothing of the outcome."""
        closing = _Stage("closing", _CLOSING_SECONDS)
        while not closing.is_too_long:
            if isinstance(self._process.receive(_POLL_SECONDS), Closed | Failed):
                return
