"""`CheapestSearch` finds a conversion of least cost, and reaches every target on every mesh."""

from functools import cache
from itertools import product
from math import inf

import pytest
from hypothesis import given, settings
from small_streams import NearSpec, asked, candidates, divides, queries, told

from planners.dimspec.conversion.cheapest import CheapestSearch
from planners.dimspec.conversion.costs import NOTHING
from planners.dimspec.conversion.interned import InternedSearch
from planners.dimspec.conversion.partition import Mesh, Partition, all_partitions
from planners.dimspec.conversion.search import GreedySearch
from planners.dimspec.conversion.specs import (
    DimSpec,
    ShardingSpec,
    SharedDimSpec,
    difference_points,
)
from planners.dimspec.conversion.stream import Query, all_pairs, once_each
from planners.dimspec.implementation import true_cost, validate
from planners.dimspec.problem import StreamProblem, answer

SECONDS = ((2e-5, 5e-6), (4 / 25e9, 4 / 300e9))


def least_costs(mesh: Mesh, shape: tuple[int, ...], source: Partition) -> dict[Partition, float]:
    """Return the least cost to convert `source` to each partition, by Bellman and Ford's search.

    The edges are the candidates of the reference search; partitions are sorted.
    """
    search = GreedySearch(SharedDimSpec)
    edges = [
        (partition, tuple(sorted(each.spec.partition)), each.cost.total)
        for partition in all_partitions(mesh, shape)
        for each in search.expand(search.spec(mesh, shape, partition), NOTHING)
    ]
    least = dict.fromkeys(all_partitions(mesh, shape), inf) | {tuple(sorted(source)): 0.0}
    is_changing = True
    while is_changing:
        is_changing = False
        for before, after, cost in edges:
            if least[before] + cost < least[after]:
                least[after] = least[before] + cost
                is_changing = True
    return least


