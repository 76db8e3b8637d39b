"""Follow a child process: tell how far it has come, and end the wait when a call is over budget."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.registry import Progress
from harness.sampling import Times
from harness.worker import (
    CallEnded,
    CheckDone,
    Child,
    Failed,
    Prepares,
    ProfileDone,
    Reported,
    SamplingDone,
    TurnBegins,
    TurnEnded,
)

_POLL_SECONDS = 0.1


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


def follow(
    process: Child,
    event: Event,
    budget: float,
    listen: Listener,
    times: dict[str, Times] | None = None,
) -> Outcome | tuple[str, Failed | OverBudget]:
    """Follow a child until it is done, has failed, or one call takes longer than `budget` seconds.

    While timing, `times` takes the turns in, and a failure or a call over budget comes with the
    variant that it is due to.
    """
    in_call = False
    busy = ""
    call_started = time.monotonic()
    over = OverBudget(0.0)
    listen(event)
    while True:
        message = process.receive(_POLL_SECONDS)
        elapsed = time.monotonic() - call_started
        if isinstance(message, Failed) and busy and times is not None:
            return busy, message
        if isinstance(message, CheckDone | SamplingDone | ProfileDone | Failed):
            return message
        if isinstance(message, Prepares):
            busy = message.variant
        elif isinstance(message, CallEnded):
            in_call = False
        elif isinstance(message, TurnBegins):
            busy = message.variant
            in_call, call_started = True, time.monotonic()
            event = replace(event, variant=message.variant, progress=None)
            listen(event)
        elif isinstance(message, TurnEnded):
            in_call, busy = False, ""
            if times is not None:
                times[message.variant].add(message.block, message.wall_s, message.cpu_s)
                event = replace(event, step=message.block + 1)
        elif isinstance(message, Reported):
            over.peak_memory_bytes = message.peak_memory_bytes
            if message.progress is not None:
                over.first = over.first or (elapsed, message.progress)
                over.last = (elapsed, message.progress)
                event = replace(event, progress=message.progress)
                listen(event)
        # Only where nothing waits to be read: what does may say that the call is over.
        if message is None and in_call and elapsed > budget:
            over.elapsed_s = elapsed
            return (event.variant, over) if times is not None else over
