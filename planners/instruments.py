"""Time a call, count calls, replace attributes: with Python's own modules, for upstreams too."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from inspect import getattr_static
from typing import Any, TypeVar
from unittest.mock import patch

T = TypeVar("T")


def timed(call: Callable[[], T], collecting: bool = False) -> tuple[T, dict[str, Any]]:
    """Call once; return the result, `wall_s` and process `cpu_s`.

    No garbage is collected during the call unless it is `collecting`.
    """
    gc.collect()
    if not collecting:
        gc.disable()
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        result = call()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    finally:
        gc.enable()
    return result, {"wall_s": wall, "cpu_s": cpu}


@contextmanager
def replaced(attributes: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Replace attributes until left; each is given by owner, name and new value."""
    with ExitStack() as patches:
        for owner, name, value in attributes:
            patches.enter_context(patch.object(owner, name, value, create=True))
        yield


@contextmanager
def counted(
    *methods: tuple[type, str, str | Callable[..., None]], others: Iterable[str] = ()
) -> Iterator[Counter[str]]:
    """Count the calls of methods until left, each before it is made.

    A method is given by class, name and counter, which stays 0 where there is no such method. In
    place of a counter's name, a function of the counters and the arguments of a call may count; the
    counters that it uses are `others`.
    """
    names = [count for *_, count in methods if isinstance(count, str)]
    counters = Counter(dict.fromkeys((*names, *others), 0))
    with replaced(
        (owner, name, _counted(getattr_static(owner, name), count, counters))
        for owner, name, count in methods
        if hasattr(owner, name)
    ):
        yield counters


def _counted(method: Any, count: str | Callable[..., None], counters: Counter[str]) -> Any:
    is_classmethod = isinstance(method, classmethod)
    called = method.__func__ if is_classmethod else method

    def replacement(*arguments: Any, **named: Any) -> Any:
        if isinstance(count, str):
            counters[count] += 1
        else:
            count(counters, *arguments, **named)
        return called(*arguments, **named)

    return classmethod(replacement) if is_classmethod else replacement