@pytest.mark.parametrize(
    ("mesh", "shape"),
    [
        (Mesh.of(2, 2), (64, 64, 64)),
        (Mesh.of(2, 4), (8, 12, 6)),
        (Mesh.of(3, 2), (9, 6, 30, 7)),
        (Mesh((2, 4), *SECONDS), (128, 256, 56)),
        (Mesh((2, 2), (100.0, 0.0), (1e-3, 5.0)), (4, 4, 2)),
        (Mesh.of(1, 8), (8, 16, 1)),
        (Mesh.of(8), (8, 16, 7, 64)),
        (Mesh((2, 2), (0.0, 0.0), (0.0, 0.0)), (4, 4)),
        (Mesh.of(3, 5), (1, 7)),
    ],
)
def test_no_conversion_is_cheaper(mesh, shape):
    search = CheapestSearch()
    partitions = list(all_partitions(mesh, shape))
    for source in partitions:
        least = least_costs(mesh, shape, source)
        for target in partitions:
            query = Query(mesh, shape, source, target)
            conversion = asked(search, query)
            assert true_cost(query, conversion) == pytest.approx(least[target], rel=1e-12)
            assert conversion.cost.total == pytest.approx(least[target], rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(queries(most_rank=3))
def test_no_drawn_conversion_is_cheaper(query):
    least = least_costs(query.mesh, query.shape, query.source)
    found = asked(CheapestSearch(), query).cost.total
    assert found == pytest.approx(least[tuple(sorted(query.target))], rel=1e-12, abs=1e-12)


@settings(max_examples=30)
@given(queries(most_axes=3, most_rank=4))
def test_its_cost_is_the_true_sum_and_greed_never_finds_less(query):
    cheapest, greedy = asked(CheapestSearch(), query), asked(InternedSearch(), query)
    least, paid = true_cost(query, cheapest), true_cost(query, greedy)
    assert cheapest.cost.total == pytest.approx(least, rel=1e-12)
    assert cheapest.cost.forward + cheapest.cost.backward == pytest.approx(least, rel=1e-12)
    assert least <= paid * (1 + 1e-12)
    assert bool(cheapest.path) == (dict(query.source) != dict(query.target))


def test_no_way_leads_through_the_same_sharding_twice():
    mesh, search = Mesh.of(2, 2), CheapestSearch()
    for source, target in product(all_partitions(mesh, (8, 8)), repeat=2):
        query = Query(mesh, (8, 8), source, target)
        conversion = asked(search, query)
        dicts = [dict(spec.partition) for spec in conversion.path]
        assert all(dicts.count(each) == 1 for each in dicts)


def test_greed_pays_more_than_twice_too_much_where_it_is_worst():
    mesh, shape = Mesh.of(2, 2), (64, 64, 64, 64)
    cheapest, nearest = CheapestSearch(), InternedSearch()
    ratios = []
    for query in all_pairs(mesh, shape):
        least = true_cost(query, asked(cheapest, query))
        if least:
            ratios.append(true_cost(query, asked(nearest, query)) / least)
    dearer = sum(ratio > 1 + 1e-9 for ratio in ratios) / len(ratios)
    assert 0.25 < dearer < 0.45
    assert 2 < max(ratios) < 5


MESHES = {
    "8": ((8,), (8, 24, 3)),
    "2x4": ((2, 4), (8, 12, 64)),
    "2x2x2": ((2, 2, 2), (8, 8, 8)),
    "2x3x2": ((2, 3, 2), (12, 6, 4)),
    "1x2x4": ((1, 2, 4), (8, 3, 4)),
    "2x2x2x2": ((2, 2, 2, 2), (16, 4)),
    "2x1x3x2": ((2, 1, 3, 2), (6, 4)),
}


@cache
def asked_all(name: str, search: type[InternedSearch] | type[CheapestSearch]):
    mesh_shape, shape = MESHES[name]
    stream = once_each(tuple(all_pairs(Mesh.of(*mesh_shape), shape)))
    return stream, answer(stream, search())


@cache
def steps_from(ndim: int, rank: int, partition: Partition) -> frozenset[NearSpec]:
    return frozenset(candidates(ndim, rank, partition))


@pytest.mark.parametrize("search", [InternedSearch, CheapestSearch])
@pytest.mark.parametrize("name", MESHES)
def test_every_target_is_reached_by_legal_steps(name, search):
    stream, answers = asked_all(name, search)
    validate(StreamProblem(stream), answers)
    for query, conversion in zip(stream.queries, answers.conversions, strict=True):
        for before, step, after in zip(
            conversion.path, conversion.comms, conversion.path[1:], strict=False
        ):
            known = steps_from(len(query.mesh.shape), len(query.shape), before.partition)
            assert ((str(step.pattern), *step[1:]), after.partition) in known
            assert divides(query.mesh, query.shape, after.partition)


class AnyDimSpec(DimSpec):
    """A DimSpec for meshes of any number of axes; it computes differences by formula."""

    def difference(self, other: DimSpec) -> int:
        return difference_points(self.shard_list, other.shard_list)


@pytest.mark.parametrize("name", ["2x2x2", "2x3x2", "2x1x3x2"])
def test_with_more_axes_the_nearest_is_what_the_objects_would_find(name):
    """Compares with the reference search, given a DimSpec that raises no KeyError."""
    stream, answers = asked_all(name, InternedSearch)
    search = GreedySearch(AnyDimSpec)
    for number in range(0, len(stream.queries), 7):
        mesh, shape, *partitions = stream.queries[number]
        source, target = (
            ShardingSpec(mesh, shape, {dim: list(axes) for dim, axes in each}, AnyDimSpec)
            for each in partitions
        )
        assert told(search.convert(source, target)) == told(answers.conversions[number])


@settings(max_examples=25, deadline=None)
@given(queries(most_axes=4, most_rank=2))
def test_any_target_is_reached_and_the_way_there_is_valid(query):
    stream = once_each([query])
    for search in (InternedSearch(), CheapestSearch()):
        validate(StreamProblem(stream), answer(stream, search))


def test_the_cheapest_may_lead_far_around():
    """The cheapest path moves the largest mesh axis to the other dimension and back."""
    mesh = Mesh.of(1, 2, 3, 6)
    query = Query(mesh, (36, 36), ((0, (0, 1, 2, 3)),), ((1, (0, 1)),))
    nearest, cheapest = asked(InternedSearch(), query), asked(CheapestSearch(), query)
    assert (len(nearest.comms), len(cheapest.comms)) == (5, 9)
    assert true_cost(query, cheapest) < true_cost(query, nearest)
