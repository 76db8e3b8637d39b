"""DTensor specs that are put together once: later ones take their attributes from a table."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from planners.dtensor.dispatch.bounded import BoundedTable

MOST_SPECS = 4096

# Placements that are what they look like: those derived from them may hold state of their own.
_PLAIN = frozenset((Shard, Replicate, Partial))


def is_plain(spec: DTensorSpec) -> bool:
    """Whether a spec has plain placements only and sizes that are numbers."""
    meta = spec.tensor_meta
    return (
        meta is not None
        and _PLAIN.issuperset(map(type, spec.placements))
        and not any(isinstance(size, torch.SymInt) for size in (*meta.shape, *meta.stride))
    )


class SpecTable:
    """The attributes of the specs that were made last.

    A spec made from the table is an object of its own, which torch may change; its hash is known.
    """

    def __init__(self, limit: int = MOST_SPECS) -> None:
        self._known: BoundedTable[tuple[Any, ...], dict[str, Any]] = BoundedTable(limit)

    def __len__(self) -> int:
        return len(self._known.entries)

    def clear(self) -> None:
        """Forget all specs."""
        self._known.clear()

    @contextmanager
    def filled(self) -> Iterator[None]:
        """Let torch make its specs with this table until left."""
        make = DTensorSpec.__init__
        known = self._known.entries

        def from_table(
            self: DTensorSpec,
            mesh: Any,
            placements: Any,
            tensor_meta: Any = None,
            shard_order: Any = None,
            use_strided_shard_as_shard_order: bool | None = None,
        ) -> None:
            key = (
                id(mesh),
                placements,
                tensor_meta,
                shard_order,
                use_strided_shard_as_shard_order,
            )
            try:
                attributes = known.get(key)
            except TypeError:  # a list of placements, a size that is a symbol
                attributes = None
            if attributes is not None and attributes["mesh"] is mesh:
                self.__dict__.update(attributes)
                return
            make(self, mesh, placements, tensor_meta, shard_order, use_strided_shard_as_shard_order)
            if type(placements) is tuple and is_plain(self):
                hash(self)
                add(key, dict(vars(self)))

        add = self._known.add
        with mock.patch.object(DTensorSpec, "__init__", from_table):
            yield
