"""Tables of DTensor specs and mesh layouts, so that their attributes are computed only once."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._ops._math_ops import _NormPartial

from planners.dtensor.dispatch.base import BoundedTable
from planners.instruments import replaced

MOST_SPECS = 4096
MOST_LAYOUTS = 1024

# Placements without mutable state; other subclasses of Placement may have some.
_PLAIN = frozenset((Shard, Replicate, Partial, _NormPartial))


def is_plain(spec: DTensorSpec) -> bool:
    """Whether a spec has tensor meta, and only placements without mutable state."""
    return spec.tensor_meta is not None and _PLAIN.issuperset(map(type, spec.placements))


def copy_of(spec: DTensorSpec, **changes: Any) -> DTensorSpec:
    """Return a new spec with other attributes; `_hash` must be among them if the hash changes."""
    made = object.__new__(DTensorSpec)
    vars(made).update(vars(spec), **changes)
    return made


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """The number of parts that placements cut each tensor dimension into, compared by identity."""

    parts: tuple[int, ...]


@lru_cache(MOST_LAYOUTS)
def layout_of(mesh: DeviceMesh, placements: tuple[Placement, ...], ndim: int) -> Layout | None:
    """Return the layout of a tensor with `ndim` dimensions, the same object for equal meshes.

    Return None if a placement is not Shard, Replicate or Partial, or does not fit.
    """
    if len(placements) != mesh.ndim:
        return None  # torch raises an error
    parts = [1] * ndim
    for count, placement in zip(mesh.shape, placements, strict=True):
        kind = type(placement)
        if kind is Shard and 0 <= placement.dim < ndim:
            parts[placement.dim] *= count
        elif kind is not Replicate and kind is not Partial:
            return None
    return Layout(tuple(parts))


@dataclass(frozen=True, eq=False, slots=True)
class PlacedSpec:
    """The attributes that specs with the same placements on a mesh share, at any size.

    `as_given`: whether torch stores the placements object that it receives, not a copy.
    """

    attributes: dict[str, Any]
    as_given: bool


class SpecTable:
    """The attributes of the latest specs, by placements and size, and by placements alone.

    Every spec made from the table is a new object, which torch may change.
    """

    def __init__(self, limit: int = MOST_SPECS) -> None:
        self._known: BoundedTable[tuple[PlacedSpec, TensorMeta], dict[str, Any]]
        self._known = BoundedTable(limit)
        self._of_any_size: BoundedTable[tuple[Any, ...], PlacedSpec] = BoundedTable(limit)

    def clear(self) -> None:
        """Remove all specs."""
        self._known.clear()
        self._of_any_size.clear()

    def filled(self) -> AbstractContextManager[None]:
        """Let torch build its specs from this table inside the context."""
        make = DTensorSpec.__init__
        known, of_any_size = self._known, self._of_any_size

        def from_table(
            self: DTensorSpec,
            mesh: Any,
            placements: Any,
            tensor_meta: Any = None,
            shard_order: Any = None,
            use_strided_shard_as_shard_order: bool | None = None,
        ) -> None:
            # An entry keeps its mesh alive, so no other mesh can have the same id.
            key = (id(mesh), placements, shard_order, use_strided_shard_as_shard_order)
            placed = attributes = None
            try:
                if type(tensor_meta) is TensorMeta:
                    placed = of_any_size.entries.get(key)
                    if placed is not None:
                        attributes = known.entries.get((placed, tensor_meta))
            except TypeError:  # a list of placements or a symbolic size has no hash
                make(self, mesh, placements, tensor_meta, *key[2:])
                return
            if placed is None:
                make(self, mesh, placements, tensor_meta, *key[2:])
                if type(self.placements) is type(placements) and is_plain(self):
                    shared = {**vars(self), "tensor_meta": None}
                    of_any_size.add(key, PlacedSpec(shared, self.placements is placements))
                return
            # The meta as given: an equal one in the table may have a tuple instead of a torch.Size.
            vars(self).update(attributes or placed.attributes, tensor_meta=tensor_meta)
            if attributes is None:
                known.add((placed, tensor_meta), dict(vars(self)))
            elif attributes["_hash"] is None:  # hashing does not pay for a spec that is made once
                attributes["_hash"] = hash(self)
            if placed.as_given:  # _NormPartial(2) equals _NormPartial(2.0)
                vars(self)["placements"] = placements

        return replaced([(DTensorSpec, "__init__", from_table)])
