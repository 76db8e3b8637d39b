"""Time a call, count calls, patch attributes.

This module imports only the standard library, because child processes that lack our dependencies
use it too."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from inspect import getattr_static
from typing import Any, TypeVar

T = TypeVar("T")


def timed(call: Callable[[], T]) -> tuple[T, dict[str, Any]]:
    """Call once, without garbage collection; return the result, and `wall_s` and `cpu_s`.

    `cpu_s` is CPU seconds of the whole process.
    """
    gc.collect()
    gc.disable()
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        result = call()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    finally:
        gc.enable()
    return result, {"wall_s": wall, "cpu_s": cpu}


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause garbage collection in the `with` block; many new objects would trigger it often."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def replaced(attributes: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Patch attributes in the `with` block, given as (owner, name, new value)."""
    from unittest.mock import patch  # which imports asyncio; listing variants needs neither

    with ExitStack() as patches:
        for owner, name, value in attributes:
            patches.enter_context(patch.object(owner, name, value, create=True))
        yield


@contextmanager
def counted(
    *methods: tuple[type, str, str | Callable[..., None]], others: Iterable[str] = ()
) -> Iterator[Counter[str]]:
    """Count the calls of methods in the `with` block, each before it runs.

    `methods` has (class, method name, counter name); if the class has no such method, the counter
    is 0. Instead of a counter name, a function may update the counters: it gets the counters and
    the arguments of the call, and `others` names the counters that it uses.
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
