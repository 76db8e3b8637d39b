"""The format of captured steps in files: structs that msgspec reads, checks and writes.

A step is a list of distinct calls and their order. Calls refer to the file's lists of meshes,
tensors and results by index. Reading needs no torch.
"""

import math
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from harness.contract import checked, read_captured

MOST_TEXT = 100

_MOST_CALLS = 2_000_000
_MOST_ELEMENTS = 2**50

Text = Annotated[str, Meta(min_length=1, max_length=MOST_TEXT)]
_Name = Annotated[str, Meta(max_length=MOST_TEXT, pattern=r"\A[A-Za-z0-9_]+\Z")]
_OpName = Annotated[str, Meta(max_length=MOST_TEXT, pattern=r"\A(?a:\w+\.\w+\.\w+)\Z")]
_Ranks = Annotated[int, Meta(ge=1, le=2**17)]
_Index = Annotated[int, Meta(ge=0, lt=_MOST_CALLS)]
_Shape = Annotated[tuple[Annotated[int, Meta(ge=0, le=2**40)], ...], Meta(max_length=32)]
_Stride = Annotated[tuple[Annotated[int, Meta(ge=0, le=_MOST_ELEMENTS)], ...], Meta(max_length=32)]
_PerMeshDim = Annotated[tuple[_Ranks, ...], Meta(min_length=1, max_length=8)]
_Integer = Annotated[int, Meta(gt=-(2**63), lt=2**63 - 1)]
_Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


class MeshRecord(Struct, frozen=True):
    """The mesh of rank 0: its shape, and the distance in ranks and the name of each dimension."""

    shape: _PerMeshDim
    strides: _PerMeshDim
    names: tuple[Text, ...] | None = None

    @property
    def last_rank(self) -> int:
        """The mesh's highest rank."""
        return sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))

    def __post_init__(self) -> None:
        ndim, names = len(self.shape), self.names
        if len(self.strides) != ndim:
            raise ValueError("'strides' must have an entry for each dimension of 'shape'")
        reached = 1  # 1 + the largest rank so far: a smaller stride might reach a rank twice
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size > 1 and stride < reached:
                raise ValueError("a mesh must hold no rank twice")
            reached += stride * (size - 1)
        if names is not None and (
            not len(names) == len(set(names)) == ndim or not "".join(names).isprintable()
        ):
            raise ValueError("'names' must name each dimension of the mesh once")


