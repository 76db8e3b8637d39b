"""Record the ops that DTensor dispatches, in order, for `harness.capture`.

C++ asks torch's dispatcher for a handler at the start of each op. During a recording, every op that
torch can decide has a recording handler. This handler lets torch's own dispatch run the op, and
records the op's arguments, its results and the inputs that torch moved. If torch first decomposes
an op, its parts are recorded instead.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import torch
from torch._decomp import decomposition_table
from torch._ops import OpOverload
from torch.distributed.tensor._dispatch import OpDispatcher

from harness.contract import Names, ShardbenchError, UsageError
from planners.dtensor.capture.records import CallRecords, CannotBeWritten
from planners.dtensor.decision import Redistributions, redistribution
from planners.dtensor.dispatch import torch_path
from planners.dtensor.dispatch.handlers import Below, Handlers, Overlay, layered
from planners.dtensor.dispatch.torch_path import DISPATCHER, PROPAGATOR, Args, Kwargs

PUBLIC_NAMESPACES = frozenset(("aten", "prims", "c10d_functional", "_c10d_functional"))
"""The namespaces of ops with public names."""

_switch = threading.Lock()


@contextmanager
def capturing(names: Names) -> Iterator[Callable[[], Mapping[str, Any]]]:
    """Record every op inside the context; yield a function that returns the step as JSON types.

    Raises UsageError while another step is being recorded.
    """
    if not _switch.acquire(blocking=False):
        raise UsageError("A step is captured already; leave that one first.")
    recorder = _StepRecorder(names)
    try:
        with recorder.moved.recorded(), layered(recorder.layer, outermost=True):
            yield recorder.content
    finally:
        _switch.release()


def decided_ops() -> set[OpOverload]:
    """Return the ops that DTensor receives whole: those with a strategy or a decomposition."""
    decomposed = [op for op in decomposition_table if isinstance(op, OpOverload)]
    in_parts = torch._C.DispatchKey.CompositeImplicitAutograd  # decomposed before DTensor gets them
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return {
        *torch_path.ops_with_strategies(),
        *vars(DISPATCHER)["_custom_op_handlers"],
        torch.ops.aten._local_scalar_dense.default,
        *(op for op in decomposed if not has_kernel(op.name(), in_parts)),
    }


class _RedistributionsOfThread(threading.local, Redistributions):
    """Redistributions by thread, because backward passes run in threads of their own."""


class _StepRecorder:
    def __init__(self, names: Names) -> None:
        self.moved = _RedistributionsOfThread()
        self._names = names
        self._records = CallRecords()
        self._sequence: list[int] = []
        self._left_out: Counter[str] = Counter()
        self._inside = threading.local()
        self._lock = threading.Lock()
        self._torch_handlers = OpDispatcher()._custom_op_handlers

    def layer(self, below: Below) -> Callable[[OpDispatcher], Handlers]:
        """Return a function that gives C++ a recording handler for every op.

        While an op is being recorded, the function gives C++ the handlers of `below` instead.
        """
        sizes: tuple[int, ...] = ()
        overlay: Handlers = {}

        def answer(_: OpDispatcher) -> Handlers:
            nonlocal sizes, overlay
            own = below()
            if getattr(self._inside, "an_op", False):
                return own
            if torch_path.modes_active():
                with self._lock:
                    self._left_out["under a dispatch mode"] += 1
                return own
            now = (
                id(own),
                len(own),
                len(PROPAGATOR.op_strategy_funcs),
                len(PROPAGATOR.op_to_rules),
                len(PROPAGATOR.op_single_dim_strategy_funcs),
            )
            if now != sizes:
                overlay = Overlay(below, dict.fromkeys(decided_ops() | own.keys(), self._recorded))
                sizes = now
            return overlay

        return answer

    def _recorded(self, op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        """Let torch run an op, and record its arguments and results."""
        given, why = None, ""
        try:
            self._check_is_recorded(op)
            with self._lock:
                given = self._records.given(op, args, kwargs)
        except ValueError as error:
            why = str(error)
        self.moved.taken()
        self._inside.an_op = True
        try:
            made = op(*args, **kwargs)
        finally:
            self._inside.an_op = False
        moved = [redistribution(*rewritten) for rewritten in self.moved.taken()]
        with self._lock:
            try:
                if given is not None:
                    self._sequence.append(self._records.index(given, made, moved))
            except ValueError as error:
                why = str(error)
            if why:
                self._left_out[why] += 1
        return made

    def _check_is_recorded(self, op: OpOverload) -> None:
        if self._names.hashed and op.namespace not in PUBLIC_NAMESPACES:
            raise CannotBeWritten("an op with a private name")
        handler = vars(DISPATCHER)["_custom_op_handlers"].get(op)
        if handler is not self._torch_handlers.get(op):
            raise CannotBeWritten("an op with a handler of its own")

    def content(self) -> dict[str, Any]:
        """Return the step as JSON types; raises ShardbenchError if nothing was recorded."""
        with self._lock:
            if not self._sequence:
                unwritten = "".join(
                    f", and {count} that cannot be written down ({why})"
                    for why, count in sorted(self._left_out.items())
                )
                raise ShardbenchError(f"No op on a DTensor was seen{unwritten}.")
            step = self._records.step(self._names, self._sequence, self._left_out)
        content: dict[str, Any] = msgspec.to_builtins(step)
        return content
