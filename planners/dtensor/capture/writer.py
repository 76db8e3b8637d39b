"""Ops on DTensors as plain JSON types: what they were given, and where their results lie.

Of a tensor its mesh, placements, global shape, stride and type are written, never a value. A number
in a tensor's place is such a value: nothing depends on it but its type, and whether it is the same
number as another one, so that is what is written.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh, _mesh_resources
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._ops._math_ops import _NormPartial
from torch.distributed.tensor.placement_types import _StridedShard
from torch.utils._pytree import tree_leaves

from harness.contract import Names
from planners.dtensor.capture.step_file import MOST_TEXT
from planners.dtensor.decision import Redistribution

Written = dict[str, Any]

_NAMED = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}
_LEFT_OUT = {
    torch.SymInt: "a symbolic size",
    torch.SymFloat: "a symbolic number",
    torch.SymBool: "a symbolic truth value",
    torch.Generator: "a generator of random numbers",
    complex: "a complex number",
}


class CannotBeWritten(Exception):
    """Why an op is left out, in words that do not depend on the script."""


class Writer:
    """The distinct meshes, tensors, results and calls of a step, and the order of the calls."""

    def __init__(self) -> None:
        self.sequence: list[int] = []
        self._meshes = _Distinct()
        self._tensors = _Distinct()
        self._results = _Distinct()
        self._calls = _Distinct()
        self._numbers: dict[str, int] = {}
        self._of_mesh: dict[DeviceMesh, int | None] = {}

    def given(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Written:
        """Return what an op is given, to be asked before it changes that; `add` takes it.

        Raises:
            CannotBeWritten: something among it cannot be written down.
        """
        declared = op._schema.arguments
        types = {argument.name: str(argument.type) for argument in declared}
        return {
            "op": ".".join((op.namespace, op._schema.name.partition("::")[2], op._overloadname)),
            "args": [
                self._value(value, types[argument.name])
                for argument, value in zip(declared, args, strict=False)
            ],
            "kwargs": {name: self._value(value, types[name]) for name, value in kwargs.items()},
        }

    def add(self, given: Written, made: Any, moved: Iterable[Redistribution]) -> None:
        """Write an op down behind those before it, with its results and the inputs it moved.

        Raises:
            CannotBeWritten: a result lies as cannot be told.
        """
        results = [self._results.index(each) for each in described(made)]
        moves = [move for each in moved for move in moves_of(each)]
        self.sequence.append(self._calls.index({**given, "results": results, "moves": moves}))

    def content(self, names: Names) -> Written:
        """Return all that was written, with mesh dimensions named as `names` has them."""
        meshes = self._meshes.held
        as_written = names.written(name for mesh in meshes for name in mesh["names"] or ())
        device = next(iter(self._of_mesh)).device_type
        return {
            "ranks": dist.get_world_size(),
            "ranks_per_host": max(1, _mesh_resources.num_devices_per_host(device)),
            "meshes": [
                {**mesh, "names": mesh["names"] and [as_written[name] for name in mesh["names"]]}
                for mesh in meshes
            ],
            "tensors": self._tensors.held,
            "results": self._results.held,
            "calls": self._calls.held,
            "sequence": self.sequence,
        }

    def _value(self, value: Any, declared: str) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, list | tuple):
            return [self._value(each, "") for each in value]
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            if not (value.isprintable() and 0 < len(value) <= MOST_TEXT):
                raise CannotBeWritten("a text that is no word")
            return value
        if isinstance(value, int | float):
            if declared in ("Tensor", "Optional[Tensor]"):
                index = self._numbers.setdefault(repr(value), len(self._numbers))
                return {"number": type(value).__name__, "index": index}
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, torch.device):
            return {"device": value.type}
        for name, kind in _NAMED.items():
            if isinstance(value, kind):
                return {name: str(value).removeprefix("torch.")}
        raise CannotBeWritten(_LEFT_OUT.get(type(value), "an argument of an unknown type"))

    def _tensor(self, tensor: torch.Tensor) -> Written:
        if type(tensor) is not DTensor:
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
                raise CannotBeWritten("a tensor of another subclass")
            return {"local": _layout(tensor.shape, tensor.stride(), tensor.dtype)}
        spec = tensor._spec
        written = {
            "mesh": self._mesh(spec.mesh),
            "placements": [_placement(each) for each in spec.placements],
            **_layout(spec.tensor_meta.shape, spec.tensor_meta.stride, spec.tensor_meta.dtype),
            "requires_grad": tensor.requires_grad,
        }
        usual = DTensorSpec(spec.mesh, spec.placements, spec.tensor_meta)
        if spec.use_strided_shard_as_shard_order != usual.use_strided_shard_as_shard_order:
            raise CannotBeWritten("a strided shard that is no order of shards")
        if spec.shard_order != usual.shard_order:
            raise CannotBeWritten("an order of shards of its own")
        return {"tensor": self._tensors.index(written)}

    def _mesh(self, mesh: DeviceMesh) -> int:
        if mesh not in self._of_mesh:
            written = _mesh(mesh)
            self._of_mesh[mesh] = None if written is None else self._meshes.index(written)
        index = self._of_mesh[mesh]
        if index is None:
            raise CannotBeWritten("a mesh of other ranks, or of ranks in no regular order")
        return index


class _Distinct:
    """What was written so far, each once, by index."""

    def __init__(self) -> None:
        self.held: list[Written] = []
        self._indices: dict[str, int] = {}

    def index(self, written: Written) -> int:
        found = self._indices.setdefault(json.dumps(written), len(self.held))
        if found == len(self.held):
            self.held.append(written)
        return found


def _mesh(mesh: DeviceMesh) -> Written | None:
    """Return a mesh of this rank as rank 0 would see it; None where there is no such mesh."""
    ranks = mesh.mesh
    first = int(ranks.flatten()[0])
    strides = [
        int(ranks.select(dim, 1).flatten()[0]) - first if size > 1 else 1
        for dim, size in enumerate(ranks.shape)
    ]
    regular = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(ranks.shape, strides, strict=True):
        regular = regular.unsqueeze(-1) + torch.arange(size) * stride
    is_regular = torch.equal(regular + first, ranks.long().cpu()) and min(strides) > 0
    if not (is_regular and bool((ranks == dist.get_rank()).any())):
        return None
    names = mesh.mesh_dim_names
    return {
        "shape": list(ranks.shape),
        "strides": strides,
        "names": None if names is None else list(names),
    }


def _layout(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Written:
    if not all(type(size) is int for size in (*shape, *stride)):
        raise CannotBeWritten("a symbolic size")
    return {
        "shape": list(shape),
        "stride": list(stride),
        "dtype": str(dtype).removeprefix("torch."),
    }


def _placement(placement: Placement) -> list[Any]:
    kind = type(placement)
    if kind is Replicate:
        return ["replicate"]
    if kind is Shard:
        return ["shard", placement.dim]
    if kind is Partial:
        return ["partial", placement.reduce_op]
    if kind is _StridedShard and type(placement.split_factor) is int:
        return ["strided", placement.dim, placement.split_factor]
    if kind is _NormPartial and math.isfinite(placement.norm_type):
        return ["norm", placement.norm_type]
    raise CannotBeWritten("a placement with a state of its own")


def described(made: Any) -> list[Written]:
    """Return where the tensors among what an op made lie, in order.

    Raises:
        CannotBeWritten: a placement is none of torch's own.
    """
    return [_described(each) for each in tree_leaves(made) if isinstance(each, torch.Tensor)]


def _described(tensor: torch.Tensor) -> Written:
    placements = None
    if isinstance(tensor, DTensor):
        if not all(type(each).__module__.startswith("torch.") for each in tensor.placements):
            raise CannotBeWritten("a placement with a state of its own")
        placements = list(map(str, tensor.placements))
    return {"placements": placements, **_layout(tensor.shape, tensor.stride(), tensor.dtype)}


def moves_of(redistribution: Redistribution) -> list[list[list[str]]]:
    """Return the inputs that an op moves, as their placements before and after."""
    return [
        [list(map(str, source.placements)), list(map(str, target.placements))]
        for source, target in redistribution.moves
    ]
