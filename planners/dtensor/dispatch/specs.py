"""Tables of DTensor specs and mesh layouts, so that their attributes are computed only once."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
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


def with_meta(spec: DTensorSpec, meta: TensorMeta) -> DTensorSpec:
    """Return a new spec with the mesh and placements of `spec`, and the tensor meta `meta`."""
    made = object.__new__(DTensorSpec)
    made.__dict__.update(vars(spec), tensor_meta=meta, _hash=None)
    return made


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

    def of_any_size(self, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> PlacedSpec | None:
        """Return the attributes of specs with these placements; None if not in the table."""
        return self._of_any_size.entries.get((id(mesh), placements, None, None))

    def spec(self, placed: PlacedSpec, meta: TensorMeta) -> DTensorSpec | None:
        """Return a new spec for a tensor with these placements and this meta.

        Return None for sizes without a hash, such as lists and symbolic sizes.
        """
        made = object.__new__(DTensorSpec)
        try:
            self._fill(made, placed, meta)
        except TypeError:
            return None
        return made

    def _fill(self, spec: DTensorSpec, placed: PlacedSpec, meta: TensorMeta) -> None:
        attributes = self._known.entries.get((placed, meta))
        if attributes is None:
            spec.__dict__.update(placed.attributes, tensor_meta=meta)
            self._known.add((placed, meta), dict(vars(spec)))
            return
        # The meta as given: an equal one in the table may have a tuple instead of a torch.Size.
        spec.__dict__.update(attributes, tensor_meta=meta)
        if attributes["_hash"] is None:  # hashing does not pay for a spec that is made once
            attributes["_hash"] = hash(spec)

    def filled(self) -> AbstractContextManager[None]:
        """Let torch build its specs from this table inside the context."""
        make = DTensorSpec.__init__
        of_any_size, fill, keep = self._of_any_size.entries, self._fill, self._of_any_size.add

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
            if type(tensor_meta) is TensorMeta:
                try:
                    placed = of_any_size.get(key)
                    if placed is not None:
                        fill(self, placed, tensor_meta)
                        if placed.as_given:  # _NormPartial(2) equals _NormPartial(2.0)
                            self.__dict__["placements"] = placements
                        return
                except TypeError:  # a list of placements or a symbolic size has no hash
                    make(self, mesh, placements, tensor_meta, *key[2:])
                    return
            make(self, mesh, placements, tensor_meta, *key[2:])
            if type(self.placements) is type(placements) and is_plain(self):
                attributes = {**vars(self), "tensor_meta": None}
                keep(key, PlacedSpec(attributes, self.placements is placements))

        return replaced([(DTensorSpec, "__init__", from_table)])


@dataclass(frozen=True, eq=False, slots=True)
class MeshLayout:
    """The number of parts that a mesh cuts each tensor dimension into, compared by identity."""

    mesh: DeviceMesh
    parts: tuple[int, ...]  # for each tensor dimension, the number of parts that it is cut into

    @classmethod
    def of(
        cls, mesh: DeviceMesh, placements: tuple[Placement, ...], ndim: int
    ) -> "MeshLayout | None":
        """Return the layout of placements; None if one is not Shard, Replicate or Partial."""
        parts = [1] * ndim
        for count, placement in zip(mesh.shape, placements, strict=True):
            kind = type(placement)
            if kind is Shard and placement.dim < ndim:
                parts[placement.dim] *= count
            elif kind is not Replicate and kind is not Partial:
                return None
        return cls(mesh, tuple(parts))

    def ones(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """Return the uncut dimensions of size 1; None if a decision may depend on the sizes.

        A decision does not if all other dimensions have at least two elements for each part.
        """
        for size, count in zip(shape, self.parts, strict=False):
            if size < 2 * count:
                break
        else:
            return ()
        ones = [dim for dim, size in enumerate(shape) if size < 2 * self.parts[dim]]
        return tuple(ones) if all(shape[dim] == self.parts[dim] == 1 for dim in ones) else None


class LayoutTable:
    """The latest layouts. Each keeps its mesh alive, so no other mesh can have the same id.

    A look-up compares placements by identity first: specs share them, and hashing is slow.
    """

    def __init__(self, limit: int = MOST_LAYOUTS) -> None:
        self._known: BoundedTable[tuple[int, tuple[Placement, ...], int], MeshLayout]
        self._known = BoundedTable(limit)
        self._by_identity: BoundedTable[
            tuple[int, int, int], tuple[MeshLayout, tuple[Placement, ...]]
        ] = BoundedTable(limit)

    def clear(self) -> None:
        """Remove all layouts."""
        self._by_identity.clear()
        self._known.clear()

    def of(
        self, mesh: DeviceMesh, placements: tuple[Placement, ...], ndim: int
    ) -> MeshLayout | None:
        """Return the layout of placements; None if one is not Shard, Replicate or Partial."""
        found = self._by_identity.entries.get((id(mesh), id(placements), ndim))
        if found is not None:
            return found[0]
        key = id(mesh), placements, ndim
        layout = self._known.entries.get(key) or MeshLayout.of(mesh, placements, ndim)
        if layout is not None:
            self._known.add(key, layout)
            self._by_identity.add((id(mesh), id(placements), ndim), (layout, placements))
        return layout
