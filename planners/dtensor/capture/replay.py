"""A captured step as a program: the same ops in the same order, on DTensors without values.

The local tensors know shapes and types only: an op on them decides and dispatches as ever, and what
it would compute, or need memory for, is left out. So the step of a model of any size takes what its
dispatch takes, and for each op one look for what the local op makes, about as long as it takes to
launch a kernel.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.placement_types import _MaskPartial
from torch.utils._pytree import tree_iter, tree_leaves

from harness.contract import Topology, UsageError, WorkloadSpec
from planners.dtensor.capture.arguments import (
    META,
    SHAPED,
    VALUES,
    Arguments,
    CannotBeMade,
    Locals,
    objects_in,
    op_named,
)
from planners.dtensor.capture.layout_tensor import forget
from planners.dtensor.capture.recording import decided_ops
from planners.dtensor.capture.step_file import Call, Step, read_step
from planners.dtensor.dispatch.torch_path import clear_torch_caches
from planners.dtensor.programs.build import Program, Recorded
from planners.dtensor.programs.world import playing_one_rank, start_world
from planners.dtensor.search.dispatches import ExactMiss
from planners.dtensor.workloads import calls, check_ranks, is_cold

_MOST_PIECES = 2**16

_Ready = tuple[Callable[..., Any], list[Any], dict[str, Any]]


def replayed(workload: WorkloadSpec, topology: Topology) -> Program:
    """Return the program of a captured step.

    Each distinct call is tried once. What torch does not know here, or cannot do without values, is
    left out and counted.

    Raises:
        UsageError: the file cannot be read, it was recorded in a world of another size, or nothing
            in it can be called.
    """
    path = Path(workload.name)
    step = read_step(path)
    check_ranks(topology)
    if step.ranks != topology.gpus:
        raise UsageError(
            f"{path} was recorded in a world of {step.ranks:,} ranks: ask for as many GPUs "
            f"(-n {step.ranks})."
        )
    start_world(step.ranks)
    replay = _Replay(step, step.sequence[: calls(workload)])
    replay.try_all(topology.gpus_in_domain)
    if not replay.order:
        reasons = ", ".join(sorted(replay.dropped))
        raise UsageError(f"{path}: none of its calls can be made here: {reasons}.")
    return replay.program(is_cold(workload))


class _Replay:
    """The calls of a step on tensors of this process."""

    def __init__(self, step: Step, sequence: Sequence[int]) -> None:
        self._step = step
        self._arguments = Arguments(step)
        self._decided = decided_ops()
        self._ready: dict[int, _Ready] = {}
        self._makes: dict[int, int] = {}
        self._used_up: dict[int, Locals] = {}
        self.dropped: Counter[str] = Counter()
        self.order = sequence
        self._implicit = any(
            "local" in value and math.prod(value["local"]["shape"]) > 1
            for index in set(sequence)
            for value in objects_in(step.calls[index])
        )

    def try_all(self, ranks_per_host: int) -> None:
        """Make each distinct call once, and keep those that can be made."""
        dispatch = ExactMiss()  # torch's decisions, in less time
        why: dict[int, str] = {}
        clear_torch_caches()
        forget()
        try:
            with playing_one_rank(ranks_per_host), dispatch.installed(), self._as_recorded():
                for index in dict.fromkeys(self.order):
                    try:
                        self._try(index)
                    except CannotBeMade as error:
                        why[index] = str(error)
        finally:
            clear_torch_caches()
        self.dropped.update(why[index] for index in self.order if index in why)
        self.order = [index for index in self.order if index not in why]

    def _try(self, index: int) -> None:
        """Make a call on locals of the quickest kind that it can be made on.

        Raises:
            CannotBeMade: there is no such kind.
        """
        call = self._step.calls[index]
        op = op_named(call.op)
        if op is None or op not in self._decided:
            raise CannotBeMade("no op that DTensor knows here")
        if _pieces(op, call, self._step) > _MOST_PIECES:
            raise CannotBeMade("too many results")
        for locals_ in (VALUES,) if op is _READS_A_VALUE else (SHAPED, META):
            args, kwargs = self._arguments.of(call, locals_)
            held = [each for each in tree_iter((args, kwargs)) if type(each) is DTensor]
            before = [_state(each) for each in held]
            try:
                made = op(*args, **kwargs)
            except Exception:
                self._arguments.forget(call)
                continue
            if [_state(each) for each in held] != before:
                self._used_up[index] = locals_
                self._arguments.forget(call)
            self._makes[index] = len(_tensors_in(made))
            self._ready[index] = (_releasing(op) if _release(made) else op), args, kwargs
            return
        raise CannotBeMade("needs values")

    def program(self, cold: bool) -> Program:
        """Return the program of the calls that can be made."""
        distinct = list(dict.fromkeys(self.order))
        ready = [self._ready[index] for index in self.order]
        place_of = {index: place for place, index in enumerate(distinct)}
        places = [place_of[index] for index in self.order]
        used_up = [
            (place, index) for place, index in enumerate(self.order) if index in self._used_up
        ]

        def renew() -> None:
            for place, index in used_up:
                given = self._arguments.of(self._step.calls[index], self._used_up[index], anew=True)
                ready[place] = (self._ready[index][0], *given)

        def run() -> list[torch.Tensor]:
            made: list[Any] = [None] * len(distinct)
            with self._as_recorded():
                for (op, args, kwargs), place in zip(ready, places, strict=True):
                    made[place] = op(*args, **kwargs)
            return _tensors_in(made)

        renew()
        calls_made = [self._step.calls[index] for index in distinct]
        return Program(
            max(self._arguments.meshes, key=lambda mesh: (mesh.size(), mesh.ndim)),
            run,
            tuple(
                f"call {index}, {call.op}"
                for index, call in zip(distinct, calls_made, strict=True)
                for _ in range(self._makes[index])
            ),
            size=len(self.order),
            cold=cold,
            compares_values=False,
            renew=renew if used_up else None,
            recorded=self._recorded(distinct),
            notes=self._notes(len(distinct)),
        )

    def _recorded(self, distinct: Sequence[int]) -> Recorded:
        results: list[Mapping[str, Any] | None] = []
        for index in distinct:
            was = [self._step.results[each] for each in self._step.calls[index].results]
            makes = self._makes[index]
            results += [*was, *[None] * makes][:makes]
        moves = Counter(
            (call.op, json.dumps(list(call.moves)))
            for call in (self._step.calls[index] for index in self.order)
            if call.moves
        )
        return Recorded(tuple(results), moves)

    def _notes(self, distinct: int) -> dict[str, float | str]:
        notes: dict[str, float | str] = {"distinct": distinct, "values": "none, shapes only"}
        if len(self._arguments.meshes) > 1:
            notes["meshes"] = len(self._arguments.meshes)
        for name, counted in (
            ("not captured", self._step.left_out),
            ("not replayed", self.dropped),
        ):
            if any(counted.values()):
                notes[name] = ", ".join(
                    f"{many:,} ({why})" for why, many in sorted(counted.items())
                )
        return notes

    @contextmanager
    def _as_recorded(self) -> Iterator[None]:
        """Call ops below autograd, as they were recorded."""
        with torch.no_grad(), implicit_replication() if self._implicit else nullcontext():
            yield


_READS_A_VALUE = torch.ops.aten._local_scalar_dense.default


def _pieces(op: OpOverload, call: Call, step: Step) -> int:
    """Return how many tensors an op makes of one, for the ops whose arguments do not list them."""
    aten = torch.ops.aten
    if op not in (aten.unbind.int, aten.split.Tensor, aten.unsafe_split.Tensor):
        return 0
    match call.args:
        case [{"tensor": index}, *rest]:
            longest = max(step.tensors[index].shape, default=0)
            at_once = rest[0] if op is not aten.unbind.int and rest else 1
            return longest // at_once if isinstance(at_once, int) and at_once > 0 else longest
    return 0


def _releasing(op: Callable[..., Any]) -> Callable[..., Any]:
    """Return an op after which what its result is masked with is let go.

    Its next use does that where it was recorded: a mask must not be there when it is made again.
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
    """Return what an op in place may change of a tensor without values."""
    local = tensor._local_tensor
    return tensor._spec, tensor.shape, tensor.stride(), local.shape, local.stride()


def _tensors_in(made: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(made) if isinstance(each, torch.Tensor)]
