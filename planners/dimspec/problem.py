"""Problems of the dimspec family, built from workloads: streams of conversions, and models."""

import gzip
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from harness.contract import Topology, UpstreamProblem, UsageError, WorkloadSpec
from planners.dimspec import workloads
from planners.dimspec.conversion.steps import Conversion, Cost, Mesh, Partition, all_partitions


class Query(NamedTuple):
    """A request to convert a tensor of `shape` (elements) from `source` to `target`."""

    mesh: Mesh
    shape: tuple[int, ...]
    source: Partition
    target: Partition


class RecordedAnswer(NamedTuple):
    """ColossalAI's answer to a query: names of the shardings, patterns, and the cost."""

    path: tuple[str, ...]
    patterns: tuple[str, ...]
    cost: Cost


@dataclass(frozen=True)
class Stream:
    """Queries, and the calls in order, as query indices; each query occurs at least once."""

    queries: tuple[Query, ...]
    sequence: Sequence[int]  # indices of queries
    recorded: tuple[RecordedAnswer, ...] | None = None  # an answer for each query

    @cached_property
    def specs(self) -> dict[tuple[Mesh, tuple[int, ...], Partition], int]:
        """The distinct sources and targets as (mesh, shape, partition), numbered from 0."""
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
        meshes = list({str(query.mesh) for query in self.queries})
        return meshes[0] if len(meshes) == 1 else f"{len(meshes)} meshes"


def build(spec: WorkloadSpec, topology: Topology | None) -> Stream | UpstreamProblem:
    """Return the problem of a workload; raises UsageError for an invalid workload or mesh.

    Without a topology, the workload has to give its mesh.
    """
    match asked := workloads.parameters_of(spec):
        case workloads.RecordedParameters():
            return recorded(spec.name, asked.calls)
        case workloads.RandomParameters():
            return once_each(random_queries(asked.conversions, asked.seed))
        case workloads.ConstructorParameters():
            shape = workloads.mesh_shape(spec, asked.mesh, topology)
            return UpstreamProblem(
                facts={"model": asked.model, "mesh": str(Mesh.of(*shape))},
                request={"kind": "constructor", "model": asked.model, "mesh_shape": shape},
            )
        case workloads.AllPairsParameters():
            mesh = Mesh.of(*workloads.mesh_shape(spec, asked.mesh, topology))
            tensor = asked.shape or (64,) * (asked.rank or 4)
            conversions = sum(1 for _ in all_partitions(mesh, tensor)) ** 2
            if conversions > workloads.MOST_CONVERSIONS:
                raise UsageError(
                    f"Workload '{spec}' makes {conversions:,} conversions, more than "
                    f"{workloads.MOST_CONVERSIONS:,}; ask for a lower rank or a smaller mesh."
                )
            return once_each(all_pairs(mesh, tensor))
    return once_each(batch_of_eight())


def once_each(queries: Iterable[Query]) -> Stream:
    """Return a stream with every query once, in the given order."""
    queries = tuple(queries)
    return Stream(queries, range(len(queries)))


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


_RANDOM_MESHES = ((2, 2), (2, 4), (4, 2), (1, 8), (3, 2), (8,))
_SIZES = (1, 2, 3, 4, 6, 7, 8, 12, 15, 16, 24, 30, 64, 96, 100, 224)


def random_queries(count: int, seed: int) -> Iterator[Query]:
    """Yield `count` random queries, drawn by random.Random(seed).

    Mesh, costs, rank (1 to 6), sizes, partitions and the order of their dimensions are random.
    """
    rng = random.Random(seed)
    for _ in range(count):
        mesh_shape = rng.choice(_RANDOM_MESHES)
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


class _Recording(msgspec.Struct):
    queries: list[tuple[tuple[int, ...], Partition, Partition]]  # shape, source, target
    answers: list[RecordedAnswer]
    sequence: list[int]


def recorded(name: str, calls: int | None) -> Stream:
    """Return the first `calls` calls (None: all) of a recorded stream, with their answers."""
    packed = (Path(__file__).parent / "data" / f"{name}_2x2.json.gz").read_bytes()
    recording = msgspec.json.decode(gzip.decompress(packed), type=_Recording)
    asked = recording.sequence[:calls]
    kept = sorted(set(asked))  # queries, by their number in the file
    number = {query: place for place, query in enumerate(kept)}
    mesh = Mesh.of(2, 2)
    return Stream(
        tuple(Query(mesh, *recording.queries[query]) for query in kept),
        [number[query] for query in asked],
        tuple(recording.answers[query] for query in kept),
    )


class Search(Protocol):
    """The interface of searches for conversions; each has its own type of spec."""

    def spec(self, mesh: Mesh, shape: tuple[int, ...], partition: Partition) -> Any:
        """Return a sharding spec of this search's type."""

    def convert(self, source: Any, target: Any) -> Conversion:
        """Return the conversion between two specs of one tensor."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The last conversion of each query, and the reported total cost of each call in order."""

    conversions: Sequence[Conversion]
    costs: Sequence[float]


def answer(stream: Stream, search: Search) -> Answers:
    """Make the specs of a stream, and let a search find its conversions in order."""
    specs = [search.spec(*spec) for spec in stream.specs]
    pairs = stream.pairs
    conversions: list[Any] = [None] * len(pairs)
    costs = []
    convert = search.convert
    for index in stream.sequence:
        source, target = pairs[index]
        conversion = conversions[index] = convert(specs[source], specs[target])
        costs.append(conversion.cost.total)
    return Answers(conversions, costs)
