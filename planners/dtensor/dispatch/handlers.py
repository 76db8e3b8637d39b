"""Handlers of ops, in addition to those of torch's dispatcher, which C++ looks up before each op.

Torch has one dictionary of handlers, which any code can change: `loss_parallel` adds to it,
`context_parallel` replaces it, and users add handlers. So this module never changes the dictionary.
C++ fetches the dispatcher object once, and asks that object for its handlers before each op. Only
that object also returns our handlers. Python code finds a second dispatcher under
`DTensor._op_dispatcher`, an unchanged `OpDispatcher` with the same state. If torch has a handler
for an op, torch's handler is called.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dispatch import OpDispatcher
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding
from torch.utils._python_dispatch import _disable_current_modes

from planners.dtensor.dispatch.torch_path import DISPATCHER, Args, Handler, Kwargs, modes_active

Handlers = dict[OpOverload, Handler]

this_thread = threading.get_ident

_HANDLERS = "_custom_op_handlers"


def torchs_handlers() -> Handlers:
    """Return torch's own dictionary of handlers."""
    handlers: Handlers = vars(DISPATCHER)[_HANDLERS]
    return handlers


class Overlay(dict[OpOverload, Handler]):
    """The dictionary in which C++ looks up handlers; Python's changes go to torch's dictionary."""

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add handlers to torch's own dictionary."""
        torchs_handlers().update(*args, **kwargs)

    def pop(self, *args: Any) -> Any:
        """Remove a handler from torch's own dictionary, and return it."""
        return torchs_handlers().pop(*args)

    def __setitem__(self, op: OpOverload, handler: Handler) -> None:
        torchs_handlers()[op] = handler

    def __delitem__(self, op: OpOverload) -> None:
        del torchs_handlers()[op]


@dataclass(slots=True)
class ObservedDecision:
    """Torch's decision for an op, as observed while torch dispatched it."""

    op: OpOverload
    schema: OpSchema | None = None  # None if torch found the decision in its cache
    sharding: OutputSharding | None = None  # None then too, and if torch decomposes the op
    is_moved: bool = False  # torch unwrapped the arguments one by one, as for a redistribution


_observed_by_thread: dict[int, ObservedDecision | None] = {}
"""Threads in which torch itself dispatches an op, and the decision observed there."""


class _ReplacedDispatcher(OpDispatcher):
    """The dispatcher that C++ uses: its handlers are from `answering`, all else is torch's."""

    def _propagate_op_sharding_dispatch_slow_path(
        self, op: OpOverload, args: Any, kwargs: Any, info: Any, *rest: Any, **options: Any
    ) -> Any:
        observed = _observed_by_thread.get(this_thread())
        if observed is not None and (observed.op is not op or observed.schema is not None):
            observed = None
        if observed is not None:
            observed.schema = info.schema
        found = super()._propagate_op_sharding_dispatch_slow_path(
            op, args, kwargs, info, *rest, **options
        )
        if observed is not None and isinstance(found, OutputSharding):
            observed.sharding = found
        return found

    def _unwrap_to_op_info_impl(self, op: OpOverload, *rest: Any, **options: Any) -> Any:
        observed = _observed_by_thread.get(this_thread())
        if observed is not None and observed.op is op:
            observed.is_moved = True
        return super()._unwrap_to_op_info_impl(op, *rest, **options)


@contextmanager
def answering(answer: Callable[[], Handlers]) -> Iterator[None]:
    """Let `answer` return the handlers that C++ asks for before each op inside the context.

    There can be only one such context at a time.
    """
    # C++ stores the dispatcher that it finds at its first op, so dispatch an op without a mesh.
    tensor = torch.Tensor._make_wrapper_subclass(DTensor, (), dtype=torch.float32)
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        torch.ops.aten.is_same_size.default(tensor, tensor)
    state = vars(DISPATCHER)
    _ReplacedDispatcher._custom_op_handlers = property(
        lambda _: answer(), lambda _, handlers: state.__setitem__(_HANDLERS, handlers)
    )
    seen_by_python = object.__new__(OpDispatcher)
    seen_by_python.__dict__ = state
    DISPATCHER.__class__, DTensor._op_dispatcher = _ReplacedDispatcher, seen_by_python
    try:
        yield
    finally:
        DISPATCHER.__class__, DTensor._op_dispatcher = OpDispatcher, DISPATCHER


@contextmanager
def handling(
    ops: Iterable[OpOverload], make: Callable[[OpOverload], Handler]
) -> Iterator[Callable[[OpOverload], None]]:
    """Inside the context, let torch call handlers of these ops instead of dispatching the ops.

    `make` returns an op's handler when the op is first dispatched: a program uses a few dozen of
    torch's 800 ops. Torch's own handlers take precedence. Only these are used under a dispatch mode
    (debugging, fake tensors, tracing), and for an op that `by_torch` dispatches. Yield a function
    that removes the handler of an op, so that torch dispatches the op again.
    """
    known: Handlers | None = None
    overlay: Handlers = {}
    changing = threading.Lock()

    def first(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        nonlocal known
        handler = make(op)
        with changing:
            if op in ours:
                ours[op], known = handler, None
            else:  # another thread has meanwhile returned the op to torch
                handler = by_torch
        return handler(op, args, kwargs)

    ours: Handlers = dict.fromkeys(ops, first)

    def answer() -> Handlers:
        nonlocal known, overlay
        own: Handlers = state[_HANDLERS]
        if modes_active() or (_observed_by_thread and this_thread() in _observed_by_thread):
            return own
        if own != known:  # quick: about ten entries, usually identical objects
            with changing:
                overlay, known = Overlay({**ours, **own}), dict(own)
        return overlay

    def give_back(op: OpOverload) -> None:
        nonlocal known
        with changing:
            ours.pop(op, None)
            known = None

    state = vars(DISPATCHER)
    with answering(answer):
        yield give_back


def by_torch(
    op: OpOverload, args: Args, kwargs: Kwargs, observed: ObservedDecision | None = None
) -> Any:
    """Let torch dispatch an op without our handlers; record torch's decision in `observed`."""
    thread = this_thread()
    _observed_by_thread[thread] = observed
    try:
        return op(*args, **kwargs)
    finally:
        del _observed_by_thread[thread]
