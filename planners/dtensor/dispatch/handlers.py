"""Handlers of ops, in addition to those of torch's dispatcher, which C++ looks up before each op.

Torch has one dictionary of handlers, which any code can change: `loss_parallel` adds to it,
`context_parallel` replaces it, and users add handlers. So this module never changes the dictionary.
C++ fetches the dispatcher object once, and asks that object for its handlers before each op. Only
that object also returns our handlers. Python code finds a second dispatcher under
`DTensor._op_dispatcher`, an unchanged `OpDispatcher` with the same state. If torch has a handler
for an op, torch's handler is called.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dispatch import OpDispatcher
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding
from torch.utils._python_dispatch import _disable_current_modes

from planners.dtensor.dispatch.torch_path import DISPATCHER, Args, Handler, Kwargs, modes_active

Handlers = dict[OpOverload, Handler]

Below = Callable[[], Handlers]
Layer = Callable[[Below], Callable[[OpDispatcher], Handlers]]
"""Makes the function that answers C++, from the one that answers without this layer."""

this_thread = threading.get_ident

_HANDLERS = "_custom_op_handlers"


class Overlay(dict[OpOverload, Handler]):
    """The dictionary in which C++ looks up handlers; Python's changes go to torch's dictionary."""

    def __init__(self, own: Below, handlers: Mapping[OpOverload, Handler]) -> None:
        super().__init__(handlers)
        self._own = own

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add handlers to torch's own dictionary."""
        self._own().update(*args, **kwargs)

    def pop(self, *args: Any) -> Any:
        """Remove a handler from torch's own dictionary, and return it."""
        return self._own().pop(*args)

    def __setitem__(self, op: OpOverload, handler: Handler) -> None:
        self._own()[op] = handler

    def __delitem__(self, op: OpOverload) -> None:
        del self._own()[op]


@dataclass(slots=True)
class ObservedDecision:
    """Torch's decision for an op, as observed while torch dispatched it."""

    op: OpOverload
    schema: OpSchema | None = None  # None if torch found the decision in its cache
    sharding: OutputSharding | None = None  # None then too, and if torch decomposes the op
    is_moved: bool = False  # torch unwrapped the arguments one by one, as for a redistribution


_observed_by_thread: dict[int, ObservedDecision | None] = {}
"""Threads in which torch itself dispatches an op, and the decision observed there."""


class _LayeredDispatcher(OpDispatcher):
    """The dispatcher that C++ uses: it takes handlers from the layers, and all else from torch."""

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


_layers: list[Layer] = []
_changing = threading.Lock()


@contextmanager
def layered(layer: Layer) -> Iterator[None]:
    """Let C++ take handlers from `layer` inside the context; contexts may end in any order.

    C++ asks the newest layer, which may ask the older layers.
    """
    _prime_cpp_dispatcher()
    with _changing:
        _layers.append(layer)
        _apply_layers()
    try:
        yield
    finally:
        with _changing:
            _layers.remove(layer)
            _apply_layers()


def _apply_layers() -> None:
    if not _layers:
        DISPATCHER.__class__ = OpDispatcher
        DTensor._op_dispatcher = DISPATCHER
        return
    state = vars(DISPATCHER)
    below: Below = lambda: state[_HANDLERS]  # noqa: E731 - quicker than a method of a dictionary
    for layer in _layers:
        answer = layer(below)
        below = partial(answer, DISPATCHER)
    _LayeredDispatcher._custom_op_handlers = property(
        answer, lambda _, handlers: state.__setitem__(_HANDLERS, handlers)
    )
    DISPATCHER.__class__ = _LayeredDispatcher
    seen_by_python = object.__new__(OpDispatcher)
    seen_by_python.__dict__ = state
    DTensor._op_dispatcher = seen_by_python


def _prime_cpp_dispatcher() -> None:
    """Dispatch an op without a mesh, because C++ stores the dispatcher found at its first op."""
    if not _layers:
        tensor = torch.Tensor._make_wrapper_subclass(DTensor, (), dtype=torch.float32)
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            torch.ops.aten.is_same_size.default(tensor, tensor)


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
    renewing = threading.Lock()

    def first(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        nonlocal known
        handler = make(op)
        with renewing:
            if op in left:
                left[op], known = handler, None
            else:  # another thread has meanwhile returned the op to torch
                handler = by_torch
        return handler(op, args, kwargs)

    left: Handlers = dict.fromkeys(ops, first)

    def layer(below: Below) -> Callable[[OpDispatcher], Handlers]:
        nonlocal known
        known = None
        overlay: Handlers = {}

        def answer(_: OpDispatcher) -> Handlers:
            nonlocal known, overlay
            own = below()
            if modes_active() or (_observed_by_thread and this_thread() in _observed_by_thread):
                return own
            if own != known:  # quick: about ten entries, usually identical objects
                with renewing:
                    overlay = Overlay(below, {**left, **own})
                    known = dict(own)
            return overlay

        return answer

    def give_back(op: OpOverload) -> None:
        nonlocal known
        with renewing:
            left.pop(op, None)
            known = None

    with layered(layer):
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