class PlacementRecord(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A placement as a JSON list: a word for its class, then the attributes of torch's object."""


class ReplicateRecord(PlacementRecord, frozen=True, tag="replicate"):
    """A `Replicate` placement, as `["replicate"]`."""


class ShardRecord(PlacementRecord, frozen=True, tag="shard"):
    """A `Shard` placement, as `["shard", dim]`."""

    dim: _Index


class StridedShardRecord(PlacementRecord, frozen=True, tag="strided"):
    """A `_StridedShard` placement, as `["strided", dim, split_factor]`."""

    dim: _Index
    split_factor: Annotated[int, Meta(ge=1, lt=2**20)]


class PartialRecord(PlacementRecord, frozen=True, tag="partial"):
    """A `Partial` placement, such as `["partial", "sum"]`."""

    reduce_op: Literal["sum", "avg", "product", "max", "min"]


class NormPartialRecord(PlacementRecord, frozen=True, tag="norm"):
    """A `_NormPartial` placement, such as `["norm", 2.0]`."""

    norm_type: Annotated[int, Meta(gt=0, lt=10**6)] | Annotated[float, Meta(gt=0, lt=10**6)]


_Placement = ReplicateRecord | ShardRecord | StridedShardRecord | PartialRecord | NormPartialRecord


class LocalRecord(Struct, frozen=True):
    """A plain tensor, not a DTensor: its shape and stride in elements, and its type."""

    shape: _Shape
    stride: _Stride
    dtype: _Name

    def __post_init__(self) -> None:
        if len(self.stride) != len(self.shape):
            raise ValueError("'stride' must have an entry for each dimension of 'shape'")
        steps = zip(self.shape, self.stride, strict=True)
        reach = sum(max(size - 1, 0) * step for size, step in steps)
        if max(math.prod(self.shape), reach) > _MOST_ELEMENTS:
            raise ValueError(f"a tensor must have at most {_MOST_ELEMENTS:,} elements")


class TensorRecord(LocalRecord, frozen=True):
    """A DTensor: global shape and stride in elements, type, index of its mesh, and placements."""

    mesh: _Index
    placements: tuple[_Placement, ...]
    requires_grad: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(getattr(part, "dim", -1) >= len(self.shape) for part in self.placements):
            raise ValueError("a shard must be along a dimension of 'shape'")


class ResultRecord(LocalRecord, frozen=True):
    """A result of an op, with its placements as torch prints them, or None for a plain tensor."""

    placements: tuple[Text, ...] | None


class ArgumentRecord(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An argument that has no JSON type. Either one field is set, or both `number` and `index`.

    `number` is the type of a number in a tensor's place; `float_` is a number that is not finite.
    """

    tensor: _Index | None = None  # a DTensor
    local: LocalRecord | None = None
    number: Literal["int", "float"] | None = None
    index: _Index | None = None  # the same for equal numbers
    float_: Literal["inf", "-inf", "nan"] | None = msgspec.field(default=None, name="float")
    dtype: _Name | None = None
    layout: _Name | None = None
    memory_format: _Name | None = None
    device: _Name | None = None

    def __post_init__(self) -> None:
        names = {name for name in self.__struct_fields__ if getattr(self, name) is not None}
        if len(names - {"index"}) != 1 or ("number" in names) != ("index" in names):
            raise ValueError("an argument must have one field, or number and index")


_Plain = None | bool | _Integer | _Finite | Text | ArgumentRecord
_Value = _Plain | list[_Plain | list[_Plain | list[_Plain | list[_Plain]]]]
Move = tuple[tuple[Text, ...], tuple[Text, ...]]
"""The placements of an input before and after, as texts."""


class CallRecord(Struct, frozen=True):
    """A call of an op: its arguments, the indices of its results, and the moves of its inputs."""

    op: _OpName
    args: list[_Value]
    kwargs: dict[str, _Value]
    results: tuple[_Index, ...] = ()
    moves: tuple[Move, ...] = ()

    def arguments(self) -> Iterator[ArgumentRecord]:
        """Yield the arguments that have no JSON type, such as tensors, also those in lists."""
        waiting: list[Any] = [*self.args, *self.kwargs.values()]
        while waiting:
            value = waiting.pop()
            if isinstance(value, list):
                waiting += value
            elif isinstance(value, ArgumentRecord):
                yield value


class StepRecord(Struct, frozen=True):
    """A recorded step: indices of calls in `sequence`, and counts of omitted calls by reason."""

    ranks: _Ranks  # in the world of the recorded process
    ranks_per_host: _Ranks  # as torch counted them there, for its model of collectives
    meshes: Annotated[tuple[MeshRecord, ...], Meta(max_length=64)]
    tensors: tuple[TensorRecord, ...]
    results: tuple[ResultRecord, ...]
    calls: tuple[CallRecord, ...]
    sequence: Annotated[tuple[_Index, ...], Meta(min_length=1, max_length=_MOST_CALLS)]
    left_out: dict[Text, Annotated[int, Meta(ge=0)]] = {}

    def __post_init__(self) -> None:
        given = chain.from_iterable(call.arguments() for call in self.calls)
        indices = {
            "meshes": [tensor.mesh for tensor in self.tensors],
            "tensors": [value.tensor for value in given if value.tensor is not None],
            "results": chain.from_iterable(call.results for call in self.calls),
            "calls": self.sequence,
        }
        for name, used in indices.items():
            if max(used, default=-1) >= len(getattr(self, name)):
                raise ValueError(f"an index must be below the length of '{name}'")
        if any(mesh.last_rank >= self.ranks for mesh in self.meshes):
            raise ValueError(f"a mesh must have no rank beyond those of the world, {self.ranks}")
        ndims = [len(mesh.shape) for mesh in self.meshes]
        if any(len(tensor.placements) != ndims[tensor.mesh] for tensor in self.tensors):
            raise ValueError("'placements' must have an entry for each dimension of the mesh")
        if not all(map(str.isprintable, self.left_out)):
            raise ValueError("'left_out' must hold reasons without control characters")


def read_step(path: Path) -> StepRecord:
    """Return the captured step in a file; raises UsageError if the file or a value is invalid."""
    return checked(read_captured(path, "dtensor"), StepRecord, str(path))
