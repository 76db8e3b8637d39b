"""All greedy searches decide as ColossalAI does, and Dijkstra's algorithm finds the cheapest."""

from math import inf

import pytest
from hypothesis import given
from small_streams import GREEDY, SEARCHES, converted, problem_of, queries

from planners.dimspec.conversion.greedy import DimSpec, GreedySearch
from planners.dimspec.conversion.interned import InternedSearch
from planners.dimspec.conversion.steps import (
    ALL_TO_ALL,
    GATHER,
    NO_CONVERSION,
    SPLIT,
    Mesh,
    Partition,
    after_step,
    all_partitions,
    candidate_steps,
    difference_points,
    sharding_name,
    step_cost,
)
from planners.dimspec.implementation import quality, true_cost, validate
from planners.dimspec.problem import Query, all_pairs, answer, once_each

SQUARE = Mesh.of(2, 2)


@pytest.mark.parametrize("workload", ["resnet50", "gpt12"])
@pytest.mark.parametrize("name", ["shared-dict", "path-cache", "interned"])
def test_recorded_answers_are_reproduced_to_the_last_bit(name, workload):
    """All that ColossalAI 0.4.1 answered for a model is answered with equal paths and costs."""
    stream = problem_of(f"{workload}/dgx_a100_80gb:4")
    answers = answer(once_each(stream.queries), SEARCHES[name]())
    for query, (path, comms, cost), recorded in zip(
        stream.queries, answers.conversions, stream.recorded, strict=True
    ):
        assert tuple(sharding_name(len(query.shape), each) for each in path) == recorded.path
        assert tuple(step.pattern for step in comms) == recorded.patterns
        assert cost == recorded.cost


@given(queries())
def test_every_greedy_search_answers_alike(query):
    """A drawn conversion has one answer, valid and to the last bit, also when asked again."""
    expected = converted(SEARCHES["eager-dict"](), query)
    validate(once_each([query]), answer(once_each([query]), SEARCHES["eager-dict"]()))
    for name in GREEDY:
        search = SEARCHES[name]()
        assert converted(search, query) == expected, name
        assert converted(search, query) == expected, name


@pytest.mark.parametrize("name", ["path-cache", "interned", "optimal"])
def test_earlier_conversions_do_not_matter(name):
    """A cache tells apart everything that an answer depends on."""
    two = ((0, (0,)), (1, (1,)))
    first = Query(SQUARE, (8, 8), two, ())
    others = (
        first._replace(mesh=Mesh.of(2, 4)),
        first._replace(mesh=Mesh((2, 2), (2.0, 1.0), (1.0, 1.0))),
        first._replace(mesh=Mesh((2, 2), (1.0, 1.0), (1.0, 3.0))),
        first._replace(shape=(16, 8)),
        first._replace(source=two[::-1]),
        first._replace(target=two[:1]),
    )
    search = SEARCHES[name]()
    answers = [converted(search, query) for query in (first, *others, first)]
    assert answers == [converted(SEARCHES[name](), query) for query in (first, *others, first)]
    assert all(other != answers[0] for other in answers[1:-1])


@pytest.mark.parametrize("name", SEARCHES)
def test_equal_shardings_need_no_step(name):
    """The order of the dimensions does not matter for what is asked."""
    source = ((0, (1,)), (2, (0,)))
    for target in (source, source[::-1]):
        query = Query(SQUARE, (8, 8, 8), source, target)
        assert converted(SEARCHES[name](), query) == NO_CONVERSION


def test_costs_of_several_steps_are_compounded():
    """The reported cost of three steps is almost twice their sum, as in ColossalAI."""
    query = Query(Mesh.of(4, 4), (64, 32, 16), ((1, (0, 1)),), ((0, (0, 1)),))
    conversion = converted(InternedSearch(), query)
    assert conversion.path == (((1, (0, 1)),), ((1, (0,)),), ((0, (0,)),), ((0, (0, 1)),))
    assert [step.pattern for step in conversion.comms] == [GATHER, ALL_TO_ALL, SPLIT]
    assert conversion.cost.total == pytest.approx(25_085.5, abs=0.05)
    assert true_cost(query, conversion) == pytest.approx(14_028.2, abs=0.05)


