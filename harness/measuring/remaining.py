"""The time that a comparison still takes, guessed from how long its checks have taken."""

import time
from collections.abc import Callable
from statistics import fmean

# What a call takes part in at least once it passed its check: one to warm up, four to be timed and
# one more where those beside it took another share of the core than was thought.
_LEAST_CALLS = 6


class Remaining:
    """Guesses how many seconds are left, as it is told when checks begin and end."""

    def __init__(
        self, checks: int, timing_seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin with so many checks, and so many seconds to spend on timing."""
        self._left, self._timing_seconds, self._now = checks, timing_seconds, now
        self._took: list[float] = []
        self._calls: list[float] = []
        self._began = now()

    def check_begins(self) -> None:
        """Take in that the next check begins."""
        self._began = self._now()

    def check_ended(self, call_seconds: float | None) -> None:
        """Take in that a check has ended, and how long its call took where it is to be timed."""
        self._took.append(self._now() - self._began)
        self._left -= 1
        if call_seconds is not None:
            self._calls.append(call_seconds)
        self._began = self._now()

    def seconds(self) -> float | None:
        """Return the guess in seconds; None before a check has ended."""
        if not self._took:
            return None
        spent, mean = self._now() - self._began, fmean(self._took)
        per_call = fmean(self._calls) if self._calls else 0.0
        calls = sum(self._calls) + self._left * per_call
        timing = max(self._timing_seconds, _LEAST_CALLS * calls) if calls else 0.0
        if not self._left:
            return max(0.0, timing - spent)
        return max(0.0, mean - spent) + (self._left - 1) * mean + timing
