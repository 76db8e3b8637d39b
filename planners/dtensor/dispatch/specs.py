"""DTensor specs that are put together once: later ones take their attributes from a table."""

from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

from planners.dtensor.dispatch.tables import BoundedTable

MOST_SPECS = 4096

# Placements that are what they look like: those derived from them may hold state of their own.
_PLAIN = frozenset((Shard, Replicate, Partial))


def is_plain(spec: DTensorSpec) -> bool:
    """Whether a spec is that of a tensor, and has plain placements only."""
    return spec.tensor_meta is not None and _PLAIN.issuperset(map(type, spec.placements))


def with_meta(spec: DTensorSpec, meta: TensorMeta) -> DTensorSpec:
    """Return a spec with the placements of another, of a tensor of its own."""
    made = object.__new__(DTensorSpec)
    made.__dict__.update(vars(spec), tensor_meta=meta, _hash=None)
    return made


class SpecTable:
    """The attributes of the specs that were made last, and of placements whatever the size.

    A spec made from the table is an object of its own, which torch may change.
    """

    def __init__(self, limit: int = MOST_SPECS) -> None:
        self._known: BoundedTable[tuple[Any, ...], dict[str, Any]] = BoundedTable(limit)
        self._of_any_size: BoundedTable[tuple[Any, ...], dict[str, Any]] = BoundedTable(limit)

    def clear(self) -> None:
        """Forget all specs."""
        self._known.clear()
        self._of_any_size.clear()

    def filled(self) -> AbstractContextManager[Any]:
        """Let torch make its specs with this table until left."""
        make = DTensorSpec.__init__
        known, of_any_size = self._known.entries, self._of_any_size.entries

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
            try:
                attributes = known.get((key, tensor_meta))
            except TypeError:  # a list of placements, a size that is a symbol
                make(self, mesh, placements, tensor_meta, *key[2:])
                return
            if attributes is not None:
                self.__dict__.update(attributes)
                if attributes["_hash"] is None:  # not worth it for a spec that is made once
                    attributes["_hash"] = hash(self)
                return
            attributes = of_any_size.get(key)
            if attributes is not None and type(tensor_meta) is TensorMeta:
                self.__dict__.update(attributes, tensor_meta=tensor_meta)
            else:
                make(self, mesh, placements, tensor_meta, *key[2:])
                if type(self.placements) is not type(placements) or not is_plain(self):
                    return
                keep_any_size(key, dict(vars(self)))
            keep((key, tensor_meta), dict(vars(self)))

        keep, keep_any_size = self._known.add, self._of_any_size.add
        return mock.patch.object(DTensorSpec, "__init__", from_table)
