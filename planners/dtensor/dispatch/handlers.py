"""Handlers of ours beside those of torch's dispatcher, which C++ looks up before each op.

Torch keeps one dictionary of handlers, and everybody reaches it: `loss_parallel` adds to it,
`context_parallel` assigns another one, users have their own. So it is never touched here. C++ has
looked the dispatcher up once and asks that object for its handlers; that object alone answers with
ours as well. Python code finds a second object under `DTensor._op_dispatcher`, which shares all its
state and is plainly torch's. An op goes to torch's handler where there is one.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
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
"""Makes what answers C++, from what answers without it."""

this_thread = threading.get_ident

_HANDLERS = "_custom_op_handlers"


class Overlay(dict[OpOverload, Handler]):
    """What C++ looks ops up in; who changes it from Python changes torch's own handlers."""

    def __init__(self, own: Below, handlers: Mapping[OpOverload, Handler]) -> None:
        super().__init__(handlers)
        self._own = own

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add handlers to torch's own."""
        self._own().update(*args, **kwargs)

    def pop(self, *args: Any) -> Any:
        """Take a handler out of torch's own."""
        return self._own().pop(*args)

    def __setitem__(self, op: OpOverload, handler: Handler) -> None:
        self._own()[op] = handler

    def __delitem__(self, op: OpOverload) -> None:
        del self._own()[op]


@dataclass(slots=True)
class Decided:
    """What torch was seen to decide for an op."""

    op: OpOverload
    schema: OpSchema | None = None  # None where torch remembered its decision
    sharding: OutputSharding | None = None  # None likewise, and where torch takes the op apart
    is_moved: bool = False  # torch looked at the arguments one by one, as to redistribute them


_with_torch: dict[int, Decided | None] = {}
"""Threads in which torch dispatches an op by itself, and what it is seen to decide there."""


class _LayeredDispatcher(OpDispatcher):
    """The dispatcher that C++ asks: its handlers come from the layers, all else from torch."""

    def _propagate_op_sharding_dispatch_slow_path(
        self, op: OpOverload, args: Any, kwargs: Any, info: Any, *rest: Any, **options: Any
    ) -> Any:
        decided = _with_torch.get(this_thread())
        if decided is not None and (decided.op is not op or decided.schema is not None):
            decided = None
        if decided is not None:
            decided.schema = info.schema
        found = super()._propagate_op_sharding_dispatch_slow_path(
            op, args, kwargs, info, *rest, **options
        )
        if decided is not None and isinstance(found, OutputSharding):
            decided.sharding = found
        return found

    def _unwrap_to_op_info_impl(self, op: OpOverload, *rest: Any, **options: Any) -> Any:
        decided = _with_torch.get(this_thread())
        if decided is not None and decided.op is op:
            decided.is_moved = True
        return super()._unwrap_to_op_info_impl(op, *rest, **options)


_layers: list[tuple[bool, Layer]] = []
_changing = threading.Lock()


@contextmanager
def consulted(layer: Layer, outermost: bool = False) -> Iterator[None]:
    """Let C++ take its handlers from a layer until left; layers may end in any order.

    A layer is asked before those that began earlier, and an outermost one before all others.
    """
    _let_cpp_find_the_dispatcher()
    entry = outermost, layer
    with _changing:
        _layers.append(entry)
        _apply_layers()
    try:
        yield
    finally:
        with _changing:
            _layers.remove(entry)
            _apply_layers()


def _apply_layers() -> None:
    if not _layers:
        DISPATCHER.__class__ = OpDispatcher
        DTensor._op_dispatcher = DISPATCHER
        return
    state = vars(DISPATCHER)
    below: Below = lambda: state[_HANDLERS]  # noqa: E731 - quicker than a method of a dictionary
    for _, layer in sorted(_layers, key=itemgetter(0)):
        answer = layer(below)
        below = partial(answer, DISPATCHER)
    _LayeredDispatcher._custom_op_handlers = property(
        answer, lambda _, handlers: state.__setitem__(_HANDLERS, handlers)
    )
    DISPATCHER.__class__ = _LayeredDispatcher
    seen_by_python = object.__new__(OpDispatcher)
    seen_by_python.__dict__ = state
    DTensor._op_dispatcher = seen_by_python


def _let_cpp_find_the_dispatcher() -> None:
    """Dispatch an op that needs no mesh: C++ keeps the dispatcher that it finds at its first op."""
    if not _layers:
        tensor = torch.Tensor._make_wrapper_subclass(DTensor, (), dtype=torch.float32)
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            torch.ops.aten.is_same_size.default(tensor, tensor)


@contextmanager
def handling(
    ops: Iterable[OpOverload], make: Callable[[OpOverload], Handler]
) -> Iterator[Callable[[OpOverload], None]]:
    """Let torch call handlers instead of dispatching these ops, until left.

    A handler is made when its op is dispatched first: a program has a few dozen of torch's 800 ops.
    Where torch has a handler of its own for an op, that one is called. While a dispatch mode is
    active (debugging, fake tensors, tracing), and for what `by_torch` dispatches, torch has its own
    handlers only. Gives what hands an op back to torch for the rest of the time.
    """
    known: Handlers | None = None
    renewing = threading.Lock()

    def first(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        nonlocal known
        handler = make(op)
        with renewing:
            if op in left:
                left[op], known = handler, None
            else:  # another thread has handed it back meanwhile
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
            if modes_active() or (_with_torch and this_thread() in _with_torch):
                return own
            if own != known:  # some ten entries, which are the same objects
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

    with consulted(layer):
        yield give_back


def by_torch(op: OpOverload, args: Args, kwargs: Kwargs, decided: Decided | None = None) -> Any:
    """Let torch dispatch an op as if there were no handler of ours, and fill `decided`."""
    thread = this_thread()
    _with_torch[thread] = decided
    try:
        return op(*args, **kwargs)
    finally:
        del _with_torch[thread]
