"""A limit on the wall time of what the main thread runs."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_AGAIN_S = 1.0


class TimeIsUp(KeyboardInterrupt):
    """The time is over. Child processes are ended as after Ctrl-C.

    It is no Exception, since a planner may catch those and go on.
    """


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeIsUp in the block after some seconds, and each second until it is being handled.

    Once is not enough: Python drops what a destructor or the callback of a weak reference raises.
    """

    is_over = False

    def end(*_: Any) -> None:
        handled = sys.exception()
        while handled is not None and not isinstance(handled, TimeIsUp):
            handled = handled.__context__
        if handled is None and not is_over:  # else the block cleans up, which must not end halfway
            raise TimeIsUp

    before = signal.signal(signal.SIGALRM, end)
    others = signal.setitimer(signal.ITIMER_REAL, max(0.001, seconds), _AGAIN_S)
    try:
        try:
            yield
        finally:
            is_over = True  # the timer must be stopped, even if its last alarm comes here
    finally:
        signal.setitimer(signal.ITIMER_REAL, *others)
        signal.signal(signal.SIGALRM, before)
