"""Replay a captured step: the same ops in the same order, on DTensors without values.

The local tensors have only shapes and types. DTensor decides and dispatches ops on them as usual,
but nothing is computed and no memory is needed. So a step of a model of any size takes the time of
its dispatch and, for each op, one look-up of the local result. A look-up takes about as long as a
kernel launch.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.placement_types import _MaskPartial
from torch.utils._pytree import tree_iter, tree_leaves

from harness.contract import Topology, UsageError, WorkloadSpec
from planners.dtensor.capture.recording import decided_ops
from planners.dtensor.capture.tensors import (
    LAYOUTS,
    META,
    VALUES,
    CannotBeMade,
    Locals,
    StepArguments,
    forget_results,
)
from planners.dtensor.dispatch.torch_path import clear_torch_caches
from planners.dtensor.programs.program import OpProgram, RecordedDecisions
from planners.dtensor.programs.world import playing_one_rank, start_world
from planners.dtensor.search.dispatches import ExactMiss
from planners.dtensor.step_file import CallRecord, StepRecord, read_step
from planners.dtensor.workloads import check_ranks, parameters_of

_MOST_PIECES = 2**16
_READS_A_VALUE = torch.ops.aten._local_scalar_dense.default


def replayed(workload: WorkloadSpec, topology: Topology) -> OpProgram:
    """Return the program of a captured step, without the calls that cannot be replayed here.

    Raises UsageError for an invalid file, a topology of another size, or no replayable calls.
    """
    path, parameters = Path(workload.name), parameters_of(workload)
    step = read_step(path)
    check_ranks(topology)
    if step.ranks != topology.gpus:
        raise UsageError(
            f"{path} was recorded in a world of {step.ranks:,} ranks: ask for as many GPUs "
            f"(-n {step.ranks})."
        )
    start_world(step.ranks)
    replay = _Replay(step, step.sequence[: parameters.calls], topology.gpus_in_domain)
    if not replay.order:
        reasons = ", ".join(sorted(replay.dropped))
        raise UsageError(f"{path}: none of its calls can be made here: {reasons}.")
    return replay.program(parameters.caches == "cold")


class _ReadyCall(NamedTuple):
    """A call of an op, with arguments made in this process."""

    op: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    makes: int  # the number of tensors among its results
    used_up: Locals | None  # the kind of its local tensors if the op changes them, else None


class _Replay:
    """The calls of a captured step that can be replayed here, on tensors of this process."""

    def __init__(self, step: StepRecord, sequence: Sequence[int], ranks_per_host: int) -> None:
        """Try each distinct call once, and keep the calls that succeed."""
        self._step = step
        self._arguments = StepArguments(step)
        self._decided = decided_ops()
        self._ready: dict[int, _ReadyCall] = {}
        self._implicit = any(
            argument.local is not None and math.prod(argument.local.shape) > 1
            for index in set(sequence)
            for argument in step.calls[index].arguments()
        )
        why: dict[int, str] = {}
        clear_torch_caches()
        forget_results()
        dispatch = ExactMiss()  # makes torch's decisions in less time
        try:
            with playing_one_rank(ranks_per_host), dispatch.installed(), self._as_recorded():
                for index in dict.fromkeys(sequence):
                    try:
                        self._ready[index] = self._tried(step.calls[index])
                    except CannotBeMade as error:
                        why[index] = str(error)
        finally:
            clear_torch_caches()
        self.order = [index for index in sequence if index in self._ready]
        self.dropped = Counter(why[index] for index in sequence if index in why)

    def _tried(self, call: CallRecord) -> _ReadyCall:
        """Run a call on the fastest kind of local tensors that works; CannotBeMade if none does."""
        parts = call.op.split(".")
        op: Any = reduce(lambda owner, part: getattr(owner, part, None), parts, torch.ops)
        if op not in self._decided:
            raise CannotBeMade("no op that DTensor knows here")
        if _pieces(op, call, self._step) > _MOST_PIECES:
            raise CannotBeMade("too many results")
        for locals_ in (VALUES,) if op is _READS_A_VALUE else (LAYOUTS, META):
            args, kwargs = self._arguments.of(call, locals_)
            held = [leaf for leaf in tree_iter((args, kwargs)) if type(leaf) is DTensor]
            before = list(map(_state, held))
            try:
                made = op(*args, **kwargs)
            except Exception:
                self._arguments.forget(call)
                continue
            is_used_up = list(map(_state, held)) != before
            if is_used_up:
                self._arguments.forget(call)
            run = _releasing(op) if _release(made) else op
            makes = len(_tensors_in(made))
            return _ReadyCall(run, args, kwargs, makes, locals_ if is_used_up else None)
        raise CannotBeMade("needs values")

    def program(self, cold: bool) -> OpProgram:
        """Return a program of the calls that can be replayed."""
        place_of: dict[int, int] = {}
        places = [place_of.setdefault(index, len(place_of)) for index in self.order]
        distinct = list(place_of)
        ready = [self._ready[index][:3] for index in self.order]
        used_up = [
            (place, self._step.calls[index], call.used_up)
            for place, index in enumerate(self.order)
            if (call := self._ready[index]).used_up is not None
        ]

        def renew() -> None:
            for place, call, locals_ in used_up:
                ready[place] = ready[place][0], *self._arguments.of(call, locals_, shared=False)

        def run() -> list[torch.Tensor]:
            made: list[Any] = [None] * len(distinct)
            with self._as_recorded():
                for (op, args, kwargs), place in zip(ready, places, strict=True):
                    made[place] = op(*args, **kwargs)
            return _tensors_in(made)

        renew()
        return OpProgram(
            max(self._arguments.meshes, key=lambda mesh: (mesh.size(), mesh.ndim)),
            run,
            tuple(
                f"call {index}, {self._step.calls[index].op}"
                for index in distinct
                for _ in range(self._ready[index].makes)
            ),
            size=len(self.order),
            cold=cold,
            compares_values=False,
            renew=renew if used_up else None,
            recorded=self._recorded(distinct),
            notes=self._notes(len(distinct)),
        )

    def _recorded(self, distinct: Sequence[int]) -> RecordedDecisions:
        results: list[object] = []
        for index in distinct:
            recorded = [self._step.results[at] for at in self._step.calls[index].results]
            makes = self._ready[index].makes
            results += [*recorded, *[None] * makes][:makes]
        calls = (self._step.calls[index] for index in self.order)
        return RecordedDecisions(
            tuple(results), Counter((call.op, call.moves) for call in calls if call.moves)
        )

    def _notes(self, distinct: int) -> dict[str, float | str]:
        notes: dict[str, float | str] = {"distinct": distinct, "values": "none, shapes only"}
        if len(self._arguments.meshes) > 1:
            notes["meshes"] = len(self._arguments.meshes)
        counts = {"not captured": self._step.left_out, "not replayed": self.dropped}
        for name, counted in counts.items():
            if any(counted.values()):
                notes[name] = ", ".join(
                    f"{many:,} ({why})" for why, many in sorted(counted.items())
                )
        return notes

    @contextmanager
    def _as_recorded(self) -> Iterator[None]:
        """Run ops without autograd in the context, because ops are recorded below autograd."""
        with torch.no_grad(), implicit_replication() if self._implicit else nullcontext():
            yield


def _pieces(op: OpOverload, call: CallRecord, step: StepRecord) -> int:
    """Return an upper bound on the tensors that an op splits its input into; 0 for other ops."""
    aten = torch.ops.aten
    index = getattr(call.args[0], "tensor", None) if call.args else None
    if index is None or op not in (aten.unbind.int, aten.split.Tensor, aten.unsafe_split.Tensor):
        return 0
    longest = max(step.tensors[index].shape, default=0)
    at_once = call.args[1] if op is not aten.unbind.int and len(call.args) > 1 else 1
    return longest // at_once if isinstance(at_once, int) and at_once > 0 else longest


def _releasing(op: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs an op and then releases the mask of the op's result.

    In the recorded step, the next op on the result released the mask. The op fails if the mask
    still exists when the op runs again.
    """

    def released(*args: Any, **kwargs: Any) -> Any:
        made = op(*args, **kwargs)
        _release(made)
        return made

    return released


def _release(made: Any) -> bool:
    masks = [
        placement.mask_buffer
        for tensor in _tensors_in(made)
        if isinstance(tensor, DTensor)
        for placement in tensor.placements
        if isinstance(placement, _MaskPartial)
    ]
    for mask in masks:
        while mask.refcount:
            mask.release_mask()
    return bool(masks)


def _state(tensor: DTensor) -> tuple[Any, ...]:
    """Return the properties that an in-place op may change in a tensor without values."""
    local = tensor._local_tensor
    return tensor._spec, tensor.shape, tensor.stride(), local.shape, local.stride()


def _tensors_in(made: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor)]
