"""Create the tensors and arguments of a captured step's calls in this process.

Most local tensors have only a layout, so they need no memory and no computation. The same is true
on the meta device, but many of its kernels are written in Python and take a millisecond, a hundred
times as long as a dispatch. So each op on tensors of certain layouts runs on the meta device once,
and later calls look up its result.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._utils import (
    compute_local_shape_and_global_offset,
    compute_local_stride,
)
from torch.utils._pytree import tree_leaves, tree_map

from planners.dtensor.cache.recipes import make_dtensor
from planners.dtensor.capture.records import TYPES, placement_of, regular_ranks
from planners.dtensor.dispatch.torch_path import on_meta_device
from planners.dtensor.programs.world import DEVICE
from planners.dtensor.step_file import ArgumentRecord, CallRecord, StepRecord, TensorRecord


class CannotBeMade(Exception):
    """A call cannot be replayed here. The message is a general reason, without its details."""


@dataclass(frozen=True, slots=True, eq=False)
class TensorLayout:
    """A tensor's shape and stride in elements, and type; equal layouts are the same object."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


class _SameAsInput(NamedTuple):
    """A cached result that is one of the op's inputs: its index among all inputs."""

    place: int


_layouts: dict[tuple[Any, ...], TensorLayout] = {}
_results: dict[tuple[Any, ...], Any] = {}


def forget_results() -> None:
    """Empty the cache of the results of ops by layout."""
    _results.clear()


def layout_of(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> TensorLayout:
    """Return the shared layout object for a shape, stride and type."""
    key = (tuple(shape), tuple(stride), dtype)
    return _layouts.setdefault(key, TensorLayout(*key))


class LayoutTensor(torch.Tensor):
    """A tensor that has a layout but no values.

    Its layout is fixed: an in-place op that would change the layout raises TypeError.
    """

    known_layout: TensorLayout

    @staticmethod
    def __new__(cls, layout: TensorLayout) -> "LayoutTensor":
        """Return a new tensor with this layout."""
        made: LayoutTensor = torch.Tensor._make_wrapper_subclass(
            cls, layout.shape, layout.stride, dtype=layout.dtype, device=DEVICE
        )
        made.known_layout = layout
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls,
        op: OpOverload,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the op's result, from the cache of results by layout."""
        key = (op, _key(args), _key(kwargs.items()) if kwargs else ())
        if key in _results:
            made = _results[key]
        else:
            made = _results[key] = _made_on_meta(op, args, kwargs or {})
        return LayoutTensor(made) if type(made) is TensorLayout else _made(made, args, kwargs)


def _key(values: Any) -> tuple[Any, ...]:
    return tuple(
        [
            value.known_layout
            if type(value) is LayoutTensor
            else _key(value)
            if isinstance(value, list | tuple)
            else (value.shape, value.stride(), value.dtype)
            if isinstance(value, torch.Tensor)
            else value
            if type(value) is int
            else (type(value), value)  # 1.0 and True equal 1, but may change the result's type
            for value in values
        ]
    )


def _made_on_meta(op: OpOverload, args: Any, kwargs: Any) -> Any:
    """Return the op's result on the meta device, with layouts in place of tensors."""
    tried = tree_map(_on_meta_device, (args, kwargs))
    leaves = tree_leaves(tried)
    before = [_state(leaf) for leaf in leaves]
    made = op(*tried[0], **tried[1])
    if [_state(leaf) for leaf in leaves] != before:
        raise TypeError(f"{op} changes the layout of its input.")
    places = {id(leaf): place for place, leaf in enumerate(leaves)}

    def described(part: Any) -> Any:
        if not isinstance(part, torch.Tensor):
            return part
        if id(part) in places:
            return _SameAsInput(places[id(part)])
        return layout_of(part.shape, part.stride(), part.dtype)

    return tree_map(described, made)


def _on_meta_device(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("meta")
    if isinstance(value, torch.Tensor):
        return on_meta_device(value.shape, value.stride(), value.dtype)
    return value


def _state(value: Any) -> Any:
    return (value.shape, value.stride()) if isinstance(value, torch.Tensor) else None


def _made(template: Any, args: Any, kwargs: Any) -> Any:
    if type(template) is TensorLayout:
        return LayoutTensor(template)
    if type(template) is _SameAsInput:
        return tree_leaves((args, kwargs or {}))[template.place]
    if isinstance(template, list | tuple):
        return type(template)([_made(part, args, kwargs) for part in template])
    return template


@dataclass(frozen=True, slots=True)
class Locals:
    """A kind of local tensors: constructor, device, and the largest number of elements."""

    make: Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor]
    device: str
    most: float = math.inf


LAYOUTS = Locals(lambda *layout: LayoutTensor(layout_of(*layout)), DEVICE)
"""The quickest, without values."""

META = Locals(on_meta_device, "meta")
"""For ops that change their inputs, and those that know no layout tensor."""

VALUES = Locals(
    lambda shape, stride, dtype: torch.empty_strided(shape, stride, dtype=dtype).zero_(),
    DEVICE,
    most=1,
)
"""Zeros, for ops that read a value."""


class StepArguments:
    """The meshes and tensors of a captured step; calls with the same tensor share it."""

    def __init__(self, step: StepRecord) -> None:
        self.meshes = tuple(
            DeviceMesh(DEVICE, regular_ranks(mesh.shape, mesh.strides), mesh_dim_names=mesh.names)
            for mesh in step.meshes
        )
        self._records = step.tensors
        self._tensors: dict[tuple[int, Locals], DTensor] = {}

    def of(
        self, call: CallRecord, locals_: Locals, shared: bool = True
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return a call's arguments, with new tensors unless `shared`; raises CannotBeMade."""
        try:
            return (
                [self._value(value, locals_, shared) for value in call.args],
                {name: self._value(value, locals_, shared) for name, value in call.kwargs.items()},
            )
        except (RuntimeError, ValueError, TypeError, AssertionError, OverflowError):
            raise CannotBeMade("no such tensors here") from None

    def forget(self, call: CallRecord) -> None:
        """Drop the shared tensors of a call, so that the next call gets new tensors."""
        given = {argument.tensor for argument in call.arguments()}
        for key in [key for key in self._tensors if key[0] in given]:
            del self._tensors[key]

    def _value(self, value: Any, locals_: Locals, shared: bool) -> Any:
        match value:
            case list():
                return [self._value(element, locals_, shared) for element in value]
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
