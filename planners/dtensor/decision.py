"""The decisions of one call: placements of results, and redistributions of inputs."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unittest import mock

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpInfo, OpSchema
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.utils._pytree import tree_leaves, tree_unflatten

from harness.contract import InfeasibleDecision
from planners.dtensor.dispatch.torch_path import DISPATCHER, schema_info
from planners.dtensor.programs.world import OpProgram

Rewritten = tuple[OpInfo, OpSchema]
"""An op that torch is asked to rewrite the arguments of, and the schema that they must have."""


@dataclass(frozen=True, slots=True)
class Redistribution:
    """An op's schema as called, and the (source, target) specs of its redistributed inputs."""

    schema: OpSchema
    moves: tuple[tuple[DTensorSpec, DTensorSpec], ...]


@contextmanager
def recorded_in(rewritten: list[Rewritten]) -> Iterator[None]:
    """Inside the context, add every op to a list when torch rewrites its arguments."""
    redistribute = DISPATCHER.redistribute_local_args

    def recorded(info: OpInfo, suggested: OpSchema, *rest: Any) -> None:
        rewritten.append((info, suggested))
        redistribute(info, suggested, *rest)

    with mock.patch.object(DISPATCHER, "redistribute_local_args", recorded, create=True):
        yield


@dataclass(frozen=True)
class Decision:
    """The results of one call of a program, and its redistributions."""

    program: OpProgram
    outputs: tuple[torch.Tensor, ...]
    rewritten: list[Rewritten]
    has_owners: bool = False  # each rank orthogonalises its own of Muon's matrices

    @cached_property
    def redistributions(self) -> tuple[Redistribution, ...]:
        """The ops that redistribute inputs, in call order."""
        ops = (_redistribution(info, suggested) for info, suggested in self.rewritten)
        return tuple(op for op in ops if op.moves)


def _redistribution(info: OpInfo, suggested: OpSchema) -> Redistribution:
    """Return the redistribution of an op: its inputs with other placements in `suggested`."""
    args, targets = tuple(info.flat_args_schema), suggested.args_schema
    if info.args_tree_spec is not None:
        targets = tree_leaves(targets)
    moves = tuple(
        (source, target)
        for source, target in zip(args, targets, strict=False)
        if isinstance(source, DTensorSpec) and source.placements != target.placements
    )
    if info.args_tree_spec is not None:
        args = tree_unflatten(list(args), info.args_tree_spec)
    op, kwargs = suggested.op, suggested.kwargs_schema
    return Redistribution(info.schema or OpSchema(op, args, kwargs, schema_info(op)), moves)


def fingerprint(decision: Decision) -> str:
    """Return a hash of the results' placements, shapes, strides and types.

    It includes moved inputs and the results' values if the program compares them, but no varying
    batch size.
    """
    digest = hashlib.sha256()
    program = decision.program
    for name, output in zip(program.names, decision.outputs, strict=True):
        shape: list[object] = list(output.shape)
        if program.is_dynamic and shape:
            shape[0] = "batch"
        placements = str(output.placements) if isinstance(output, DTensor) else "local"
        digest.update(f"{name} {placements} {shape} {output.stride()} {output.dtype}\n".encode())
        if program.compares_values:
            local = output._local_tensor if isinstance(output, DTensor) else output
            digest.update(local.detach().cpu().contiguous().numpy().tobytes())
    for moved in decision.redistributions if program.compares_moves else ():
        moves = [f"{source.placements} to {target.placements}" for source, target in moved.moves]
        digest.update(f"{moved.schema.op}: {moves}\n".encode())
    return digest.hexdigest()


def validate(_: object, decision: Decision) -> None:
    """Raise InfeasibleDecision for a missing result, or a shard of a wrong shape."""
    program = decision.program
    if len(decision.outputs) != len(program.names):
        raise InfeasibleDecision(
            f"The program made {len(decision.outputs)} results instead of {len(program.names)}."
        )
    for name, output in zip(program.names, decision.outputs, strict=True):
        if not isinstance(output, DTensor):
            continue
        expected, _ = compute_local_shape_and_global_offset(
            output.shape, output.device_mesh, output.placements, skip_offset=True
        )
        if tuple(output._local_tensor.shape) != tuple(expected):
            raise InfeasibleDecision(
                f"The shard of {name} has shape {tuple(output._local_tensor.shape)}, but "
                f"{output.placements} of {tuple(output.shape)} makes it {tuple(expected)}."
            )
