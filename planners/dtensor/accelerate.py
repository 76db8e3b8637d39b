"""Faster sharding decisions for an existing program: one call switches them on.

from shardbench import accelerate

accelerated = accelerate()
train()
print(accelerated.cache_info())
"""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from inspect import isclass
from threading import Lock
from types import CodeType

import torch

from harness.contract import SupportedReleases, UsageError
from planners.dtensor.dispatch.base import CacheInfo, Dispatch

SUPPORTED = SupportedReleases("torch", ("2.13.0", "2.15.0"))

HOOKS_SUPPORTED = SupportedReleases("torch", ("2.13.0",))

_OF_DTENSOR = ("DTensor's dispatch", "decisions", "from_local", "redistributions")

_switch = Lock()


@contextmanager
def hooks_of_fsdp(*, any_release: bool = False) -> Iterator[bool]:
    """Let FSDP2's hooks repeat less inside the context, and yield whether they do.

    On a release of torch that was not tested with it, warn once and change nothing.
    """
    drop_in = "accelerate() of FSDP2's hooks"
    if not HOOKS_SUPPORTED.allow(drop_in, torch.__version__, any_release=any_release):
        yield False
        return
    # Another release of torch may lack names that this module imports.
    from planners.dtensor.fsdp_hooks import quicker_hooks

    with quicker_hooks():
        yield True


def _hide_from_compilers() -> None:
    """Let `torch.compile` skip this package's functions, as it skips torch's own dispatch.

    After a graph break, Dynamo would compile the handlers of the ops that run in between.
    """
    from torch._dynamo.eval_frame import skip_code  # imported late, as it takes a second

    for name, module in list(sys.modules.items()):
        if name.startswith("planners.dtensor."):
            parts = list(vars(module).values())
            parts += [part for kind in parts if isclass(kind) for part in vars(kind).values()]
            codes = [getattr(part, "__code__", None) for part in parts]
            while codes:
                if isinstance(code := codes.pop(), CodeType):
                    skip_code(code)
                    codes += code.co_consts  # the functions inside this function


class accelerate(AbstractContextManager["accelerate"]):  # noqa: N801 - called as torch.no_grad is
    """Faster sharding decisions for all DTensors of this process, in all its threads.

    The acceleration ends with `stop` or with the `with` block; other contexts may end before or
    after it. On a release of torch that was not tested, warn once and change nothing.

    Args:
        check: Share of the ops, from 0 to 1, that torch also decides. If the two decisions differ,
            torch's decision is carried out, a `DifferentDecision` warning names the op and its
            specs, and torch dispatches that op from then on.
        any_release: Accelerate any installed release of torch, tested or not.

    Raises UsageError if DTensor is accelerated already, or `check` is not from 0 to 1.
    """

    def __init__(self, *, check: float = 0.0, any_release: bool = False) -> None:
        if type(check) not in (int, float) or not 0 <= check <= 1:
            raise UsageError(f"check must be a share of the ops from 0 to 1, not {check!r}.")
        if not _switch.acquire(blocking=False):
            raise UsageError("DTensor's dispatch is accelerated already; stop that one first.")
        self._dispatch = Dispatch()
        self._replaced: tuple[str, ...] = ()
        with ExitStack() as installed:
            installed.callback(_switch.release)
            if SUPPORTED.allow("accelerate()", torch.__version__, any_release=any_release):
                # Another release of torch may lack names that this module imports.
                from planners.dtensor.cache.self_checking import SelfChecking

                self._dispatch, self._replaced = SelfChecking(check), _OF_DTENSOR
                if installed.enter_context(hooks_of_fsdp(any_release=any_release)):
                    self._replaced += ("FSDP2's hooks",)
            installed.enter_context(self._dispatch.installed())
            _hide_from_compilers()
            self._installed = installed.pop_all()

    def __repr__(self) -> str:
        if not self._replaced:
            return f"accelerate() is off: torch {torch.__version__} runs its own code"
        parts = ", ".join(self._replaced)
        return f"accelerate() is on: torch {torch.__version__}, with replaced {parts}"

    def cache_info(self) -> CacheInfo:
        """Return the cache's hits, misses, entries and bytes, and its checks and differences.

        The counts exclude ops with `out`, which use torch's own cache.
        """
        return self._dispatch.cache_info()

    def clear(self) -> None:
        """Delete all cached decisions, and reset the counts."""
        self._dispatch.clear()

    def stop(self) -> None:
        """Restore torch's dispatch and empty the cache; `cache_info` keeps the counts."""
        self._installed.close()
        self._replaced = ()
        self._dispatch.forget()

    def __exit__(self, *_: object) -> None:
        self.stop()
