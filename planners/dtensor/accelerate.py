"""Quicker sharding decisions for a program that is there already: one call switches them on.

from shardbench import accelerate

accelerated = accelerate()
train()
print(accelerated.cache_info())
"""

from contextlib import ExitStack
from threading import Lock
from types import TracebackType

from harness.registry import UsageError
from planners.dtensor.cheapest import searched_exactly
from planners.dtensor.dispatch.base import CacheInfo
from planners.dtensor.dispatch.meta import asked_directly
from planners.dtensor.dispatch.shape_class import ShapeClass

_switch = Lock()


class Accelerated:
    """DTensor's dispatch while it is accelerated, in all threads of the process.

    Ops on DTensors decide and compute as they do in torch; what differs is how long that takes.
    It ends with `stop`, or with the `with` block that it is used in.
    """

    def __init__(self) -> None:
        if not _switch.acquire(blocking=False):
            raise UsageError("DTensor's dispatch is accelerated already; stop that one first.")
        self._dispatch = ShapeClass()
        self._installed = ExitStack()
        try:
            self._installed.enter_context(searched_exactly())
            self._installed.enter_context(asked_directly())
            self._installed.enter_context(self._dispatch.installed())
        except BaseException:
            self._installed.close()
            _switch.release()
            raise
        self._is_on = True

    def cache_info(self) -> CacheInfo:
        """Return hits, misses, entries and bytes of the cache so far.

        Ops in place, with several results or with lists of tensors go through torch's own cache
        and are not counted here.
        """
        return self._dispatch.cache_info()

    def clear(self) -> None:
        """Forget what has been decided, and start counting anew."""
        self._dispatch.clear()

    def stop(self) -> None:
        """Give torch its dispatch back; what was counted can still be read."""
        if self._is_on:
            self._is_on = False
            self._installed.close()
            _switch.release()

    def __enter__(self) -> "Accelerated":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def accelerate() -> Accelerated:
    """Switch quicker sharding decisions on, for all DTensors of this process.

    Returns:
        What tells of the cache, and switches them off again.

    Raises:
        UsageError: they are on already.
    """
    return Accelerated()
