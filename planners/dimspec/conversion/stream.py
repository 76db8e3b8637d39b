"""Streams: sequences of conversion queries, recorded, enumerated or drawn at random."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from planners.dimspec.conversion.costs import Cost
from planners.dimspec.conversion.partition import Mesh, Partition, all_partitions


class Query(NamedTuple):
    """A request to convert a tensor of `shape` (elements) from `source` to `target`."""

    mesh: Mesh
    shape: tuple[int, ...]
    source: Partition
    target: Partition


class RecordedAnswer(NamedTuple):
    """ColossalAI's answer to a query: names of the specs and patterns, and the cost."""

    path: tuple[str, ...]
    patterns: tuple[str, ...]
    cost: Cost


@dataclass(frozen=True)
class Stream:
    """Distinct queries, and the calls in order, as query indices; each occurs at least once."""

    queries: tuple[Query, ...]
    sequence: Sequence[int]  # indices of queries
    recorded: tuple[RecordedAnswer, ...] | None = None  # an answer per query, if all are known
    left_out: int = 0  # calls that the mesh or the recording does not allow

    @cached_property
    def specs(self) -> dict[tuple[Mesh, tuple[int, ...], Partition], int]:
        """The distinct source and target specs as (mesh, shape, partition), numbered from 0."""
        ends = ((*query[:2], end) for query in self.queries for end in query[2:])
        return {spec: number for number, spec in enumerate(dict.fromkeys(ends))}

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """For each query, the numbers in `specs` of its source and its target."""
        specs = self.specs
        return [
            (specs[mesh, shape, source], specs[mesh, shape, target])
            for mesh, shape, source, target in self.queries
        ]

    @property
    def meshes(self) -> str:
        """The mesh of the queries as text, e.g. `2x4`, or the number of meshes."""
        held = list(dict.fromkeys(str(query.mesh) for query in self.queries))
        return held[0] if len(held) == 1 else f"{len(held)} meshes"


def once_each(queries: Iterable[Query]) -> Stream:
    """Return a stream with every query once, in the given order."""
    held = tuple(queries)
    return Stream(held, range(len(held)))


def is_possible(mesh: Mesh, query: Query) -> bool:
    """Whether the mesh has all axes of the query's partitions, and they divide its tensor."""
    return all(
        axes[-1] < len(mesh.shape) and query.shape[dim] % mesh.devices(axes) == 0
        for partition in (query.source, query.target)
        for dim, axes in partition
    )


def all_pairs(mesh: Mesh, shape: tuple[int, ...]) -> Iterator[Query]:
    """Yield a query for every pair of partitions of a tensor, equal ones included."""
    partitions = list(all_partitions(mesh, shape))
    for source in partitions:
        for target in partitions:
            yield Query(mesh, shape, source, target)


_TENSORS = (
    ((64, 64, 64, 64), (2, 2)),
    ((512, 3, 32, 32), (2, 2)),
    ((128, 256, 56, 56), (2, 4)),
    ((8, 12, 128, 64), (2, 4)),
)
# Latencies of a network and of a host, and 4 bytes at 25 and at 300 GB/s, all in seconds.
_LATENCIES = (2e-5, 5e-6)
_SECONDS_PER_ELEMENT = (4 / 25e9, 4 / 300e9)


def batch_of_eight() -> Iterator[Query]:
    """Yield `all_pairs` of four tensors, each with unit costs and with costs in seconds."""
    for shape, mesh_shape in _TENSORS:
        for mesh in (Mesh.of(*mesh_shape), Mesh(mesh_shape, _LATENCIES, _SECONDS_PER_ELEMENT)):
            yield from all_pairs(mesh, shape)


RANDOM_MESHES = ((2, 2), (2, 4), (4, 2), (1, 8), (3, 2), (8,))
_SIZES = (1, 2, 3, 4, 6, 7, 8, 12, 15, 16, 24, 30, 64, 96, 100, 224)


def random_queries(count: int, seed: int) -> Iterator[Query]:
    """Yield `count` random queries, drawn by random.Random(seed).

    Mesh, costs, rank (1 to 6), sizes, partitions and the order of their dimensions are random.
    """
    rng = random.Random(seed)
    for _ in range(count):
        mesh_shape = rng.choice(RANDOM_MESHES)
        ndim = len(mesh_shape)
        alpha = tuple(rng.choice((1.0, 2e-5, rng.random())) for _ in range(ndim))
        beta = tuple(rng.choice((1.0, 1e-9, rng.random())) for _ in range(ndim))
        mesh = Mesh(mesh_shape, alpha, beta)
        shape = tuple(rng.choice(_SIZES) for _ in range(rng.randint(1, 6)))
        partitions = list(all_partitions(mesh, shape))
        source, target = (
            tuple(rng.sample(chosen, len(chosen)))
            for chosen in (rng.choice(partitions), rng.choice(partitions))
        )
        yield Query(mesh, shape, source, target)
