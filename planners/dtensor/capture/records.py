"""Convert ops on DTensors to records of a step file, and records to placements and meshes.

A tensor's record has its mesh, placements, global shape, stride and type, but no values. A number
in a tensor's place is also a value: its record has only its type, and an index that equal numbers
share.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from msgspec.structs import replace
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh, _mesh_resources
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._ops._math_ops import _NormPartial
from torch.distributed.tensor.placement_types import _StridedShard
from torch.utils._pytree import tree_leaves

from harness.contract import Names
from planners.dtensor import step_file
from planners.dtensor.decision import Redistribution
from planners.dtensor.step_file import ArgumentRecord, CallRecord, Move, ResultRecord, StepRecord

TYPES = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}
"""The types of arguments that are written by their names in torch."""

_PLACEMENTS: Mapping[type[Placement], type[step_file.PlacementRecord]] = {
    Replicate: step_file.ReplicateRecord,
    Shard: step_file.ShardRecord,
    _StridedShard: step_file.StridedShardRecord,
    Partial: step_file.PartialRecord,
    _NormPartial: step_file.NormPartialRecord,
}
_CLASSES = {record: kind for kind, record in _PLACEMENTS.items()}

_LEFT_OUT = {
    torch.SymInt: "a symbolic size",
    torch.SymFloat: "a symbolic number",
    torch.SymBool: "a symbolic truth value",
    torch.Generator: "a generator of random numbers",
    complex: "a complex number",
}


class CannotBeWritten(ValueError):
    """An op cannot be recorded. The message is a general reason, without details of the op."""


class CallRecords:
    """The distinct calls of a step, and the meshes, tensors and results that they refer to."""

    def __init__(self) -> None:
        self._distinct: dict[type, dict[bytes, tuple[int, Any]]] = defaultdict(dict)
        self._numbers: dict[str, int] = {}
        self._of_mesh: dict[DeviceMesh, int | None] = {}

    def given(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallRecord:
        """Return a record of an op's arguments; call this before the op runs. Raises ValueError."""
        declared = op._schema.arguments
        types = {argument.name: str(argument.type) for argument in declared}
        return CallRecord(
            ".".join((op.namespace, op._schema.name.partition("::")[2], op._overloadname)),
            [
                self._value(value, types[argument.name])
                for argument, value in zip(declared, args, strict=False)
            ],
            {name: self._value(value, types[name]) for name, value in kwargs.items()},
        )

    def index(self, given: CallRecord, made: Any, moved: Sequence[Redistribution]) -> int:
        """Add results and moves to a call's record, and return its index; raises ValueError."""
        results = tuple(map(self._index, result_records(made)))
        moves = tuple(move for redistribution in moved for move in moves_of(redistribution))
        return self._index(replace(given, results=results, moves=moves))

    def step(
        self, names: Names, sequence: Sequence[int], left_out: Mapping[str, int]
    ) -> StepRecord:
        """Return the record of a step of these calls; `names` converts names of mesh dimensions."""
        device = next(iter(self._of_mesh)).device_type
        meshes = self._records(step_file.MeshRecord)
        written = names.written(name for mesh in meshes for name in mesh.names or ())
        return StepRecord(
            dist.get_world_size(),
            max(1, _mesh_resources.num_devices_per_host(device)),
            tuple(
                replace(mesh, names=mesh.names and tuple(written[name] for name in mesh.names))
                for mesh in meshes
            ),
            self._records(step_file.TensorRecord),
            self._records(ResultRecord),
            self._records(CallRecord),
            tuple(sequence),
            dict(left_out),
        )

    def _records(self, kind: type) -> tuple[Any, ...]:
        return tuple(record for _, record in self._distinct[kind].values())

    def _index(self, record: Any) -> int:
        """Return the index of a record among those of its class, and add it if it is new."""
        known = self._distinct[type(record)]
        return known.setdefault(msgspec.json.encode(record), (len(known), record))[0]

    def _value(self, value: Any, declared: str) -> Any:
        match value:
            case torch.Tensor():
                return self._tensor(value)
            case list() | tuple():
                return [self._value(element, "") for element in value]
            case None | bool():
                return value
            case str():
                if not (value.isprintable() and 0 < len(value) <= step_file.MOST_TEXT):
                    raise CannotBeWritten("a text that is no word")
                return value
            case int() | float() if declared in ("Tensor", "Optional[Tensor]"):
                kind: Any = type(value).__name__
                index = self._numbers.setdefault(repr(value), len(self._numbers))
                return ArgumentRecord(number=kind, index=index)
            case int() | float():
                odd: Any = str(value)
                return value if math.isfinite(value) else ArgumentRecord(float_=odd)
            case torch.device():
                return ArgumentRecord(device=value.type)
        for name, kind in TYPES.items():
            if isinstance(value, kind):
                named: dict[str, Any] = {name: _name(value)}
                return ArgumentRecord(**named)
        raise CannotBeWritten(_LEFT_OUT.get(type(value), "an argument of an unknown type"))

    def _tensor(self, tensor: torch.Tensor) -> ArgumentRecord:
        if type(tensor) is not DTensor:
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
                raise CannotBeWritten("a tensor of another subclass")
            return ArgumentRecord(local=step_file.LocalRecord(*_layout(tensor)))
        spec = tensor._spec
        record = step_file.TensorRecord(
            *_layout(spec.tensor_meta),
            self._mesh(spec.mesh),
            tuple(map(self._placement, spec.placements)),
            tensor.requires_grad,
        )
        usual = DTensorSpec(spec.mesh, spec.placements, spec.tensor_meta)
        if spec.use_strided_shard_as_shard_order != usual.use_strided_shard_as_shard_order:
            raise CannotBeWritten("a strided shard that is no order of shards")
        if spec.shard_order != usual.shard_order:
            raise CannotBeWritten("an order of shards of its own")
        return ArgumentRecord(tensor=self._index(record))

    @staticmethod
    def _placement(placement: Placement) -> Any:
        try:
            return msgspec.convert(placement, _PLACEMENTS[type(placement)], from_attributes=True)
        except (KeyError, msgspec.ValidationError):
            raise CannotBeWritten("a placement with a state of its own") from None

    def _mesh(self, mesh: DeviceMesh) -> int:
        if mesh not in self._of_mesh:
            record = _mesh_record(mesh)
            self._of_mesh[mesh] = None if record is None else self._index(record)
        index = self._of_mesh[mesh]
        if index is None:
            raise CannotBeWritten("a mesh of other ranks, or of ranks in no regular order")
        return index


