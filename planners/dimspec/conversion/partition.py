"""Device meshes, and partitions: the mesh axes that shard each dimension of a tensor."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from harness.contract import UsageError

MOST_MESH_AXES = 4
"""Most axes of a mesh; more would make too many layouts."""

Partition = tuple[tuple[int, tuple[int, ...]], ...]
"""Pairs of a sharded dimension and its mesh axes; their order breaks ties of the search."""


class PartitionError(UsageError):
    """A partition does not fit the tensor or the mesh."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """A device mesh: shape, and per axis the latency and cost per element, in cost units."""

    shape: tuple[int, ...]
    alpha: tuple[float, ...]
    beta: tuple[float, ...]

    @classmethod
    def of(cls, *shape: int) -> "Mesh":
        """Return a mesh with latency 1 and cost per element 1 on every axis."""
        return cls(shape, (1.0,) * len(shape), (1.0,) * len(shape))

    def devices(self, axes: Iterable[int]) -> int:
        """Return the product of the sizes of `axes`."""
        return math.prod(self.shape[axis] for axis in axes)

    def __str__(self) -> str:
        return "x".join(map(str, self.shape))


def spec_name(axes: Iterable[int]) -> str:
    """Return the name of a dimension's sharding: `R` if replicated, else e.g. `S01`."""
    return "S" + text if (text := "".join(map(str, axes))) else "R"


def sequence_name(rank: int, partition: Partition) -> str:
    """Return the name of a tensor's sharding, e.g. `[S0, R, R]`."""
    held = dict(partition)
    return f"[{', '.join(spec_name(held.get(dim, ())) for dim in range(rank))}]"


def local_elements(mesh: Mesh, shape: Sequence[int], partition: Partition) -> int:
    """Return the number of elements in one device's shard."""
    local = list(shape)
    for dim, axes in partition:
        local[dim] //= mesh.devices(axes)
    return math.prod(local)


def check_partition(mesh: Mesh, shape: Sequence[int], partition: Partition) -> None:
    """Raise PartitionError if `partition` cannot shard a tensor of `shape` (elements)."""
    used: set[int] = set()
    for _, axes in partition:
        for axis in axes:
            if axis in used:
                raise PartitionError(f"{_text(partition)} uses mesh axis {axis} twice.")
            used.add(axis)
    for dim, _ in partition:
        if not 0 <= dim < len(shape):
            raise PartitionError(
                f"{_text(partition)} names dimension {dim} of a tensor that has {len(shape)}, "
                "counted from 0."
            )
    for dim, axes in partition:
        if shape[dim] % (devices := mesh.devices(axes)):
            raise PartitionError(
                f"{_text(partition)} shares dimension {dim}, of size {shape[dim]}, between "
                f"{devices} devices, which do not divide it."
            )


def checked_partition(
    mesh: Mesh, shape: Sequence[int], pairs: Iterable[tuple[int, Sequence[int]]]
) -> Partition:
    """Return a partition with dimensions counted from 0; raises PartitionError if invalid."""
    rank = len(shape)
    partition = tuple((dim + rank if -rank <= dim < 0 else dim, tuple(axes)) for dim, axes in pairs)
    for dim, axes in partition:
        for axis in axes:
            if not 0 <= axis < len(mesh.shape):
                raise PartitionError(
                    f"{_text(partition)} names mesh axis {axis}, and mesh {mesh} has "
                    f"{len(mesh.shape)}, counted from 0."
                )
        if not axes:
            raise PartitionError(f"{_text(partition)} names dimension {dim} without mesh axes.")
    check_partition(mesh, shape, partition)
    if len(dict(partition)) < len(partition):
        raise PartitionError(f"{_text(partition)} names a dimension twice.")
    for dim, axes in partition:
        if list(axes) != sorted(axes):
            raise PartitionError(
                f"{_text(partition)} shards dimension {dim} by mesh axes in the order "
                f"{', '.join(map(str, axes))}; a conversion knows rising axes only."
            )
    return partition


def all_partitions(mesh: Mesh, shape: Sequence[int]) -> Iterator[Partition]:
    """Yield every partition that divides the tensor, dimensions and axes in increasing order."""
    for dims in product((None, *range(len(shape))), repeat=len(mesh.shape)):
        sharded = sorted({dim for dim in dims if dim is not None})
        partition = tuple(
            (dim, tuple(axis for axis, held in enumerate(dims) if held == dim)) for dim in sharded
        )
        if all(shape[dim] % mesh.devices(axes) == 0 for dim, axes in partition):
            yield partition


def _text(partition: Partition) -> str:
    pairs = ", ".join(f"{dim}: {list(axes)}" for dim, axes in partition)
    return f"Partition {{{pairs}}}"
