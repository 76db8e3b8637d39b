"""DTensor specs that are put together once: later ones take their attributes from a table."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._ops._math_ops import _NormPartial

from planners.dtensor.dispatch.tables import BoundedTable

MOST_SPECS = 4096

# Placements that are what they look like: others that derive from them may hold state of their own.
_PLAIN = frozenset((Shard, Replicate, Partial, _NormPartial))


def is_plain(spec: DTensorSpec) -> bool:
    """Whether a spec is that of a tensor, and has plain placements only."""
    return spec.tensor_meta is not None and _PLAIN.issuperset(map(type, spec.placements))


def with_meta(spec: DTensorSpec, meta: TensorMeta) -> DTensorSpec:
    """Return a spec with the placements of another, of a tensor of its own."""
    made = object.__new__(DTensorSpec)
    made.__dict__.update(vars(spec), tensor_meta=meta, _hash=None)
    return made


@dataclass(frozen=True, eq=False, slots=True)
class PlacedSpec:
    """The attributes of specs with placements on a mesh, whatever the size.

    `as_given` says whether torch keeps the placements that it is given.
    """

    attributes: dict[str, Any]
    as_given: bool


class SpecTable:
    """The attributes of the specs that were made last, and of placements whatever the size.

    A spec made from the table is an object of its own, which torch may change.
    """

    def __init__(self, limit: int = MOST_SPECS) -> None:
        self._known: BoundedTable[tuple[PlacedSpec, TensorMeta], dict[str, Any]] = BoundedTable(
            limit
        )
        self._of_any_size: BoundedTable[tuple[Any, ...], PlacedSpec] = BoundedTable(limit)

    def clear(self) -> None:
        """Forget all specs."""
        self._known.clear()
        self._of_any_size.clear()

    def of_any_size(self, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> PlacedSpec | None:
        """Return what is known of specs with these placements."""
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
        if attributes["_hash"] is None:  # not worth it for a spec that is made once
            attributes["_hash"] = hash(spec)

    def filled(self) -> AbstractContextManager[Any]:
        """Let torch make its specs with this table until left."""
        make = DTensorSpec.__init__
        of_any_size, fill = self._of_any_size.entries, self._fill

        def from_table(
            self: DTensorSpec,
            mesh: Any,
            placements: Any,
            tensor_meta: Any = None,
            shard_order: Any = None,
            use_strided_shard_as_shard_order: bool | None = None,
        ) -> None:
            # A mesh that is in a table lives as long as its entry, so its id is its own.
            key = (id(mesh), placements, shard_order, use_strided_shard_as_shard_order)
            if type(tensor_meta) is TensorMeta:
                try:
                    placed = of_any_size.get(key)
                    if placed is not None:
                        fill(self, placed, tensor_meta)
                        if placed.as_given:  # _NormPartial(2) equals _NormPartial(2.0)
                            self.__dict__["placements"] = placements
                        return
                except TypeError:  # a list of placements, a size that is a symbol
                    make(self, mesh, placements, tensor_meta, *key[2:])
                    return
            make(self, mesh, placements, tensor_meta, *key[2:])
            if type(self.placements) is type(placements) and is_plain(self):
                attributes = {**vars(self), "tensor_meta": None}
                keep(key, PlacedSpec(attributes, self.placements is placements))

        keep = self._of_any_size.add
        return mock.patch.object(DTensorSpec, "__init__", from_table)
