"""One object for each mesh with placements, so that equal ways to cut a tensor are the same."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Placement, Replicate, Shard

from planners.dtensor.dispatch.tables import BoundedTable

MOST_LAYOUTS = 1024


@dataclass(frozen=True, eq=False, slots=True)
class MeshLayout:
    """How a mesh cuts tensors of so many dimensions; one object stands for it in keys."""

    mesh: DeviceMesh
    parts: tuple[int, ...]  # into so many each dimension is cut

    @classmethod
    def of(
        cls, mesh: DeviceMesh, placements: tuple[Placement, ...], ndim: int
    ) -> "MeshLayout | None":
        """Return the layout by placements; None where they hold more than a dimension."""
        parts = [1] * ndim
        for count, placement in zip(mesh.shape, placements, strict=True):
            kind = type(placement)
            if kind is Shard and placement.dim < ndim:
                parts[placement.dim] *= count
            elif kind is not Replicate and kind is not Partial:
                return None
        return cls(mesh, tuple(parts))

    def ones(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """Return the dimensions of one element, none of which is cut; None where sizes matter.

        They do not where each rank has room for two elements in every dimension that is cut.
        """
        for size, count in zip(shape, self.parts, strict=False):
            if size < 2 * count:
                break
        else:
            return ()
        ones = [dim for dim, size in enumerate(shape) if size < 2 * self.parts[dim]]
        return tuple(ones) if all(shape[dim] == self.parts[dim] == 1 for dim in ones) else None


class Layouts:
    """The layouts that were asked for last; a known one keeps its mesh alive, so its id is its own.

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
        """Return how tensors are cut; None where placements hold more than a dimension."""
        found = self._by_identity.entries.get((id(mesh), id(placements), ndim))
        if found is not None:
            return found[0]
        key = id(mesh), placements, ndim
        layout = self._known.entries.get(key) or MeshLayout.of(mesh, placements, ndim)
        if layout is not None:
            self._known.add(key, layout)
            self._by_identity.add((id(mesh), id(placements), ndim), (layout, placements))
        return layout
