"""Streams of conversions: the distinct questions, and the order in which they are asked."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planners.dimspec.conversion.partition import Mesh, Partition, all_partitions


class Question(NamedTuple):
    """How a tensor of `shape` (elements) that is sharded like `source` becomes like `target`."""

    mesh: Mesh
    shape: tuple[int, ...]
    source: Partition
    target: Partition


class Recorded(NamedTuple):
    """What ColossalAI answered: names of the specs, names of the patterns, the cost.

    The cost is (forward, backward, total) in cost units.
    """

    path: tuple[str, ...]
    patterns: tuple[str, ...]
    cost: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Stream:
    """Questions, the indices of those that are asked one after the other, and recorded answers.

    Every question is asked. `recorded` has an answer for each, None where they are not known;
    `left_out` counts the calls that are not possible on the mesh, or could not be recorded.
    """

    questions: tuple[Question, ...]
    sequence: Sequence[int]
    recorded: tuple[Recorded, ...] | None = None
    left_out: int = 0

    @property
    def meshes(self) -> str:
        """The meshes that it is on, in words."""
        held = list(dict.fromkeys(str(question.mesh) for question in self.questions))
        return held[0] if len(held) == 1 else f"{len(held)} meshes"


def once_each(questions: Sequence[Question]) -> Stream:
    """Return a stream that asks every question once."""
    return Stream(tuple(questions), range(len(questions)))


def is_possible(mesh: Mesh, question: Question) -> bool:
    """Whether a mesh has the axes of a question's partitions and divides its tensor so."""
    return all(
        axes[-1] < len(mesh.shape) and question.shape[dim] % mesh.devices(axes) == 0
        for partition in (question.source, question.target)
        for dim, axes in partition
    )


def all_pairs(mesh: Mesh, shape: tuple[int, ...]) -> Iterator[Question]:
    """Yield the conversions between any two partitions of a tensor, equal ones included."""
    partitions = list(all_partitions(mesh, shape))
    for source in partitions:
        for target in partitions:
            yield Question(mesh, shape, source, target)


_TENSORS = (
    ((64, 64, 64, 64), (2, 2)),
    ((512, 3, 32, 32), (2, 2)),
    ((128, 256, 56, 56), (2, 4)),
    ((8, 12, 128, 64), (2, 4)),
)
# Seconds: what one hop takes on a network and within a host, and 4 bytes at 25 and 300 GB/s.
_LATENCIES = (2e-5, 5e-6)
_SECONDS_PER_ELEMENT = (4 / 25e9, 4 / 300e9)


def batch_of_eight() -> Iterator[Question]:
    """Yield all pairs of four tensors, each with unit costs and with costs in seconds."""
    for shape, mesh_shape in _TENSORS:
        for mesh in (Mesh.of(*mesh_shape), Mesh(mesh_shape, _LATENCIES, _SECONDS_PER_ELEMENT)):
            yield from all_pairs(mesh, shape)


RANDOM_MESHES = ((2, 2), (2, 4), (4, 2), (1, 8), (3, 2), (8,))
_SIZES = (1, 2, 3, 4, 6, 7, 8, 12, 15, 16, 24, 30, 64, 96, 100, 224)


def random_questions(count: int, seed: int) -> Iterator[Question]:
    """Yield conversions drawn by random.Random(seed): mesh, costs, rank 1 to 6, sizes, partitions.

    The dimensions of a partition are in random order.
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
        yield Question(mesh, shape, source, target)
