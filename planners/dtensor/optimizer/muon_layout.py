"""Locate the parts of sharded matrices, and choose the matrices that are exchanged together."""

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from planners.dtensor.optimizer.muon_owners import Owners, assigned, newton_schulz_flops


class Part(NamedTuple):
    """A rank's part of a matrix: a rectangle, maybe an empty one."""

    rows: slice
    columns: slice

    @property
    def size(self) -> int:
        """The number of elements."""
        rows, columns = self
        return int((rows.stop - rows.start) * (columns.stop - columns.start))


class Matrix(NamedTuple):
    """A matrix and its parts.

    Attributes:
        shape: the rows and columns of the whole matrix.
        parts: the part of each rank of the group.
        copy: the number of each rank's copy. The ranks with the same number have each part once.
    """

    shape: tuple[int, ...]
    parts: tuple[Part, ...]
    copy: tuple[int, ...]


class Bucket(NamedTuple):
    """Matrices that are exchanged together.

    Attributes:
        places: their places among all matrices of the step.
        matrices: the matrices.
        owners: the rank that orthogonalises each.
    """

    places: tuple[int, ...]
    matrices: tuple[Matrix, ...]
    owners: Owners


def group_of(mesh: DeviceMesh) -> Any:
    """Return a process group of all ranks of a mesh; makes one if there is none."""
    if mesh.ndim == 1:
        return mesh.get_group()
    ranks = sorted(mesh.mesh.flatten().tolist())
    if len(ranks) == dist.get_world_size():
        return dist.group.WORLD
    return dist.new_group(ranks, use_local_synchronization=True)


def matrix_of(spec: DTensorSpec, group: Any) -> Matrix | None:
    """Return the parts of a DTensor with these placements; None if they are no rectangles."""
    mesh, size = spec.mesh, spec.mesh.size()
    try:  # a strided shard is a plain one after the later dimensions of the mesh, or unknown
        _, order = spec._normalize_placements_into_shard_order(spec.placements, mesh)
    except ValueError:
        return None
    split = dict(spec.shard_order or order)
    copied = [at for at, of in enumerate(spec.placements) if type(of) is Replicate]
    parts, copy = [Part(slice(0), slice(0))] * size, [0] * size
    coordinates = product(*map(range, mesh.shape))
    for rank, coordinate in zip(mesh.mesh.flatten().tolist(), coordinates, strict=True):
        ranges = []
        for dimension, length in enumerate(spec.shape):
            start = 0
            for at in split.get(dimension, ()):
                length, offset = Shard.local_shard_size_and_offset(
                    length, mesh.shape[at], coordinate[at]
                )
                start += offset
            ranges.append(slice(start, start + length))
        place = dist.get_group_rank(group, rank)
        parts[place] = Part(*ranges)
        for at in copied:
            copy[place] = copy[place] * mesh.shape[at] + coordinate[at]
    return Matrix(tuple(spec.shape), tuple(parts), tuple(copy))


def buckets_of(matrices: Sequence[Matrix], ranks: int, most: int) -> list[Bucket]:
    """Return the matrices in buckets of at most `most` elements for each rank, in the mean.

    A matrix that is larger has a bucket of its own.
    """
    cut: list[list[int]] = [[]]
    elements = 0
    for place, matrix in enumerate(matrices):
        rows, columns = matrix.shape
        if cut[-1] and elements + rows * columns > most * ranks:
            cut.append([])
            elements = 0
        cut[-1].append(place)
        elements += rows * columns
    return [_bucket(places, matrices, ranks) for places in cut if places]


def _bucket(places: Sequence[int], matrices: Sequence[Matrix], ranks: int) -> Bucket:
    chosen = tuple(matrices[place] for place in places)
    costs = [newton_schulz_flops(*matrix.shape) for matrix in chosen]
    return Bucket(tuple(places), chosen, assigned(costs, ranks))
