"""Make the arguments of a captured step's calls in this process."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._utils import (
    compute_local_shape_and_global_offset,
    compute_local_stride,
)

from planners.dtensor.cache.plans import make_dtensor
from planners.dtensor.capture.layout_tensor import LayoutTensor, layout_of
from planners.dtensor.capture.records import TYPES, placement_of, regular_ranks
from planners.dtensor.dispatch.torch_path import on_meta_device
from planners.dtensor.programs.world import DEVICE
from planners.dtensor.step_file import ArgumentRecord, CallRecord, StepRecord, TensorRecord


class CannotBeMade(Exception):
    """A call cannot be made here; the text says why, in words that do not depend on the call."""


@dataclass(frozen=True, slots=True)
class Locals:
    """A kind of local tensors: how one is made, its device, the elements it may have."""

    make: Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor]
    device: str
    most: float = math.inf


LAYOUTS = Locals(lambda *layout: LayoutTensor(layout_of(*layout)), DEVICE)
"""The quickest, without values."""

META = Locals(on_meta_device, "meta")
"""For ops that change what they are given, and those that are asked no other way."""

VALUES = Locals(
    lambda shape, stride, dtype: torch.empty_strided(shape, stride, dtype=dtype).zero_(),
    DEVICE,
    most=1,
)
"""Zeros, for ops that read a value."""


class StepArguments:
    """The meshes and tensors of a step; tensors are shared by the calls that are given the same."""

    def __init__(self, step: StepRecord) -> None:
        self.meshes = tuple(
            DeviceMesh(DEVICE, regular_ranks(each.shape, each.strides), mesh_dim_names=each.names)
            for each in step.meshes
        )
        self._records = step.tensors
        self._tensors: dict[tuple[int, Locals], DTensor] = {}

    def of(
        self, call: CallRecord, locals_: Locals, shared: bool = True
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return what a call is given, which may share tensors with others; raises CannotBeMade."""
        try:
            return (
                [self._value(value, locals_, shared) for value in call.args],
                {name: self._value(value, locals_, shared) for name, value in call.kwargs.items()},
            )
        except (RuntimeError, ValueError, TypeError, AssertionError, OverflowError):
            raise CannotBeMade("no such tensors here") from None

    def forget(self, call: CallRecord) -> None:
        """Let the next call make the tensors of this one again."""
        given = {each.tensor for each in call.arguments()}
        for key in [key for key in self._tensors if key[0] in given]:
            del self._tensors[key]

    def _value(self, value: Any, locals_: Locals, shared: bool) -> Any:
        match value:
            case list():
                return [self._value(each, locals_, shared) for each in value]
            case ArgumentRecord(tensor=int(index)) if shared:
                if (index, locals_) not in self._tensors:
                    self._tensors[index, locals_] = self._made(self._records[index], locals_)
                return self._tensors[index, locals_]
            case ArgumentRecord(tensor=int(index)):
                return self._made(self._records[index], locals_)
            case ArgumentRecord(local=local) if local is not None:
                kind = VALUES if math.prod(local.shape) == 1 else META
                return kind.make(local.shape, local.stride, _named("dtype", local.dtype))
            case ArgumentRecord(number=str(kind), index=int(index)):
                return 2 + index if kind == "int" else 1.5 + index
            case ArgumentRecord(float_=str(text)):
                return float(text)
            case ArgumentRecord(device=str()):
                return torch.device(locals_.device)
            case ArgumentRecord():
                return next(_named(kind, name) for kind in TYPES if (name := getattr(value, kind)))
        return value

    def _made(self, record: TensorRecord, locals_: Locals) -> DTensor:
        mesh, shape = self.meshes[record.mesh], torch.Size(record.shape)
        placements = tuple(map(placement_of, record.placements))
        meta = TensorMeta(shape, record.stride, _named("dtype", record.dtype))
        size, _ = compute_local_shape_and_global_offset(shape, mesh, placements, skip_offset=True)
        if math.prod(size) > locals_.most:
            raise CannotBeMade("needs values")
        steps = zip(record.stride, compute_local_stride(record.stride, size), strict=True)
        stride = tuple(step and local_step for step, local_step in steps)
        local = locals_.make(size, stride, meta.dtype)
        spec = DTensorSpec(mesh, placements, meta)
        return make_dtensor(DTensor, local, spec, requires_grad=record.requires_grad)


def _named(kind: str, name: str) -> Any:
    found = getattr(torch, name, None)
    if not isinstance(found, TYPES[kind]):
        raise CannotBeMade(f"no such {kind.replace('_', ' ')} here")
    return found
