"""Compare a plan with the one that the released library makes of the same problem."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter

from harness.measuring.request import Request
from harness.measuring.timing.clock import SystemClock
from harness.model.errors import InfeasibleDecision, ShardbenchError
from harness.planning.plan import Planned, decide

_LEAST_SECONDS = 10.0
_REPEAT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Baseline:
    """The first quality of the plan that `system` makes as released.

    If there is none, `reason` is the rest of a sentence that begins with "NAME's own".
    """

    system: str
    value: float | None = None
    reason: str = ""


def baseline(
    request: Request,
    made: Planned,
    begins: Callable[[str], None] = lambda stage: None,
    seconds: float | None = None,
) -> Baseline | None:
    """Plan as the system in the family's first overview row does, with the fastest such variant.

    Returns None if the family has no such row, or if the plan had to stay near another one, which
    no release does. It must be called in the main thread.

    Args:
        request: the problem.
        made: the plan to compare with.
        begins: called with the stage that begins.
        seconds: the limit; by default as long as planning took, and at least ten seconds.
    """
    family = request.family
    row = min(family.overview, key=attrgetter("place"), default=None)
    if row is None or made.moved_gib is not None:
        return None
    first, today = made.first.name, family.find(row.today)
    if family.root(family.find(made.cell.variant)) is family.root(today):
        return Baseline(row.system, made.quality[first])
    begins(f"looking for {row.system}'s own plan")
    limit = max(_LEAST_SECONDS, made.planning_s) if seconds is None else seconds
    ours = family.find(row.ours)
    is_equal = family.root(ours) is family.root(today)
    variant = ours if is_equal and not ours.missing() else today
    try:
        variant.check_installed()
        with _stopped_after(limit):
            decision = decide(family, variant, made.problem, SystemClock())[0]
            return Baseline(row.system, family.work.quality(made.problem, decision)[first])
    except _TimeIsUp:
        return Baseline(row.system, None, f"planner finds no plan within {limit:.0f} s.")
    except InfeasibleDecision:
        return Baseline(row.system, None, "planner finds no plan.")
    except ShardbenchError as error:
        return Baseline(row.system, None, f"plan is unknown: {error}")


class _TimeIsUp(BaseException):
    """Not an Exception, since a planner may catch those and go on."""


@contextmanager
def _stopped_after(seconds: float) -> Iterator[None]:
    """Raise _TimeIsUp in the block after `seconds`, and each second until the block has ended."""

    def stop(*_: object) -> None:
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, stop)
    others = signal.setitimer(signal.ITIMER_REAL, seconds, _REPEAT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *others)
        signal.signal(signal.SIGALRM, before)
