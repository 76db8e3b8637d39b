"""Counts of work: counters and phases of an observed call, and calls under a profiler."""

import cProfile
import gc
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import PurePath
from types import CodeType
from typing import Any, ParamSpec, TypeVar

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


@contextmanager
def collection_off() -> Iterator[None]:
    """Collect garbage now, then switch the collector off inside the `with` block.

    Afterwards, undo what the block has left changed in the interpreter, for others to run in: its
    settings, and the working directory, even if it was renamed or removed.
    """
    directory = os.open(".", os.O_PATH)
    was_enabled, thresholds = gc.isenabled(), gc.get_threshold()
    recursion, interval = sys.getrecursionlimit(), sys.getswitchinterval()
    functions = sys.getprofile(), sys.gettrace()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if (sys.getprofile(), sys.gettrace()) != functions:
            sys.setprofile(None)
            sys.settrace(None)
        os.fchdir(directory)
        os.close(directory)
        sys.setrecursionlimit(recursion)
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
        (gc.enable if was_enabled else gc.disable)()


def profiled(function: Callable[[], R]) -> tuple[R, list[Any]]:
    """Call a function under cProfile; return its result and the profiler's entries.

    The garbage collector is off, because its calls happen at different times in each run.
    """
    profile = cProfile.Profile()
    with collection_off():
        profile.enable()
        try:
            result = function()
        finally:
            profile.disable()
    return result, profile.getstats()


def count_calls(function: Callable[[], R]) -> tuple[R, dict[str, int]]:
    """Call a function, and count the calls made until it returns, by caller.

    Calls of Python functions and of built-in functions are both counted, each for its direct
    caller. A caller is named by the last part of its module's name and its qualified name, e.g.
    `annotations._get_annotated_method`.

    Returns:
        The function's result, and the counts above 0, the largest first.
    """
    result, entries = profiled(function)
    made: Counter[str] = Counter()
    for entry in entries:
        calls = sum(called.callcount for called in entry.calls or ())
        if calls and isinstance(entry.code, CodeType):
            made[_name(entry.code)] += calls
    return result, dict(made.most_common())


def _name(code: CodeType) -> str:
    path = PurePath(code.co_filename)
    module = path.parent.name if path.stem == "__init__" else path.stem
    name = code.co_qualname if sys.version_info >= (3, 11) else code.co_name
    return f"{module}.{name}"
