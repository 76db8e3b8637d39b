"""Modes and compilers around an op: each returns the op's result and what it saw."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.distributed.tensor.debug import CommDebugMode
from torch.overrides import TorchFunctionMode
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

Watcher = Callable[..., tuple[Any, Any]]
"""Called with an op and its arguments."""


class Ops(TorchDispatchMode):
    """Notes the ops of a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(op))
        return op(*args, **(kwargs or {}))


class LocalOps(Ops):
    """Notes the ops of a thread, and those on local tensors in place of those on DTensors."""

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, torch.distributed.tensor.DTensor) for kind in types):
            return NotImplemented
        return super().__torch_dispatch__(op, types, args, kwargs)


class Functions(TorchFunctionMode):
    """Notes torch's functions that a thread calls."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(
        self, called: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.seen.append(str(getattr(called, "__name__", called)))
        return called(*args, **(kwargs or {}))


MODES: Mapping[str, tuple[Callable[[], AbstractContextManager[Any]], Callable[[Any], Any]]] = {
    "ops": (Ops, lambda mode: mode.seen),
    "local ops": (LocalOps, lambda mode: mode.seen),
    "functions": (Functions, lambda mode: mode.seen),
    "comm": (CommDebugMode, lambda mode: sorted(map(str, mode.get_comm_counts().items()))),
    "flops": (lambda: FlopCounterMode(display=False), lambda mode: mode.get_total_flops()),
    "debug": (DebugMode, lambda mode: mode.debug_string()),
}
"""Modes, with functions for what they saw."""


def unwatched(op: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    return op(*args), None


def under_mode(name: str) -> Watcher:
    enter, seen = MODES[name]

    def run(op: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
        with enter() as mode:
            made = op(*args)
        return made, seen(mode)

    return run


def compiled(backend: str) -> Watcher:
    """Return a watcher that compiles an op; what it saw are the ops of its graphs."""

    def run(op: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
        torch._dynamo.reset()
        return torch.compile(op, backend=backend)(*args), None

    return run
