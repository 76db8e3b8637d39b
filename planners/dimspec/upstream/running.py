"""One run of the planner: cold, answered by whom the request says, timed or counted."""

import gc
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from colossalai.tensor.shape_consistency import ShapeConsistencyManager

from planners.dimspec.upstream.accelerate import Accelerated, accelerate
from planners.dimspec.upstream.counting import counting

T = TypeVar("T")

ANSWERED_BY = ("colossalai", "interned")


def run(request: dict[str, Any], call: Callable[[], T]) -> tuple[T, dict[str, Any]]:
    """Call once, with nothing known before.

    Args:
        request: `answered_by`, one of ANSWERED_BY, and `count`: whether to take counters. Where
            that is false, nothing of upstream is patched for it.
        call: What is timed and counted.

    Returns:
        What it returned, and `wall_s`, `cpu_s` (process CPU time) and `counters`.
    """
    answered_by = request.get("answered_by", "colossalai")
    if answered_by not in ANSWERED_BY:
        raise ValueError(f"answered_by is '{answered_by}'; known are: {', '.join(ANSWERED_BY)}")
    ShapeConsistencyManager().cached_spec_pairs_transform_path.clear()
    with ExitStack() as stack:
        accelerated: Accelerated | None = None
        if answered_by == "interned":
            accelerated = stack.enter_context(accelerate())
        counted = stack.enter_context(counting()) if request.get("count") else None
        gc.collect()
        stack.callback(gc.enable)
        gc.disable()
        wall, cpu = time.perf_counter(), time.process_time()
        result = call()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    counters: dict[str, int] = {}
    if counted is not None:
        searches = counted.conversions
        if accelerated is not None:
            searches = accelerated.searches + accelerated.left_to_upstream
        counters = counted.counters(searches)
    return result, {"wall_s": wall, "cpu_s": cpu, "counters": counters}
