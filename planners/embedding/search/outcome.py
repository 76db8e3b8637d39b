"""The deadline of a search over a search space, its outcome, and the plan as torchrec's options."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torchrec.distributed.planner.types import ShardingOption

from planners.embedding.search.options import PlannedOption, copy_without_ranks
from planners.embedding.search.space import Ints, SearchSpace


class Deadline:
    """The time `seconds` from now on a clock; a deadline without seconds never passes."""

    def __init__(
        self, seconds: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end = math.inf if seconds is None else clock() + seconds

    @property
    def left(self) -> float:
        """The remaining seconds: negative after the deadline, infinite if there is none."""
        return self._end - self._clock()

    @property
    def passed(self) -> bool:
        """Whether the deadline has passed."""
        return self.left < 0

    def after(self, part: float) -> "Deadline":
        """Return an earlier deadline, after a part (0 to 1) of the remaining time."""
        return Deadline(None if self.seconds is None else part * self.left, self._clock)


@dataclass(frozen=True, slots=True)
class Found:
    """A plan: the option of each table, and the ranks of their shards."""

    options: Ints  # option numbers in the order of the plan, shape (T,)
    ranks: Ints  # the rank of each shard of these options, option by option
    rating: float  # milliseconds of the slowest rank, as torchrec's perf model adds them
    proposals: int  # number of different proposals that were tried
    partitions: int  # number of these proposals that could be placed
    bound: float = 0.0  # milliseconds; the search has proven that no plan has a lower rating
    moved: int = 0  # bytes moved from a previous plan, if the search was for a plan near to one
    verdict: ClassVar = ""  # as in NotFound


@dataclass(frozen=True, slots=True)
class NotFound:
    """The outcome if no plan was found; contains two of the failed proposals, if there were any."""

    smallest: Ints | None  # options of the proposal with the least HBM, then DDR, then SSD
    last: Ints | None  # options of the last proposal
    proposals: int  # number of different proposals that were tried
    bound: float = 0.0  # as in Found; infinite if it is proven that no plan fits
    tried: str = ""  # the searches and provers that ran, if neither a plan nor a proof was found
    partitions: ClassVar = 0  # as in Found

    @property
    def verdict(self) -> str:
        """Return a clause that reports whether a plan exists; empty if no proof was tried."""
        if math.isinf(self.bound):
            return "it is proven that no plan fits"
        if not self.tried:
            return ""
        return f"neither a plan nor a proof that there is none was found; tried: {self.tried}"


def placed(space: SearchSpace, plan: Found) -> list[ShardingOption]:
    """Return a plan as copies of its options, with a rank for each shard."""
    options = [copy_without_ranks(space.options[number], PlannedOption) for number in plan.options]
    ranks = iter(plan.ranks.tolist())
    for option in options:
        for shard in option.shards:
            shard.rank = next(ranks)
    return options
