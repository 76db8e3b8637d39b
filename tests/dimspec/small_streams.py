"""Helpers for most tests of the family, and a rewrite of ColossalAI's search from its source code.

The rewritten search is plain on purpose: dictionaries of lists, nothing shared, nothing cached.
"""

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from harness.model.ids import ProblemId
from harness.topologies.lookup import find_topology
from planners.dimspec import FAMILY
from planners.dimspec.conversion.cheapest import CheapestSearch
from planners.dimspec.conversion.interned import InternedSearch
from planners.dimspec.conversion.partition import Mesh, Partition, all_partitions
from planners.dimspec.conversion.search import Conversion, GreedySearch, PathCache
from planners.dimspec.conversion.specs import EagerDimSpec, LazyDimSpec, SharedDimSpec
from planners.dimspec.conversion.stream import Query, Stream
from planners.dimspec.problem import Search, StreamProblem

SEARCHES = {
    "eager-dict": lambda: GreedySearch(EagerDimSpec),
    "lazy-dict": lambda: GreedySearch(LazyDimSpec),
    "shared-dict": lambda: GreedySearch(SharedDimSpec),
    "path-cache": PathCache,
    "interned": InternedSearch,
    "optimal": CheapestSearch,
}
GREEDY = tuple(SEARCHES)[:-1]

GATHER, ALL_TO_ALL, SPLIT = (
    "GATHER_FWD_SPLIT_BWD",
    "ALL2ALL_FWD_ALL2ALL_BWD",
    "SPLIT_FWD_GATHER_BWD",
)

# The table of reference/dimspec.md, row by row.
_WAYS = ("R", "S0", "S1", "S01")
DIFFERENCES = {
    (source, target): points
    for source, row in zip(
        _WAYS, ((0, 5, 5, 16), (20, 0, 31, 5), (20, 31, 0, 42), (46, 20, 57, 0)), strict=True
    )
    for target, points in zip(_WAYS, row, strict=True)
}


@cache
def problem_of(text: str) -> StreamProblem:
    """Build a problem from its id, e.g. `all-pairs[rank=2]/dgx_a100_80gb:8`."""
    problem = ProblemId.parse(text)
    return FAMILY.work.build(problem.workload, find_topology(problem.topology, problem.gpus))


def stream_of(text: str) -> Stream:
    problem = problem_of(text)
    assert isinstance(problem, StreamProblem)
    return problem.stream


def is_a_sentence(text: str) -> bool:
    """Return whether a text is one sentence on one line."""
    return text.endswith((".", "?")) and ". " not in text.replace("e.g. ", "") and "\n" not in text


def refusal(kind: type[Exception], use: Callable[..., Any], *arguments: Any) -> str:
    """Return the message of the error that `use` raises; it must be one sentence."""
    with pytest.raises(kind) as refused:
        use(*arguments)
    assert is_a_sentence(str(refused.value))
    return str(refused.value)


def asked(search: Search, query: Query) -> Conversion:
    mesh, shape, source, target = query
    return search.convert(search.spec(mesh, shape, source), search.spec(mesh, shape, target))


def told(conversion: Conversion) -> tuple[Any, ...]:
    """Return a conversion's path, steps and costs, with every bit of the costs."""
    return (
        [spec.partition for spec in conversion.path],
        [(str(step.pattern), *step[1:]) for step in conversion.comms],
        [cost.hex() for cost in conversion.cost],
    )


def write_stream(path: Path, document: Any) -> Path:
    path.write_bytes(gzip.compress(json.dumps(document).encode(), compresslevel=1))
    return path


class NearSpec(NamedTuple):
    """A step and its resulting partition, even if that does not divide the tensor evenly."""

    step: tuple[str, int, int, int]
    partition: Partition


