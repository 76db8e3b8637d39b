"""Time the steps of one rank of a decision, in a child process that plays the rank."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import median
from typing import Any

from harness.contract import Prepared
from harness.execution.child import run
from harness.execution.worker import Failed, Stage
from harness.measuring.timing.turns import SystemClock, timed_turn
from harness.measuring.timing.verdict import estimate_ratio
from harness.model.cell import Ratio
from harness.model.errors import ShardbenchError

_WARM_UP, _STEPS = 3, 10
_SECONDS = 300.0

Play = Callable[[Any], AbstractContextManager[Callable[[], None]]]
"""A function of a module. Its context sets a rank up, and yields a function that runs a step."""


@dataclass(frozen=True, slots=True)
class SlowestRank:
    """The slowest rank of a decision, and its seconds a step: a median for each process."""

    rank: int
    seconds: tuple[float, ...]

    @property
    def milliseconds(self) -> float:
        """The median of the processes' times."""
        return 1000 * median(self.seconds)

    def over(self, other: "SlowestRank") -> Ratio:
        """Return the ratio of the times to another's, paired by the order of measuring."""
        return estimate_ratio(self.seconds, other.seconds)


def time_slowest(
    play: Play, decisions: Sequence[dict[int, Any]], again: int, is_asynchronous: bool
) -> list[SlowestRank]:
    """Time every rank of each decision once, and the slowest rank of each `again` times, in turns.

    `decisions` have the picklable argument of `play` by rank. Wall time is measured on an
    asynchronous device, else CPU time. Raises ShardbenchError if a rank fails.
    """

    def seconds(job: Any) -> float:
        found = run(steps, play, job, is_asynchronous, first=Stage("playing a rank", _SECONDS))
        if isinstance(found, Failed):
            raise ShardbenchError(f"Playing a rank failed: {found.reason}")
        return float(found)

    once = [{rank: seconds(job) for rank, job in jobs.items()} for jobs in decisions]
    slowest = [max(times, key=times.__getitem__) for times in once]
    measured: list[list[float]] = [[] for _ in decisions]
    turns = [*range(len(decisions))]
    for _ in range(again):
        for number in turns:
            measured[number].append(seconds(decisions[number][slowest[number]]))
        turns.reverse()
    return [SlowestRank(*one) for one in zip(slowest, map(tuple, measured), strict=True)]


def steps(play: Play, job: Any, is_asynchronous: bool, *_report: object) -> float:
    """Return the median seconds of a step of a rank that this process plays."""
    clock = SystemClock()
    with play(job) as step:
        turns = [timed_turn(Prepared(step), clock) for _ in range(_WARM_UP + _STEPS)]
    times = [turn.wall_s if is_asynchronous else turn.cpu_s for turn in turns]
    return median(times[_WARM_UP:])
