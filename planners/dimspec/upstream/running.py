"""Run ColossalAI's planner once with an empty path cache, and return times or counters."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

from colossalai.tensor.shape_consistency import ShapeConsistencyManager
from colossalai.tensor.sharding_spec import ShardingSpec, _DimSpec

from planners.dimspec.upstream.accelerate import accelerate
from planners.dimspec.upstream.plain_values import query_of
from planners.instruments import counted, timed

T = TypeVar("T")

ANSWERED_BY = ("colossalai", "interned")


def counting() -> AbstractContextManager[Counter[str]]:
    """Count ColossalAI's work in the `with` block; the caller adds the counter `searches`."""
    distinct: set[Any] = set()

    def conversion(counters: Counter[str], _: Any, source_spec: Any, target_spec: Any) -> None:
        distinct.add(query_of(source_spec, target_spec))
        counters["conversions"] += 1
        counters["distinct_searches"] = len(distinct)

    return counted(
        (ShapeConsistencyManager, "get_all_one_step_transform_spec", "expansions"),
        # ColossalAI 0.4.0 has the first of these two, and calls it in every constructor.
        (_DimSpec, "build_difference_2d_dict", "dictionaries_built"),
        (_DimSpec, "_build_difference_2d_dict", "dictionaries_built"),
        (_DimSpec, "__init__", "dim_specs_built"),
        (_DimSpec, "difference", "difference_calls"),
        (ShardingSpec, "__init__", "sharding_specs_built"),
        (ShapeConsistencyManager, "shape_consistency", conversion),
        others=("conversions", "distinct_searches"),
    )


def forget() -> None:
    """Empty ColossalAI's cache of paths."""
    ShapeConsistencyManager().cached_spec_pairs_transform_path.clear()


def run(request: dict[str, Any], call: Callable[[], T]) -> tuple[T, dict[str, Any]]:
    """Call once; return the result, with `wall_s`, `cpu_s` (process CPU time) and `counters`.

    The request has `answered_by`, one of ANSWERED_BY, and `count`. Without `count`, there are no
    counters, and no method of ColossalAI is patched for them.
    """
    answered_by = request.get("answered_by", "colossalai")
    if answered_by not in ANSWERED_BY:
        raise ValueError(f"answered_by is '{answered_by}'; known are: {', '.join(ANSWERED_BY)}")
    forget()
    with ExitStack() as stack:
        ours = stack.enter_context(accelerate()) if answered_by == "interned" else None
        counters = stack.enter_context(counting()) if request.get("count") else None
        result, measured = timed(call)
    if counters is not None:
        searches = ours.searches + ours.left_to_upstream if ours else counters["conversions"]
        counters["searches"] = searches
    return result, {**measured, "counters": counters or {}}
