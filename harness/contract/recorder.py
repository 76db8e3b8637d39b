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
    """Mark the `with` block as an observed call: inside it, `is_observing` returns True."""
    global _observed_calls
    _observed_calls += 1
    try:
        yield
    finally:
        _observed_calls -= 1


def is_observing() -> bool:
    """Return whether a call is being observed; if so, work in other processes is also counted."""
    return _observed_calls > 0


class Recorder:
    """Counters and phases of one call, filled by a family's observer.

    `phases` has CPU seconds by phase. Phases are exclusive: time in an inner phase does not count
    for the outer one, so they add up to the call's time. Time outside of all phases is `other`.
    Another thread calls `progress` while the call runs; an observer may replace that function.
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
        """The innermost running phase; None outside of the call."""
        return self._open[-1] if self._open else None

    def _switch(self) -> None:
        now = self._cpu()
        if self._open:
            self.phases[self._open[-1]] += now - self._since
        self._since = now

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Attribute the CPU time of the `with` block to phase `name`."""
        self._switch()
        self._open.append(name)
        try:
            yield
        finally:
            self._switch()
            self._open.pop()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Enclose the whole call; time outside of its phases goes to phase `other`."""
        with self.phase("other"):
            yield

    def timed(self, name: str, function: Callable[A, R], counter: str = "") -> Callable[A, R]:
        """Wrap `function` to attribute its CPU time to phase `name`, and count its calls.

        An empty `counter` means that calls are not counted. Outside of the observed call nothing is
        recorded.
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
        """Wrap `function` to count its calls in `counter` during the observed call."""

        @wraps(function)
        def counted_function(*args: A.args, **kwargs: A.kwargs) -> R:
            if self._open:
                self.counters[counter] += 1
            return function(*args, **kwargs)

        return counted_function