def candidates(ndim: int, rank: int, partition: Partition) -> Iterator[NearSpec]:
    """Yield the partitions one step away on a mesh of `ndim` axes, in ColossalAI's order."""
    held = {dim: list(axes) for dim, axes in partition}

    def made(pattern: str, gathered: int, sharded: int, axis: int) -> NearSpec:
        after = {dim: list(axes) for dim, axes in held.items()}
        if pattern != SPLIT:
            after[gathered].remove(axis)
            if not after[gathered]:
                del after[gathered]
        if pattern != GATHER:
            after[sharded] = [*after.get(sharded, []), axis]
        return NearSpec(
            (pattern, gathered, sharded, axis),
            tuple((dim, tuple(axes)) for dim, axes in after.items()),
        )

    for dim, axes in held.items():
        yield made(GATHER, dim, dim, axes[-1])
    for front in range(rank):
        for back in range(front + 1, rank):
            match held.get(front, []), held.get(back, []):
                case [axis], []:
                    yield made(ALL_TO_ALL, front, back, axis)
                case [], [axis]:
                    yield made(ALL_TO_ALL, back, front, axis)
                case [first], [second] if first < second:
                    yield made(ALL_TO_ALL, back, front, second)
    used = [axis for axes in held.values() for axis in axes]
    for dim in range(rank):
        for axis in range(ndim):
            if axis not in used and (dim not in held or axis > held[dim][-1]):
                yield made(SPLIT, dim, dim, axis)


def divides(mesh: Mesh, shape: Sequence[int], partition: Partition) -> bool:
    return all(shape[dim] % prod(mesh.shape[axis] for axis in axes) == 0 for dim, axes in partition)


def difference(rank: int, source: Partition, target: Partition) -> int:
    """Return the difference between two partitions in points, by the table `DIFFERENCES`."""
    names = [
        ["S" + "".join(map(str, held[dim])) if dim in held else "R" for dim in range(rank)]
        for held in (dict(source), dict(target))
    ]
    return sum(DIFFERENCES[pair] for pair in zip(*names, strict=True))


class Expansion(NamedTuple):
    """One step of a search: all candidates, those compared, and the one taken."""

    candidates: tuple[NearSpec, ...]
    compared: tuple[NearSpec, ...]
    taken: NearSpec


def greedy(query: Query) -> list[Expansion]:
    """Return the steps of ColossalAI's search."""
    mesh, shape, here, target = query
    rank = len(shape)
    taken = []
    while difference(rank, here, target):
        met = tuple(candidates(len(mesh.shape), rank, here))
        compared: list[NearSpec] = []
        nearest, least = None, None
        for each in met:
            if divides(mesh, shape, each.partition):
                compared.append(each)
                points = difference(rank, each.partition, target)
                if least is None or points < least:
                    nearest, least = each, points
                if points == 0:
                    break
        assert nearest is not None
        taken.append(Expansion(met, tuple(compared), nearest))
        here = nearest.partition
    return taken


_COSTS = st.one_of(st.just(1.0), st.sampled_from([0.0, 2e-5, 1e-9]), st.floats(0, 10))


@st.composite
def meshes(draw: st.DrawFn, most_axes: int = 2) -> Mesh:
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=most_axes))
    alpha, beta = (tuple(draw(_COSTS) for _ in shape) for _ in range(2))
    return Mesh(tuple(shape), alpha, beta)


@st.composite
def queries(draw: st.DrawFn, most_axes: int = 2, most_rank: int = 5) -> Query:
    """Draw a conversion; dimensions are in any order, most sizes are divisible by mesh axes."""
    mesh = draw(meshes(most_axes))
    whole = prod(mesh.shape)
    sizes = st.one_of(st.sampled_from([whole, 2 * whole, *mesh.shape]), st.integers(1, 40))
    shape = tuple(draw(st.lists(sizes, min_size=1, max_size=most_rank)))
    partitions = list(all_partitions(mesh, shape))
    source, target = (
        tuple(draw(st.permutations(draw(st.sampled_from(partitions))))) for _ in range(2)
    )
    return Query(mesh, shape, source, target)