def _mesh_record(mesh: DeviceMesh) -> step_file.MeshRecord | None:
    """Return a mesh's record, as if it began at rank 0; None if irregular or without this rank."""
    ranks, names = mesh.mesh.cpu(), mesh.mesh_dim_names
    first = int(ranks.flatten()[0])
    strides = tuple(
        int(ranks.select(dim, 1).flatten()[0]) - first if size > 1 else 1
        for dim, size in enumerate(ranks.shape)
    )
    regular = regular_ranks(ranks.shape, strides) + first
    if torch.equal(regular, ranks.long()) and min(strides) > 0 and dist.get_rank() in regular:
        with suppress(ValueError):
            return step_file.MeshRecord(tuple(ranks.shape), strides, names and tuple(names))
    return None


def regular_ranks(shape: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """Return the ranks of a mesh that starts at rank 0; `strides` are the distances in ranks."""
    ranks = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(shape, strides, strict=True):
        ranks = ranks.unsqueeze(-1) + torch.arange(size) * stride
    return ranks


def _name(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _layout(tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Return shape, stride and type of a tensor or tensor meta; ValueError for symbolic sizes."""
    stride = tensor.stride() if isinstance(tensor, torch.Tensor) else tensor.stride
    if not all(type(size) is int for size in (*tensor.shape, *stride)):
        raise CannotBeWritten("a symbolic size")
    return tuple(tensor.shape), tuple(stride), _name(tensor.dtype)


def placement_of(record: step_file.PlacementRecord) -> Placement:
    """Return the placement that a record describes."""
    return _CLASSES[type(record)](**msgspec.structs.asdict(record))


def result_records(made: Any) -> list[ResultRecord]:
    """Return records of the tensors among an op's results, in order; raises ValueError."""
    records = []
    for tensor in (leaf for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor)):
        placements = tensor.placements if isinstance(tensor, DTensor) else None
        kinds = map(type, placements or ())
        if not all(kind.__module__.startswith("torch.") for kind in kinds):
            raise CannotBeWritten("a placement with a state of its own")
        written = None if placements is None else tuple(map(str, placements))
        records.append(ResultRecord(*_layout(tensor), written))
    return records


def moves_of(redistribution: Redistribution) -> tuple[Move, ...]:
    """Return, for each moved input of an op, its placements before and after, as texts."""
    return tuple(
        (tuple(map(str, source.placements)), tuple(map(str, target.placements)))
        for source, target in redistribution.moves
    )
