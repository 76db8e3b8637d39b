"""Compare a plan with the one that the problem's planner makes today."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from harness.contract.family import load
from harness.measuring.request import Request
from harness.measuring.timing.turns import SystemClock
from harness.model.errors import InfeasibleDecision, ShardbenchError
from harness.planning.plan import Planned, decide

_LEAST_SECONDS = 10.0
_REPEAT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Baseline:
    """The first quality of the plan that `planner` makes; if it is None, a sentence says why."""

    planner: str
    value: float | None = None
    reason: str = ""


def baseline(
    request: Request,
    made: Planned,
    begins: Callable[[str], None] = lambda stage: None,
    seconds: float | None = None,
) -> Baseline | None:
    """Plan as the problem's planner does today, or as its model if a variant is not installed.

    Returns None if the family names no such planner, or if the plan had to stay near another one,
    which no release does. It must be called in the main thread.

    Args:
        request: the problem.
        made: the plan to compare with.
        begins: called with the stage that begins.
        seconds: the limit; by default as long as planning took, and at least ten seconds.
    """
    family = request.family
    planning = load(family.abilities.planning)
    if planning is None or planning.baseline is None or made.moved_gib is not None:
        return None
    planner, name = planning.baseline(made.problem)
    variant, first = family.find(name), made.first.name
    if family.root(family.find(made.cell.variant)) is family.root(variant):
        return Baseline(planner, made.quality[first])
    variant = family.root(variant) if variant.missing() else variant
    begins(f"planning with {variant.name}")
    limit = max(_LEAST_SECONDS, made.planning_s) if seconds is None else seconds
    try:
        variant.check_installed()
        with _stopped_after(limit):
            decision = decide(family, variant, made.problem, SystemClock())[0]
            return Baseline(planner, family.work.quality(made.problem, decision)[first])
    except _TimeIsUp:
        return Baseline(planner, None, f"{planner} finds no plan within {limit:.0f} s.")
    except InfeasibleDecision:
        return Baseline(planner, None, f"{planner} finds no plan.")
    except ShardbenchError as error:
        return Baseline(planner, None, f"{planner}'s own plan is unknown: {error}")


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
