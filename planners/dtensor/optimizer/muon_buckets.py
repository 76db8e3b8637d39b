"""Locate the parts of sharded matrices, and say who sends which part to whom, bucket by bucket."""

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, product
from typing import Any, NamedTuple

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from planners.dtensor.optimizer.muon_owners import Owners, assigned, newton_schulz_flops

Part = tuple[slice, slice]
"""The rows and columns of a rank's part of a matrix; both have a start and a stop."""

Sent = tuple[int, Part]
"""The place of a matrix among all of the step, and a part of it."""


class Matrix(NamedTuple):
    """A matrix and its parts.

    Attributes:
        shape: the rows and columns of the whole matrix.
        parts: the part of each rank, in ascending order, maybe an empty one.
        copy: the number of each rank's copy. The ranks with the same number have each part once.
    """

    shape: tuple[int, ...]
    parts: tuple[Part, ...]
    copy: tuple[int, ...]


class AllToAll(NamedTuple):
    """The parts that this rank sends and receives in one all-to-all.

    Attributes:
        sent: the parts that it sends, in the order of the receiving ranks.
        received: the parts that it receives, in the order of the sending ranks.
        sent_sizes: the number of elements for each rank.
        received_sizes: the number of elements from each rank.
    """

    sent: Sequence[Sent]
    received: Sequence[Sent]
    sent_sizes: list[int]
    received_sizes: list[int]


class Bucket(NamedTuple):
    """Matrices that are exchanged together.

    Attributes:
        owners: the rank that orthogonalises each.
        owned: the places and shapes of those that this rank orthogonalises.
        there: moves the parts to the owners.
        back: moves the parts of the results back.
    """

    owners: Owners
    owned: dict[int, tuple[int, ...]]
    there: AllToAll
    back: AllToAll


def group_of(mesh: DeviceMesh) -> Any:
    """Return a process group of a mesh's ranks in ascending order; makes one if there is none."""
    ranks, world = sorted(mesh.mesh.flatten().tolist()), dist.group.WORLD
    group = mesh.get_group() if mesh.ndim == 1 else world
    is_of_mesh = dist.get_process_group_ranks(group) == ranks
    return group if is_of_mesh else _made_group(tuple(ranks), world)


@lru_cache  # a group has a communicator, and torch keeps it: one for all optimizers and switches
def _made_group(ranks: tuple[int, ...], _: Any) -> Any:
    return dist.new_group(ranks, use_local_synchronization=True)


@lru_cache  # the matrices of a model have few shapes and placements
def matrix_of(spec: DTensorSpec) -> Matrix | None:
    """Return the parts of a DTensor with these placements; None if they are no rectangles."""
    mesh, size = spec.mesh, spec.mesh.size()
    try:  # a strided shard is a plain one after the later dimensions of the mesh, or unknown
        _, order = spec._normalize_placements_into_shard_order(spec.placements, mesh)
    except ValueError:
        return None
    split = dict(spec.shard_order or order)
    copied = [at for at, of in enumerate(spec.placements) if type(of) is Replicate]
    parts, copy = [(slice(0), slice(0))] * size, [0] * size
    coordinates = product(*map(range, mesh.shape))
    ranks = zip(mesh.mesh.flatten().tolist(), coordinates, strict=True)
    for place, (_, coordinate) in enumerate(sorted(ranks)):
        ranges = []
        for dimension, length in enumerate(spec.shape):
            start = 0
            for at in split.get(dimension, ()):
                length, offset = Shard.local_shard_size_and_offset(
                    length, mesh.shape[at], coordinate[at]
                )
                start += offset
            ranges.append(slice(start, start + length))
        parts[place] = (ranges[0], ranges[1])
        for at in copied:
            copy[place] = copy[place] * mesh.shape[at] + coordinate[at]
    return Matrix(tuple(spec.shape), tuple(parts), tuple(copy))


@lru_cache  # the matrices of a group are the same in each step, as a rule
def buckets_of(
    specs: tuple[DTensorSpec, ...], rank: int, ranks: int, most: int
) -> Sequence[Bucket]:
    """Return the buckets of DTensors that `matrix_of` knows, as `cut_in_buckets` does."""
    matrices = [matrix for spec in specs if (matrix := matrix_of(spec)) is not None]
    return cut_in_buckets(matrices, rank, ranks, most)


def cut_in_buckets(
    matrices: Sequence[Matrix], rank: int, ranks: int, most: int
) -> Sequence[Bucket]:
    """Return the matrices in buckets of at most `most` elements for each rank, in the mean.

    A matrix that is larger has a bucket of its own. No rank owns more than twice `most` of a
    bucket, or twice its largest matrix. `rank` is this rank of the group.
    """
    elements = [math.prod(matrix.shape) for matrix in matrices]
    cut: list[list[int]] = []
    room = 0
    for place, size in enumerate(elements):
        if not cut or size > room:
            cut.append([])
            room = most * ranks
        cut[-1].append(place)
        room -= size
    buckets = []
    while cut:
        places = cut.pop(0)
        owners = assigned([newton_schulz_flops(*matrices[at].shape) for at in places], ranks)
        owned = Counter[int]()
        for at, owner in zip(places, owners.ranks, strict=True):
            owned[owner] += elements[at]
        if max(owned.values()) > 2 * max(most, *(elements[at] for at in places)):
            half = len(places) // 2  # flat matrices have few flops for their elements
            cut = [places[:half], places[half:], *cut]
        else:
            buckets.append(_bucket(places, owners, matrices, rank, ranks))
    return buckets


def _bucket(
    places: Sequence[int], owners: Owners, matrices: Sequence[Matrix], rank: int, ranks: int
) -> Bucket:
    """Return what this rank exchanges; each part comes from the owner's copy alone."""
    owned: list[list[tuple[int, Matrix]]] = [[] for _ in range(ranks)]
    for at, owner in zip(places, owners.ranks, strict=True):
        owned[owner].append((at, matrices[at]))

    def parts(of: int, owner: int) -> list[Sent]:
        return [(at, matrix.parts[of]) for at, matrix in owned[owner]]

    def parts_of_copy(of: int, owner: int) -> list[Sent]:
        matrices = owned[owner]
        return [(at, m.parts[of]) for at, m in matrices if m.copy[of] == m.copy[owner]]

    every = range(ranks)
    return Bucket(
        owners,
        {at: matrix.shape for at, matrix in owned[rank]},
        _all_to_all(
            [parts_of_copy(rank, to) for to in every], [parts_of_copy(of, rank) for of in every]
        ),
        _all_to_all([parts(to, rank) for to in every], [parts(rank, of) for of in every]),
    )


def _all_to_all(sent: Sequence[Sequence[Sent]], received: Sequence[Sequence[Sent]]) -> AllToAll:
    """Return the all-to-all of the parts for each rank and of those from each rank."""
    sizes = [
        [sum(size_of(part) for _, part in of_rank) for of_rank in of_ranks]
        for of_ranks in (sent, received)
    ]
    return AllToAll(list(chain.from_iterable(sent)), list(chain.from_iterable(received)), *sizes)


def size_of(part: Part) -> int:
    """Return the number of elements of a part."""
    rows, columns = part
    return int((rows.stop - rows.start) * (columns.stop - columns.start))
