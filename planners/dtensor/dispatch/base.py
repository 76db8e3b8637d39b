"""The base class of all implementations of dispatch, with bounded tables and cache counts."""

import sys
from collections.abc import Hashable, Iterable
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Objects that a cached decision refers to, but that exist without it too.
_BYTES_OF_INT = 32  # of one above 2 ** 30
_SHARED = (DeviceMesh, OpOverload, torch.dtype, type, ModuleType)


class CacheInfo(NamedTuple):
    """Hits, misses and sizes of a cache, and comparisons of its decisions with torch's."""

    hits: int
    misses: int
    entries: int
    bytes: int  # 0 where unknown
    checks: int = 0  # ops that were compared with torch's own decision
    differences: int = 0  # compared ops that torch decides differently


class Dispatch:
    """Torch's own dispatch, and the base class of all other dispatches."""

    def installed(self) -> AbstractContextManager[Any]:
        """Replace torch's dispatch by this one inside the context."""
        return nullcontext()

    def forget(self) -> None:
        """Delete all decisions that this object has cached; keep those in torch's caches."""

    def clear(self) -> None:
        """Delete all decisions that this object has cached, and reset its counts."""

    def cache_info(self) -> CacheInfo:
        """Return the counts of this object's cache, without those of torch's caches."""
        return CacheInfo(0, 0, 0, 0)


class BoundedTable(Generic[K, V]):
    """A dictionary of at most `limit` entries; adding one more drops the oldest.

    Readers use `entries` directly, without a lock or a method call, to be quick.
    """

    __slots__ = ("_lock", "entries", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.entries: dict[K, V] = {}
        self._lock = Lock()

    def add(self, key: K, value: V) -> None:
        """Store a value; if the table is full, a value of a new key replaces the oldest value."""
        with self._lock:
            if len(self.entries) >= self.limit and key not in self.entries:
                del self.entries[next(iter(self.entries))]
            self.entries[key] = value

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self.entries.clear()


def bytes_held(roots: Iterable[Any]) -> int:
    """Return the total bytes of the Python objects reachable from `roots`, each counted once.

    Exclude meshes, ops, types and functions, which exist anyway.
    """
    seen: set[int] = set()
    waiting = list(roots)
    total = 0
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, _SHARED) or callable(found):
            continue
        seen.add(id(found))
        # Hashes of ids are among the integers, so their own sizes differ from process to process.
        total += _BYTES_OF_INT if isinstance(found, int) else sys.getsizeof(found)
        if isinstance(found, dict):
            waiting.extend(found.keys())
            waiting.extend(found.values())
        elif isinstance(found, tuple | list | set | frozenset):
            waiting.extend(found)
        elif hasattr(found, "__dict__"):
            waiting.append(vars(found))
        slots = getattr(type(found), "__slots__", ())
        waiting.extend(getattr(found, slot) for slot in slots if hasattr(found, slot))
    return total
