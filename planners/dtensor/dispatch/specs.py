"""DTensor specs and mesh layouts that are built once; later ones are looked up in a table."""

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

# Placements without state of their own; other subclasses may have some.
_PLAIN = frozenset((Shard, Replicate, Partial, _NormPartial))


def is_plain(spec: DTensorSpec) -> bool:
    """Whether a spec describes a tensor and has plain placements only."""
    return spec.tensor_meta is not None and _PLAIN.issuperset(map(type, spec.placements))


def with_meta(spec: DTensorSpec, meta: TensorMeta) -> DTensorSpec:
    """Return a new spec with the placements of another one and this meta."""
    made = object.__new__(DTensorSpec)
    made.__dict__.update(vars(spec), tensor_meta=meta, _hash=None)
    return made


@dataclass(frozen=True, eq=False, slots=True)
class PlacedSpec:
    """The attributes of specs with placements on a mesh, whatever the size.

    `as_given` holds where torch keeps the placements object that it is given.
    """

    attributes: dict[str, Any]
    as_given: bool


class SpecTable:
    """The attributes of the latest specs, and of placements whatever the size.

    Every spec made from the table is an object of its own, which torch may change.
    """

    def __init__(self, limit: int = MOST_SPECS) -> None:
        self._known: BoundedTable[tuple[PlacedSpec, TensorMeta], dict[str, Any]]
        self._known = BoundedTable(limit)
        self._of_any_size: BoundedTable[tuple[Any, ...], PlacedSpec] = BoundedTable(limit)

    def clear(self) -> None:
        """Forget all specs."""
        self._known.clear()
        self._of_any_size.clear()

    def of_any_size(self, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> PlacedSpec | None:
        """Return the known attributes of specs with these placements."""
        return self._of_any_size.entries.get((id(mesh), placements, None, None))

    def spec(self, placed: PlacedSpec, meta: TensorMeta) -> DTensorSpec:
        """Return the spec of a tensor with known placements."""
        made = object.__new__(DTensorSpec)
        self._fill(made, placed, meta)
        return made

    def _fill(self, spec: DTensorSpec, placed: PlacedSpec, meta: TensorMeta) -> None:
        attributes = self._known.entries.get((placed, meta))
        if attributes is None:
            spec.__dict__.update(placed.attributes, tensor_meta=meta)
            self._known.add((placed, meta), dict(vars(spec)))
            return
        # Its own meta: one of tuples equals one of a torch.Size, which has more methods.
        spec.__dict__.update(attributes, tensor_meta=meta)
        if attributes["_hash"] is None:  # hashing does not pay for a spec that is made once
            attributes["_hash"] = hash(spec)

    def filled(self) -> AbstractContextManager[None]:
        """Let torch make its specs with this table until left."""
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
            # A mesh in a table lives as long as its entry, so no other mesh has its id.
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
    """A way to cut tensors of one number of dims on a mesh; a single object, to stand in keys."""

    mesh: DeviceMesh
    parts: tuple[int, ...]  # the number of parts that each dimension is cut into

    @classmethod
    def of(
        cls, mesh: DeviceMesh, placements: tuple[Placement, ...], ndim: int
    ) -> "MeshLayout | None":
        """Return the layout of placements; None where they hold more than a dimension."""
        parts = [1] * ndim
        for count, placement in zip(mesh.shape, placements, strict=True):
            kind = type(placement)
            if kind is Shard and placement.dim < ndim:
                parts[placement.dim] *= count
            elif kind is not Replicate and kind is not Partial:
                return None
        return cls(mesh, tuple(parts))

    def ones(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """Return the uncut dimensions of one element; None where the decision depends on sizes.

        It does not where each rank has room for two elements in every dimension that is cut.
        """
        for size, count in zip(shape, self.parts, strict=False):
            if size < 2 * count:
                break
        else:
            return ()
        ones = [dim for dim, size in enumerate(shape) if size < 2 * self.parts[dim]]
        return tuple(ones) if all(shape[dim] == self.parts[dim] == 1 for dim in ones) else None


class LayoutTable:
    """The latest layouts; each keeps its mesh alive, so no other mesh has its id.

    Placements are looked up by identity first, as specs share them and hashing is slow.
    """

    def __init__(self, limit: int = MOST_LAYOUTS) -> None:
        self._known: BoundedTable[tuple[int, tuple[Placement, ...], int], MeshLayout]
        self._known = BoundedTable(limit)
        self._by_identity: BoundedTable[
            tuple[int, int, int], tuple[MeshLayout, tuple[Placement, ...]]
        ] = BoundedTable(limit)

    def clear(self) -> None:
        """Forget all layouts."""
        self._by_identity.clear()
        self._known.clear()

    def of(
        self, mesh: DeviceMesh, placements: tuple[Placement, ...], ndim: int
    ) -> MeshLayout | None:
        """Return the layout of placements; None where they hold more than a dimension."""
        found = self._by_identity.entries.get((id(mesh), id(placements), ndim))
        if found is not None:
            return found[0]
        key = id(mesh), placements, ndim
        layout = self._known.entries.get(key) or MeshLayout.of(mesh, placements, ndim)
        if layout is not None:
            self._known.add(key, layout)
            self._by_identity.add((id(mesh), id(placements), ndim), (layout, placements))
        return layout
