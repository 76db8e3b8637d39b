"""The record of one observed call: counts of work, and CPU seconds by phase."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from harness.model.cell import Progress

A = ParamSpec("A")
R = TypeVar("R")


_observed_calls = 0


@contextmanager
def observed_call() -> Iterator[None]:
    """Enclose an observed call: inside, `is_observing` returns True."""
    global _observed_calls
    _observed_calls += 1
    try:
        yield
    finally:
        _observed_calls -= 1


def is_observing() -> bool:
    """Whether a call is observed just now; then work in another process must be counted too."""
    return _observed_calls > 0


class Recorder:
    """Counters and phases of one call, filled by a family's observer.

    Phases are exclusive: while an inner one runs, the outer one stands still, so that they add up
    to the call. What belongs to none is `other`. `progress` is read from another thread while the
    call runs; an observer may replace it.
    """

    def __init__(self, cpu: Callable[[], float] = time.thread_time) -> None:
        self.counters: Counter[str] = Counter()
        self.phases: dict[str, float] = defaultdict(float)
        self.progress: Callable[[], Progress | None] = lambda: None
        self._cpu = cpu
        self._open: list[str] = []
        self._since = 0.0

    @property
    def current(self) -> str | None:
        """The innermost phase that is running."""
        return self._open[-1] if self._open else None

    def _switch(self) -> None:
        now = self._cpu()
        if self._open:
            self.phases[self._open[-1]] += now - self._since
        self._since = now

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Attribute what runs inside to phase `name`."""
        self._switch()
        self._open.append(name)
        try:
            yield
        finally:
            self._switch()
            self._open.pop()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Enclose the whole call."""
        with self.phase("other"):
            yield

    def timed(self, name: str, function: Callable[A, R], counter: str = "") -> Callable[A, R]:
        """Return `function` attributed to phase `name`, counting its calls if `counter` is given.

        Outside of the call nothing is recorded.
        """

        @wraps(function)
        def timed_function(*args: A.args, **kwargs: A.kwargs) -> R:
            if not self._open:
                return function(*args, **kwargs)
            if counter:
                self.counters[counter] += 1
            with self.phase(name):
                return function(*args, **kwargs)

        return timed_function

    def counted(self, counter: str, function: Callable[A, R]) -> Callable[A, R]:
        """Return `function` with its calls counted; outside of the call nothing is recorded."""

        @wraps(function)
        def counted_function(*args: A.args, **kwargs: A.kwargs) -> R:
            if self._open:
                self.counters[counter] += 1
            return function(*args, **kwargs)

        return counted_function
