"""One run of the planner with nothing known before, timed or counted."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from colossalai.tensor.shape_consistency import ShapeConsistencyManager

from planners.dimspec.upstream.accelerate import accelerate
from planners.dimspec.upstream.counting import counting
from planners.upstream_run import timed

T = TypeVar("T")

ANSWERED_BY = ("colossalai", "interned")


def run(request: dict[str, Any], call: Callable[[], T]) -> tuple[T, dict[str, Any]]:
    """Call once.

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
        ours = stack.enter_context(accelerate()) if answered_by == "interned" else None
        counters = stack.enter_context(counting()) if request.get("count") else None
        result, measured = timed(call)
    if counters is not None:
        searches = ours.searches + ours.left_to_upstream if ours else counters["conversions"]
        counters["searches"] = searches
    return result, {**measured, "counters": counters or {}}
