"""The base of every way to dispatch, and the counts of its cache."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple


class CacheInfo(NamedTuple):
    """Counts of a cache."""

    hits: int
    misses: int
    entries: int
    bytes: int  # 0 where that is not known
    checks: int = 0  # ops that were compared with torch's own decision
    differences: int = 0  # ops of these for which that is another one


class Dispatch:
    """Torch's own dispatch; what differs from it is a subclass."""

    def installed(self) -> AbstractContextManager[Any]:
        """Return what puts this in torch's place and takes it away again."""
        return nullcontext()

    def forget(self) -> None:
        """Forget all decisions kept here; torch's own caches stay."""

    def clear(self) -> None:
        """Forget all decisions kept here, and start counting again."""

    def cache_info(self) -> CacheInfo:
        """Tell of the cache beside torch's own."""
        return CacheInfo(0, 0, 0, 0)
