"""Counts of what the planner does, by patches of its classes in a run of its own."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from colossalai.tensor.shape_consistency import ShapeConsistencyManager
from colossalai.tensor.sharding_spec import ShardingSpec, _DimSpec

from planners.dimspec.upstream.plain_values import query_of
from planners.upstream_run import watched

_COUNTED = (
    (ShapeConsistencyManager, "get_all_one_step_transform_spec", "expansions"),
    # Release 0.4.0 has the first of the two, and calls it in every constructor.
    (_DimSpec, "build_difference_2d_dict", "dictionaries_built"),
    (_DimSpec, "_build_difference_2d_dict", "dictionaries_built"),
    (_DimSpec, "__init__", "dim_specs_built"),
    (_DimSpec, "difference", "difference_calls"),
    (ShardingSpec, "__init__", "sharding_specs_built"),
)


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count until left, whatever answers the conversions; `searches` are left to the caller."""
    counters = Counter(dict.fromkeys((name for *_, name in _COUNTED), 0))
    counters.update(conversions=0, distinct_searches=0)
    distinct: set[Any] = set()

    def conversion(_: Any, source_spec: ShardingSpec, target_spec: ShardingSpec) -> None:
        distinct.add(query_of(source_spec, target_spec))
        counters["conversions"] += 1
        counters["distinct_searches"] = len(distinct)

    def add(counter: str, *_: Any, **__: Any) -> None:
        counters[counter] += 1

    calls = [
        (owner, name, partial(add, counter))
        for owner, name, counter in _COUNTED
        if name in vars(owner)
    ]
    with watched([*calls, (ShapeConsistencyManager, "shape_consistency", conversion)]):
        yield counters
