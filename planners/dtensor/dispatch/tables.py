"""A table that many threads may read and add to, and that never outgrows its limit."""

from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


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
