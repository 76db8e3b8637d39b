"""Searches that must give the reference's answers give them, regardless of earlier queries."""

import random
from functools import cache
from itertools import islice
from math import prod

import pytest
from hypothesis import given, settings
from small_streams import GREEDY, SEARCHES, asked, queries, refusal, told

from harness.contract import UsageError
from planners.dimspec.conversion.partition import Mesh, check_partition
from planners.dimspec.conversion.search import PathCache
from planners.dimspec.conversion.stream import Query, batch_of_eight, random_queries

OTHERS = GREEDY[1:]


@cache
def some(kind: str) -> tuple[Query, ...]:
    if kind == "all pairs of eight":
        return tuple(batch_of_eight())
    return tuple(random_queries(20_000 if kind == "many random" else 1000, seed=11))


@cache
def expected(kind: str) -> list[tuple[object, ...]]:
    """Return the answers that all searches must give, by the fastest form of the reference."""
    search = SEARCHES["shared-dict"]()
    return [told(asked(search, query)) for query in some(kind)]


KINDS = ("all pairs of eight", "random")


def test_the_queries_are_as_many_and_as_different_as_is_said():
    assert len(some("all pairs of eight")) == 4164
    drawn = some("random")
    assert {len(query.shape) for query in drawn} == set(range(1, 7))
    assert {query.mesh.shape for query in drawn} > {(2, 2), (8,), (3, 2), (1, 8)}
    unsorted = [each for each in drawn if list(each.source) != sorted(each.source)]
    assert len(unsorted) > 50
    assert max(len(path) for path, *_ in expected("random")) >= 4


@pytest.mark.parametrize("kind", [*KINDS, pytest.param("many random", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["path-cache", "interned"])
def test_it_answers_as_the_reference_does(name, kind):
    search = SEARCHES[name]()
    for query, answer in zip(some(kind), expected(kind), strict=True):
        assert told(asked(search, query)) == answer, query


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["eager-dict", "lazy-dict"])
def test_it_answers_the_same_however_many_dictionaries_it_builds(name, kind, every):
    search = SEARCHES[name]()
    pairs = zip(some(kind)[::every], expected(kind)[::every], strict=True)
    for query, answer in pairs:
        assert told(asked(search, query)) == answer, query


@settings(max_examples=40, deadline=None)
@given(queries())
def test_it_answers_anything_as_the_reference_does(query):
    answer = told(asked(SEARCHES["eager-dict"](), query))
    for name in OTHERS:
        search = SEARCHES[name]()
        assert told(asked(search, query)) == answer, name
        assert told(asked(search, query)) == answer, name


@pytest.mark.parametrize("name", ["path-cache", "interned", "optimal"])
def test_what_was_asked_before_does_not_matter(name):
    drawn = random.Random(3).sample([query for kind in KINDS for query in some(kind)], 300)
    alone = {query: told(asked(SEARCHES[name](), query)) for query in drawn}
    search = SEARCHES[name]()
    for query in random.Random(5).sample(drawn * 2, 600):
        assert told(asked(search, query)) == alone[query], query


@pytest.mark.parametrize("name", SEARCHES)
def test_specs_that_are_given_back_tell_what_is_held_where(name):
    search = SEARCHES[name]()
    for query in islice(random_queries(10_000, seed=2), 120):
        mesh, shape, source, target = query
        spec = search.spec(mesh, shape, source)
        assert spec.partition == source
        conversion = search.convert(spec, search.spec(mesh, shape, target))
        for each in conversion.path:
            assert (each.mesh, each.shape) == (mesh, shape)
            check_partition(mesh, shape, each.partition)
            held = dict(each.partition)
            assert each.local_shape() == [
                size // prod(mesh.shape[axis] for axis in held.get(dim, ()))
                for dim, size in enumerate(shape)
            ]
        if dict(source) == dict(target):
            assert not conversion.path
        else:
            assert conversion.path[0].partition == source
            assert dict(conversion.path[-1].partition) == dict(target)
            assert len(conversion.comms) == len(conversion.path) - 1


@pytest.mark.parametrize(
    ("mesh", "shape"), [(Mesh.of(2, 2), (16, 8)), (Mesh.of(2, 4), (8, 8)), (Mesh.of(2, 2), (8,))]
)
def test_specs_of_different_tensors_are_not_converted(mesh, shape):
    search = SEARCHES["interned"]()
    source, other = search.spec(Mesh.of(2, 2), (8, 8), ((0, (0,)),)), search.spec(mesh, shape, ())
    for pair in ((source, other), (other, source)):
        assert "specs of different tensors" in refusal(UsageError, search.convert, *pair)


@pytest.mark.parametrize("name", SEARCHES)
def test_meshes_that_are_equal_are_one(name):
    search = SEARCHES[name]()
    target = ((1, (0,)),)
    source = search.spec(Mesh((2, 2), (0.5, 1.0), (2.0, 1.0)), (8, 8), ())
    same = search.convert(source, search.spec(Mesh((2, 2), (0.5, 1.0), (2.0, 1.0)), (8, 8), target))
    other = asked(search, Query(Mesh.of(2, 2), (8, 8), (), target))
    assert told(same)[:2] == told(other)[:2]
    assert same.cost != other.cost


def test_the_path_cache_hands_out_lists_of_its_own():
    search = PathCache()
    query = Query(Mesh.of(2, 2), (8, 8), ((1, (0, 1)),), ((0, (0, 1)),))
    first = asked(search, query)
    answer = told(first)
    first.path.clear()
    first.comms.append(None)
    second = asked(search, query)
    assert told(second) == answer
    assert second.path is not asked(search, query).path


def test_the_path_cache_tells_apart_all_that_decides():
    """Each query differs from the first in one part, and has a different answer."""
    search = PathCache()
    two = ((0, (0,)), (1, (1,)))
    asked_first = Query(Mesh.of(2, 2), (8, 8), two, ())
    before = told(asked(search, asked_first))
    for other in (
        asked_first._replace(mesh=Mesh.of(2, 4)),
        asked_first._replace(mesh=Mesh((2, 2), (2.0, 1.0), (1.0, 1.0))),
        asked_first._replace(mesh=Mesh((2, 2), (1.0, 1.0), (1.0, 3.0))),
        asked_first._replace(shape=(16, 8)),
        asked_first._replace(source=two[::-1]),
        asked_first._replace(target=two[:1]),
    ):
        answer = told(asked(search, other))
        assert answer != before
        assert answer == told(asked(SEARCHES["eager-dict"](), other))
    assert told(asked(search, asked_first)) == before


@pytest.mark.slow
@settings(max_examples=5000, deadline=None)
@given(queries(most_rank=6))
def test_thousands_of_drawn_conversions_are_answered_as_the_reference_does(query):
    answer = told(asked(SEARCHES["eager-dict"](), query))
    for name in ("path-cache", "interned"):
        assert told(asked(SEARCHES[name](), query)) == answer, name
