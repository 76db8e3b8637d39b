"""Tables of cached decisions: bounded, safe for threads, and as large as `bytes_held` says."""

import sys
from collections.abc import Hashable, Iterable
from threading import Lock
from types import ModuleType
from typing import Any, Generic, TypeVar

import torch
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# What a decision refers to but does not own.
_SHARED = (DeviceMesh, OpOverload, torch.dtype, type, ModuleType)


class BoundedTable(Generic[K, V]):
    """A dictionary of at most `limit` entries; the oldest goes when one more is added.

    `entries` is read as it is, without a lock and without a call: reading is what has to be quick.
    """

    __slots__ = ("_lock", "entries", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.entries: dict[K, V] = {}
        self._lock = Lock()

    def add(self, key: K, value: V) -> None:
        """Keep a value, and let the oldest one go where there are too many."""
        with self._lock:
            if len(self.entries) >= self.limit and key not in self.entries:
                del self.entries[next(iter(self.entries))]
            self.entries[key] = value

    def clear(self) -> None:
        """Forget all entries."""
        with self._lock:
            self.entries.clear()


def bytes_held(roots: Iterable[Any]) -> int:
    """Return the bytes of the Python objects that only these roots lead to, each counted once.

    Meshes, ops, types and functions are left out: they live anyway.
    """
    seen: set[int] = set()
    waiting = list(roots)
    total = 0
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, _SHARED) or callable(found):
            continue
        seen.add(id(found))
        total += sys.getsizeof(found)
        if isinstance(found, dict):
            waiting.extend(found.keys())
            waiting.extend(found.values())
        elif isinstance(found, tuple | list | set | frozenset):
            waiting.extend(found)
        elif hasattr(found, "__dict__"):
            waiting.append(vars(found))
        for slot in getattr(type(found), "__slots__", ()):
            if hasattr(found, slot):
                waiting.append(getattr(found, slot))
    return total
