"""One timed call in a real library's process, with Python's own modules alone."""

import gc
import time
from collections.abc import Callable
from typing import Any, TypeVar

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
