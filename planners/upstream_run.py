"""One timed run of a real library's planner in its child process, and counts of its calls.

The interpreter is the library's own, so that this imports nothing but what Python brings.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from inspect import getattr_static
from typing import Any, TypeVar
from unittest.mock import patch

T = TypeVar("T")


def timed(call: Callable[[], T]) -> tuple[T, dict[str, Any]]:
    """Call once without garbage collection; return the result, `wall_s` and process `cpu_s`."""
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
def watched(calls: Iterable[tuple[type, str, Callable[..., object]]]) -> Iterator[None]:
    """Give the arguments of each call of a method to a function first, until left.

    Args:
        calls: The class, the name of the method, and the function.
    """
    with ExitStack() as patches:
        for owner, name, watch in calls:
            method = getattr_static(owner, name)
            patches.enter_context(patch.object(owner, name, _watched(method, watch)))
        yield


def _watched(method: Any, watch: Callable[..., object]) -> Any:
    called = method.__func__ if isinstance(method, classmethod) else method

    def replacement(*arguments: Any, **named: Any) -> Any:
        watch(*arguments, **named)
        return called(*arguments, **named)

    return classmethod(replacement) if isinstance(method, classmethod) else replacement
