"""ColossalAI's sharding specs: one object per dimension, and dictionaries of differences.

A difference is the distance, in points, between two shardings of a dimension. The search goes to
the smallest one. Source: hpcaitech/ColossalAI v0.4.1, colossalai/tensor/sharding_spec.py.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from typing import ClassVar

from planners.dimspec.conversion.partition import Mesh, Partition, check_partition

GATHER_POINTS = 20
SHARD_POINTS = 5
STEP_POINTS = 6
"""Points that each step after the first adds."""

Differences = dict[tuple[str, str], int]

_AXES: Mapping[str, Sequence[int]] = {"R": (), "S0": (0,), "S1": (1,), "S01": (0, 1)}
NAMES = tuple(_AXES)
"""The shardings of a dimension in the dictionary: those of a mesh with two axes."""


def difference_points(source: Sequence[int], target: Sequence[int]) -> int:
    """Return the points from one sharding of a dimension to another, given as increasing mesh axes.

    A conversion keeps their common prefix, gathers the source's other axes and splits the target's.
    """
    if source == target:
        return 0
    kept = 0
    for mine, theirs in zip(source, target, strict=False):
        if mine != theirs:
            break
        kept += 1
    gathers, shards = len(source) - kept, len(target) - kept
    return gathers * GATHER_POINTS + shards * SHARD_POINTS + (gathers + shards - 1) * STEP_POINTS


def build_differences() -> Differences:
    """Return a dictionary of the points between any two shardings in NAMES."""
    return {(a, b): difference_points(_AXES[a], _AXES[b]) for a in NAMES for b in NAMES}


def build_copied_differences() -> Differences:
    """Build the same dictionary with deep-copied keys, as before hpcaitech/ColossalAI#5446."""
    differences: Differences = {}
    for source in NAMES:
        for target in NAMES:
            key = (deepcopy(source), deepcopy(target))
            differences[key] = difference_points(_AXES[source], _AXES[target])
    return differences


class DimSpec:
    """The sharding of one dimension by the mesh axes `shard_list`; replicated if it is empty."""

    def __init__(self, shard_list: list[int]) -> None:
        self.shard_list = shard_list
        self.is_replica = not shard_list

    def __repr__(self) -> str:
        if self.is_replica:
            return "R"
        name = "S"
        for axis in self.shard_list:
            name += str(axis)
        return name

    @property
    def differences(self) -> Differences:
        """The dictionary of points between any two shardings."""
        raise NotImplementedError

    def difference(self, other: "DimSpec") -> int:
        """Return the points from this sharding to another; raises KeyError if not in NAMES."""
        return self.differences[str(self), str(other)]


class EagerDimSpec(DimSpec):
    """Each object builds its own dictionary in its constructor."""

    def __init__(self, shard_list: list[int]) -> None:
        super().__init__(shard_list)
        self._differences = build_copied_differences()

    @property
    def differences(self) -> Differences:
        """The dictionary that this object built."""
        return self._differences


class LazyDimSpec(DimSpec):
    """Each object builds its own dictionary on its first call of `difference`."""

    @cached_property
    def differences(self) -> Differences:
        """The dictionary of this object; #5446 meant to build it once per class."""
        return build_differences()


class SharedDimSpec(DimSpec):
    """The class builds one dictionary, and all objects share it."""

    _shared: ClassVar[Differences | None] = None

    @property
    def differences(self) -> Differences:
        """The dictionary that all objects share."""
        if SharedDimSpec._shared is None:
            SharedDimSpec._shared = build_differences()
        return SharedDimSpec._shared

    @classmethod
    def forgotten(cls) -> "type[SharedDimSpec]":
        """Delete the shared dictionary, and return the class; the next use builds it again."""
        cls._shared = None
        return cls


class ShardingSpec:
    """The sharding of a tensor of `shape` (elements) over a mesh: one DimSpec per dimension."""

    def __init__(
        self,
        mesh: Mesh,
        shape: tuple[int, ...],
        dim_partition: dict[int, list[int]],
        dim_spec: type[DimSpec],
    ) -> None:
        """Raise PartitionError if `dim_partition` cannot shard the tensor."""
        self.mesh = mesh
        self.shape = shape
        self.dim_partition = dim_partition
        self.dim_spec = dim_spec
        replica = dim_spec([])
        self.sharding_sequence = [replica] * len(shape)
        for dim, axes in dim_partition.items():
            if dim < len(shape):
                self.sharding_sequence[dim] = dim_spec(axes)
        check_partition(mesh, shape, self.partition)

    @property
    def partition(self) -> Partition:
        """The sharded dimensions with their mesh axes, in the order of their sharding."""
        return tuple((dim, tuple(axes)) for dim, axes in self.dim_partition.items())

    def difference(self, other: "ShardingSpec") -> int:
        """Return the points from this spec to another, summed over the dimensions."""
        return sum(
            mine.difference(theirs)
            for mine, theirs in zip(self.sharding_sequence, other.sharding_sequence, strict=True)
        )

    def local_shape(self) -> list[int]:
        """Return the shape of one device's shard, in elements."""
        local = list(self.shape)
        for dim, axes in self.dim_partition.items():
            local[dim] //= self.mesh.devices(axes)
        return local

    def __repr__(self) -> str:
        return str(self.sharding_sequence)
