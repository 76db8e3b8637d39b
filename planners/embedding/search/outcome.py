"""The deadline of a search over a search space, and its outcome."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from planners.embedding.search.space import Ints


class Deadline:
    """A moment `seconds` from now on a clock; without seconds it never passes."""

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
        """Return the deadline after a part of the remaining time."""
        return Deadline(None if self.seconds is None else part * self.left, self._clock)


@dataclass(frozen=True, slots=True)
class Found:
    """A plan: the option of each table, and the ranks of their shards."""

    options: Ints  # in the order of the plan, shape (T,)
    ranks: Ints  # of each shard of these options, one after the other
    rating: float  # milliseconds of the slowest rank, as torchrec's perf model adds them
    proposals: int  # different ones that were tried
    partitions: int  # of them could be placed
    bound: float = 0.0  # milliseconds; the search has proven that no plan rates below


@dataclass(frozen=True, slots=True)
class NotFound:
    """No proposal could be placed; the options of two of them, None where there was no proposal."""

    smallest: Ints | None  # needs the least HBM, then DDR, then SSD; the first of equals
    last: Ints | None
    proposals: int  # different ones that were tried
    bound: float = 0.0  # as above; infinite where it is proven that nothing fits
    tried: str = ""  # the attempts at a plan and at a proof, where both failed

    @property
    def verdict(self) -> str:
        """Return a clause on whether a plan exists; empty where no proof was tried."""
        if math.isinf(self.bound):
            return "it is proven that no plan fits"
        if not self.tried:
            return ""
        return f"neither a plan nor a proof that there is none was found; tried: {self.tried}"
