"""The moment at which a search ends, whether it is done or not."""

import math
import time
from collections.abc import Callable


class Deadline:
    """So many `seconds` from now on a clock; without seconds it never passes."""

    def __init__(
        self, seconds: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end = math.inf if seconds is None else clock() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left: negative once it has passed, infinite where it never does."""
        return math.inf if self.seconds is None else self._end - self._clock()

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.left < 0

    def after(self, part: float) -> "Deadline":
        """Return the deadline after a part of what is left."""
        return Deadline(None if self.seconds is None else part * self.left, self._clock)
