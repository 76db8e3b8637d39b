"""How often the planner does what it does: its classes patched, for a run of its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from colossalai.tensor.shape_consistency import ShapeConsistencyManager
from colossalai.tensor.sharding_spec import ShardingSpec, _DimSpec

from planners.dimspec.upstream.plain_values import partition_of, values_of

# Release 0.4.0 calls the first of them, in every constructor; 0.4.1 the other.
_BUILDS_DICTIONARY = ("build_difference_2d_dict", "_build_difference_2d_dict")


class Counted:
    """What has been counted."""

    def __init__(self) -> None:
        self.conversions = 0
        self.distinct: set[Any] = set()
        self.expansions = 0
        self.dictionaries_built = 0
        self.dim_specs_built = 0
        self.sharding_specs_built = 0
        self.difference_calls = 0

    def counters(self, searches: int) -> dict[str, int]:
        """Return all counters by name; `searches` are the conversions not answered from memory."""
        return {
            "conversions": self.conversions,
            "searches": searches,
            "distinct_searches": len(self.distinct),
            "expansions": self.expansions,
            "dictionaries_built": self.dictionaries_built,
            "dim_specs_built": self.dim_specs_built,
            "sharding_specs_built": self.sharding_specs_built,
            "difference_calls": self.difference_calls,
        }


@contextmanager
def counting() -> Iterator[Counted]:
    """Count until the block is left, whatever answers the conversions."""
    counted = Counted()
    patched: list[tuple[type, str, Any]] = []

    def before(owner: type, name: str, count: Callable[..., None]) -> None:
        declared = owner.__dict__[name]
        called = declared.__func__ if isinstance(declared, classmethod) else declared

        def replacement(*arguments: Any, **named: Any) -> Any:
            count(*arguments, **named)
            return called(*arguments, **named)

        patched.append((owner, name, declared))
        is_of_class = isinstance(declared, classmethod)
        setattr(owner, name, classmethod(replacement) if is_of_class else replacement)

    def conversion(_: Any, source_spec: ShardingSpec, target_spec: ShardingSpec) -> None:
        counted.conversions += 1
        counted.distinct.add(
            (
                values_of(source_spec.device_mesh),
                source_spec.entire_shape,
                partition_of(source_spec),
                partition_of(target_spec),
            )
        )

    def adding(name: str) -> Callable[..., None]:
        def add(*_: Any, **__: Any) -> None:
            setattr(counted, name, getattr(counted, name) + 1)

        return add

    try:
        before(ShapeConsistencyManager, "shape_consistency", conversion)
        before(ShapeConsistencyManager, "get_all_one_step_transform_spec", adding("expansions"))
        for name in _BUILDS_DICTIONARY:
            if name in vars(_DimSpec):
                before(_DimSpec, name, adding("dictionaries_built"))
        before(_DimSpec, "__init__", adding("dim_specs_built"))
        before(_DimSpec, "difference", adding("difference_calls"))
        before(ShardingSpec, "__init__", adding("sharding_specs_built"))
        yield counted
    finally:
        for owner, name, declared in reversed(patched):
            setattr(owner, name, declared)