def test_the_order_of_dimensions_decides_between_equally_near_steps():
    """The dimension that was sharded first is gathered first."""
    for source in (((0, (0,)), (1, (1,))), ((1, (1,)), (0, (0,)))):
        for name in GREEDY:
            path = converted(SEARCHES[name](), Query(SQUARE, (8, 8), source, ())).path
            assert path[1] == source[1:]


def least_costs(mesh: Mesh, shape: tuple[int, ...], source: Partition) -> dict[Partition, float]:
    """Return the least cost to convert `source` to each partition, by Bellman and Ford's search."""
    edges = []
    for partition in all_partitions(mesh, shape):
        elements = mesh.local_elements(shape, partition)
        for step in candidate_steps(dict(partition), len(shape), len(mesh.shape)):
            after = after_step(dict(partition), step)
            if mesh.divides(shape, after):
                cost = step_cost(mesh, step, elements).total
                edges.append((partition, tuple(sorted(after.items())), cost))
    least = dict.fromkeys(all_partitions(mesh, shape), inf) | {tuple(sorted(source)): 0.0}
    is_changing = True
    while is_changing:
        is_changing = False
        for before, after, cost in edges:
            if least[before] + cost < least[after]:
                least[after] = least[before] + cost
                is_changing = True
    return least


@given(queries(most_axes=3, most_rank=3))
def test_no_conversion_is_cheaper_than_the_optimal_one(query):
    """Its cost is the true sum of its steps, the least one, and so at most the greedy one's."""
    least = least_costs(query.mesh, query.shape, query.source)[tuple(sorted(query.target))]
    cheapest = converted(SEARCHES["optimal"](), query)
    assert cheapest.cost.total == pytest.approx(least, rel=1e-12, abs=1e-12)
    assert true_cost(query, cheapest) == pytest.approx(least, rel=1e-12, abs=1e-12)
    assert least <= true_cost(query, converted(InternedSearch(), query)) * (1 + 1e-12)


def test_greedy_conversions_are_often_dearer():
    """A third of the conversions of a tensor cost more than they have to."""
    stream = problem_of("all-pairs[rank=4,mesh=2x2]/dgx_a100_80gb:4")
    greedy, cheapest = (
        quality(stream, answer(stream, SEARCHES[name]())) for name in ("interned", "optimal")
    )
    assert 0.25 < greedy["dearer_conversions"] / len(stream.queries) < 0.45
    assert greedy["reported_millions"] > greedy["cost_millions"] > greedy["cheapest_millions"]
    assert cheapest["cost_millions"] == cheapest["cheapest_millions"]
    assert cheapest["dearer_conversions"] == 0


@pytest.mark.parametrize("name", ["interned", "optimal"])
@pytest.mark.parametrize(
    ("mesh", "shape"),
    [
        ((8,), (8, 24, 3)),
        ((2, 4), (8, 12, 64)),
        ((2, 3, 2), (12, 6, 4)),
        ((2, 2, 2, 2), (16, 4)),
        ((2, 1, 3, 2), (6, 4)),
    ],
)
def test_every_target_is_reached_on_meshes_of_up_to_four_axes(name, mesh, shape):
    """All pairs of shardings are converted by valid steps."""
    stream = once_each(all_pairs(Mesh.of(*mesh), shape))
    validate(stream, answer(stream, SEARCHES[name]()))


class AnyDimSpec(DimSpec):
    """A DimSpec for meshes of any number of axes; it computes differences by formula."""

    def difference(self, other):
        return difference_points(self._axes, other._axes)


def test_with_three_axes_the_interned_search_does_what_colossalais_would(monkeypatch):
    """Compares with the greedy search, given a DimSpec that raises no KeyError."""
    monkeypatch.setattr("planners.dimspec.conversion.greedy.DimSpec", AnyDimSpec)
    greedy, interned = GreedySearch("shared"), InternedSearch()
    for query in [*all_pairs(Mesh.of(2, 3, 2), (12, 6, 4))][::7]:
        assert converted(interned, query) == converted(greedy, query)
