"""What every way to dispatch has: it is installed, it may be cleared, it tells of its cache."""

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple


class CacheInfo(NamedTuple):
    """What a cache has been asked and what it holds; 0 bytes where that is not known of it."""

    hits: int
    misses: int
    entries: int
    bytes: int


NOTHING_KEPT = CacheInfo(0, 0, 0, 0)


class Dispatch:
    """Torch's own dispatch; what differs from it is a subclass."""

    def installed(self) -> AbstractContextManager[None]:
        """Return what puts this in torch's place and takes it away again."""
        return nullcontext()

    def clear(self) -> None:
        """Forget what has been remembered beside torch's own caches."""

    def cache_info(self) -> CacheInfo:
        """Tell of the cache beside torch's own."""
        return NOTHING_KEPT
