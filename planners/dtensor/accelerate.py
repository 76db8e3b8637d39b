"""Quicker sharding decisions for an existing program: one call switches them on.

from shardbench import accelerate

accelerated = accelerate()
train()
print(accelerated.cache_info())
"""

from contextlib import AbstractContextManager, ExitStack
from threading import Lock

import torch

from harness.contract import SupportedReleases, UsageError
from planners.dtensor.dispatch.base import CacheInfo, Dispatch

SUPPORTED = SupportedReleases("torch", ("2.13.0", "2.15.0"))

_switch = Lock()


class accelerate(AbstractContextManager["accelerate"]):  # noqa: N801 - called as torch.no_grad is
    """Quicker sharding decisions for all DTensors of this process, in all its threads.

    They end with `stop`, or the `with` block, in whatever order other contexts end. A release of
    torch that was not tested gets one warning and no change.

    Args:
        check: Share of the ops, from 0 to 1, that torch decides too. Where the two decisions
            differ, torch's is carried out, a `DifferentDecision` warning names the op and its
            specs, and torch dispatches that op from then on.
        any_release: Accelerate any installed release of torch.

    Raises UsageError where DTensor is accelerated already, or `check` is no share.
    """

    def __init__(self, *, check: float = 0.0, any_release: bool = False) -> None:
        if type(check) not in (int, float) or not 0 <= check <= 1:
            raise UsageError(f"check must be a share of the ops from 0 to 1, not {check!r}.")
        if not _switch.acquire(blocking=False):
            raise UsageError("DTensor's dispatch is accelerated already; stop that one first.")
        self._dispatch = Dispatch()
        with ExitStack() as installed:
            installed.callback(_switch.release)
            if SUPPORTED.allow("accelerate()", torch.__version__, any_release=any_release):
                # Another release may lack names that are imported there.
                from planners.dtensor.cache.self_checking import SelfChecking

                self._dispatch = SelfChecking(check)
            installed.enter_context(self._dispatch.installed())
            self._installed = installed.pop_all()

    def cache_info(self) -> CacheInfo:
        """Return the cache's hits, misses, entries and bytes so far, checks and differences.

        Ops with `out` go through torch's own cache and are not counted here.
        """
        return self._dispatch.cache_info()

    def clear(self) -> None:
        """Forget all decisions, and reset the counts."""
        self._dispatch.clear()

    def stop(self) -> None:
        """Give torch its dispatch back, and empty the cache; the counts can still be read."""
        self._installed.close()
        self._dispatch.forget()

    def __exit__(self, *_: object) -> None:
        self.stop()
