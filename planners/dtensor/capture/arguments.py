"""What the calls of a captured step are given, made anew in this process."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._ops._math_ops import _NormPartial
from torch.distributed.tensor._utils import (
    compute_local_shape_and_global_offset,
    compute_local_stride,
)
from torch.distributed.tensor.placement_types import _StridedShard

from planners.dtensor.cache.plans import make_dtensor
from planners.dtensor.capture.layout_tensor import Shaped, layout_of
from planners.dtensor.capture.step_file import Call, MeshForm, Step, TensorForm
from planners.dtensor.programs.world import DEVICE


class CannotBeMade(Exception):
    """Why a call cannot be made here, in words that do not depend on it."""


@dataclass(frozen=True, slots=True)
class Locals:
    """A kind of local tensors: how one is made of shape, stride and type, and the device it is on.

    `most` is how many elements one may have.
    """

    make: Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor]
    device: str
    most: float = math.inf


SHAPED = Locals(lambda shape, stride, dtype: Shaped(layout_of(shape, stride, dtype)), DEVICE)
"""The quickest; see `planners.dtensor.capture.layout_tensor`."""

META = Locals(
    lambda shape, stride, dtype: torch.empty_strided(shape, stride, dtype=dtype, device="meta"),
    "meta",
)
"""For ops that change what they are given, and those that are asked no other way."""

VALUES = Locals(
    lambda shape, stride, dtype: torch.empty_strided(shape, stride, dtype=dtype).zero_(),
    DEVICE,
    most=1,
)
"""Zeros, for ops that read a value."""


class Arguments:
    """The meshes and tensors of a step; tensors are shared by the calls that are given the same."""

    def __init__(self, step: Step) -> None:
        self.meshes = tuple(map(_mesh, step.meshes))
        self._forms = step.tensors
        self._tensors: dict[tuple[int, Locals], DTensor] = {}

    def of(
        self, call: Call, locals_: Locals, anew: bool = False
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return what a call is given, `anew` where nobody else may have it.

        Raises:
            CannotBeMade: there are no such tensors or types here.
        """
        try:
            return (
                [self._value(value, locals_, anew) for value in call.args],
                {name: self._value(value, locals_, anew) for name, value in call.kwargs.items()},
            )
        except (RuntimeError, ValueError, TypeError, AssertionError, OverflowError):
            raise CannotBeMade("no such tensors here") from None

    def forget(self, call: Call) -> None:
        """Make the tensors that a call was given anew for the next one."""
        for value in objects_in(call):
            for key in [key for key in self._tensors if key[0] == value.get("tensor")]:
                del self._tensors[key]

    def _value(self, value: Any, locals_: Locals, anew: bool) -> Any:
        if isinstance(value, list):
            return [self._value(each, locals_, anew) for each in value]
        if not isinstance(value, dict):
            return value
        kind, what = next(iter(value.items()))
        match kind:
            case "tensor":
                return self._tensor(what, locals_, anew)
            case "local":
                single = math.prod(what["shape"]) == 1
                dtype = _named("dtype", what["dtype"])
                return (VALUES if single else META).make(what["shape"], what["stride"], dtype)
            case "number":
                return 2 + value["index"] if what == "int" else 1.5 + value["index"]
            case "float":
                return float(what)
            case "device":
                return torch.device(locals_.device)
        return _named(kind, what)

    def _tensor(self, index: int, locals_: Locals, anew: bool) -> DTensor:
        if anew:
            return self._made(self._forms[index], locals_)
        if (index, locals_) not in self._tensors:
            self._tensors[index, locals_] = self._made(self._forms[index], locals_)
        return self._tensors[index, locals_]

    def _made(self, form: TensorForm, locals_: Locals) -> DTensor:
        mesh, shape = self.meshes[form.mesh], torch.Size(form.shape)
        placements = tuple(_PLACEMENTS[kind](*given) for kind, *given in form.placements)
        meta = TensorMeta(shape, form.stride, _named("dtype", form.dtype))
        size, _ = compute_local_shape_and_global_offset(shape, mesh, placements, skip_offset=True)
        if math.prod(size) > locals_.most:
            raise CannotBeMade("needs values")
        stride = tuple(
            step if whole else 0
            for whole, step in zip(
                form.stride, compute_local_stride(form.stride, size), strict=True
            )
        )
        spec = DTensorSpec(mesh, placements, meta)
        local = locals_.make(size, stride, meta.dtype)
        return make_dtensor(DTensor, local, spec, requires_grad=form.requires_grad)


_PLACEMENTS: Mapping[str, Callable[..., Placement]] = {
    "replicate": Replicate,
    "shard": Shard,
    "strided": lambda dim, factor: _StridedShard(dim, split_factor=factor),
    "partial": Partial,
    "norm": _NormPartial,
}

_TYPES = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}


def _named(kind: str, name: str) -> Any:
    found = getattr(torch, name, None)
    if not isinstance(found, _TYPES[kind]):
        raise CannotBeMade(f"no such {kind.replace('_', ' ')} here")
    return found


def _mesh(form: MeshForm) -> DeviceMesh:
    ranks = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(form.shape, form.strides, strict=True):
        ranks = ranks.unsqueeze(-1) + torch.arange(size) * stride
    return DeviceMesh(DEVICE, ranks, mesh_dim_names=form.names)


def op_named(name: str) -> OpOverload | None:
    """Return an op by namespace, name and overload; None where torch has none here."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, OpOverload) else None


def objects_in(call: Call) -> Iterator[Mapping[str, Any]]:
    """Yield the tensors, types and numbers that a call is given, as its file has them."""
    waiting = [*call.args, *call.kwargs.values()]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            yield value
