"""The reference search agrees with recordings of ColossalAI, and with ColossalAI's source code."""

import pytest
from hypothesis import given, strategies as st
from small_streams import (
    ALL_TO_ALL,
    GATHER,
    SPLIT,
    asked,
    candidates,
    divides,
    greedy,
    queries,
    refusal,
    stream_of,
)

from harness.contract import UsageError
from planners.dimspec.conversion.costs import NOTHING, Cost, Pattern, step_cost
from planners.dimspec.conversion.partition import Mesh, local_elements, sequence_name
from planners.dimspec.conversion.search import GreedySearch
from planners.dimspec.conversion.specs import EagerDimSpec, LazyDimSpec, SharedDimSpec
from planners.dimspec.conversion.stream import Query, once_each
from planners.dimspec.implementation import true_cost
from planners.dimspec.problem import answer

SQUARE = Mesh.of(2, 2)


def expanded(shape, partition, mesh=SQUARE):
    """Return the partitions one step away: (pattern, gathered, sharded, axis, partition)."""
    search = GreedySearch(SharedDimSpec)
    spec = search.spec(mesh, shape, partition)
    return [
        (str(each.comm.pattern), *each.comm[1:], each.spec.partition)
        for each in search.expand(spec, NOTHING)
    ]


@pytest.mark.parametrize(
    "kind", [SharedDimSpec, pytest.param(EagerDimSpec, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("workload", "distinct", "calls"), [("resnet50", 2658, 39_737), ("gpt12", 1410, 96_145)]
)
def test_all_that_was_recorded_is_reproduced_to_the_last_bit(workload, distinct, calls, kind):
    stream = stream_of(f"{workload}/dgx_a100_80gb:4")
    assert (len(stream.queries), len(stream.sequence)) == (distinct, calls)
    assert stream.recorded is not None
    conversions = answer(once_each(stream.queries), GreedySearch(kind)).conversions
    for query, conversion, recorded in zip(
        stream.queries, conversions, stream.recorded, strict=True
    ):
        rank = len(query.shape)
        path = tuple(sequence_name(rank, spec.partition) for spec in conversion.path)
        assert path == recorded.path, query
        assert tuple(str(step.pattern) for step in conversion.comms) == recorded.patterns, query
        costs = [cost.hex() for cost in conversion.cost]
        assert costs == [cost.hex() for cost in recorded.cost], query


@pytest.mark.parametrize(
    ("shape", "partition", "expected"),
    [
        (  # axis 0 cannot come behind axis 1 on the same dimension
            (8, 8),
            ((0, (1,)),),
            [
                (GATHER, 0, 0, 1, ()),
                (ALL_TO_ALL, 0, 1, 1, ((1, (1,)),)),
                (SPLIT, 1, 1, 0, ((0, (1,)), (1, (0,)))),
            ],
        ),
        (  # of two sharded dimensions the later one gives its axis
            (8, 8, 8),
            ((2, (1,)), (0, (0,))),
            [
                (GATHER, 2, 2, 1, ((0, (0,)),)),
                (GATHER, 0, 0, 0, ((2, (1,)),)),
                (ALL_TO_ALL, 0, 1, 0, ((2, (1,)), (1, (0,)))),
                (ALL_TO_ALL, 2, 0, 1, ((0, (0, 1)),)),
                (ALL_TO_ALL, 2, 1, 1, ((0, (0,)), (1, (1,)))),
            ],
        ),
        (  # bringing both together would make S10
            (8, 8),
            ((0, (1,)), (1, (0,))),
            [(GATHER, 0, 0, 1, ((1, (0,)),)), (GATHER, 1, 1, 0, ((0, (1,)),))],
        ),
        ((2, 3), (), [(SPLIT, 0, 0, 0, ((0, (0,)),)), (SPLIT, 0, 0, 1, ((0, (1,)),))]),
    ],
)
def test_candidates_come_in_the_order_of_colossalai(shape, partition, expected):
    assert expanded(shape, partition) == expected


@given(queries())
def test_candidates_are_those_of_the_text_that_divide(query):
    mesh, shape, partition, _ = query
    found = candidates(len(mesh.shape), len(shape), partition)
    assert expanded(shape, partition, mesh) == [
        (*each.step, each.partition) for each in found if divides(mesh, shape, each.partition)
    ]


@given(queries())
def test_a_candidate_costs_its_step_on_top_of_what_came_before(query):
    mesh, shape, partition, _ = query
    search = GreedySearch(SharedDimSpec)
    spec = search.spec(mesh, shape, partition)
    elements = local_elements(mesh, shape, partition)
    paid = Cost(7, 8, 15)
    begun, gone_on = search.expand(spec, NOTHING), search.expand(spec, paid)
    for plain, further in zip(begun, gone_on, strict=True):
        step = plain.comm
        assert plain.cost == step_cost(mesh, step.pattern, step.logical_process_axis, elements)
        assert further.cost == paid.plus(plain.cost)


@given(
    size=st.integers(1, 9),
    alpha=st.floats(0, 10),
    beta=st.sampled_from([1.0, 1e-9, 4 / 300e9]) | st.floats(0, 10),
    elements=st.integers(1, 10**12),
)
def test_steps_cost_what_the_text_says_to_the_last_bit(size, alpha, beta, elements):
    mesh = Mesh((7, size), (3.0, alpha), (3.0, beta))
    gathered = alpha + beta * (size - 1) / size * elements + 0.1
    moved = alpha + beta * (size - 1) / size / size * elements * (size / 2) + 0.001
    for pattern, costs in (
        (Pattern.GATHER, (gathered, 100.0)),
        (Pattern.ALL_TO_ALL, (moved, moved)),
        (Pattern.SPLIT, (100.0, gathered)),
    ):
        assert step_cost(mesh, pattern, 1, elements) == (*costs, sum(costs))


@given(queries())
def test_the_first_of_the_nearest_is_taken_until_nothing_differs(query):
    conversion = asked(GreedySearch(SharedDimSpec), query)
    steps = greedy(query)
    assert [(str(step.pattern), *step[1:]) for step in conversion.comms] == [
        each.taken.step for each in steps
    ]
    path = [query.source, *(each.taken.partition for each in steps)] if steps else []
    assert [spec.partition for spec in conversion.path] == path


@given(queries())
def test_costs_of_several_steps_are_added_up_with_what_they_hold_already(query):
    conversion = asked(GreedySearch(SharedDimSpec), query)
    forward = backward = total = 0.0
    for spec, step in zip(conversion.path, conversion.comms, strict=False):
        elements = local_elements(query.mesh, query.shape, spec.partition)
        cost = step_cost(query.mesh, step.pattern, step.logical_process_axis, elements)
        forward += forward + cost.forward
        backward += backward + cost.backward
        total += total + cost.total
    assert conversion.cost == (forward, backward, total)


def test_three_steps_cost_almost_twice_what_they_should():
    query = Query(Mesh.of(4, 4), (64, 32, 16), ((1, (0, 1)),), ((0, (0, 1)),))
    conversion = asked(GreedySearch(EagerDimSpec), query)
    assert [str(spec) for spec in conversion.path] == [
        "[R, S01, R]",
        "[R, S0, R]",
        "[S0, R, R]",
        "[S01, R, R]",
    ]
    assert [step.pattern for step in conversion.comms] == [GATHER, ALL_TO_ALL, SPLIT]
    assert conversion.cost.total == pytest.approx(25_085.5, abs=0.05)
    assert true_cost(query, conversion) == pytest.approx(14_028.2, abs=0.05)


def test_two_axes_on_the_wrong_one_are_reached_in_three_steps():
    query = Query(SQUARE, (768, 768), ((1, (1,)),), ((1, (0, 1)),))
    conversion = asked(GreedySearch(LazyDimSpec), query)
    assert [step.pattern for step in conversion.comms] == [GATHER, SPLIT, SPLIT]


@pytest.mark.parametrize("kind", [EagerDimSpec, LazyDimSpec, SharedDimSpec])
def test_nothing_is_done_where_source_and_target_shard_alike(kind):
    both = ((0, (1,)), (2, (0,)))
    for target in (both, both[::-1]):
        conversion = asked(GreedySearch(kind), Query(SQUARE, (8, 8, 8), both, target))
        assert (list(conversion.path), list(conversion.comms)) == ([], [])
        assert conversion.cost == NOTHING == (0.0, 0.0, 0.0)


def test_the_order_in_which_dimensions_were_sharded_decides_between_equals():
    one, other = ((0, (0,)), (1, (1,))), ((1, (1,)), (0, (0,)))
    for source, left in ((one, ((1, (1,)),)), (other, ((0, (0,)),))):
        query = Query(SQUARE, (8, 8), source, ())
        assert asked(GreedySearch(SharedDimSpec), query).path[1].partition == left


def test_the_target_keeps_no_order():
    source = ((2, (0, 1)),)
    target = ((1, (1,)), (0, (0,)))
    found = [
        asked(GreedySearch(SharedDimSpec), Query(SQUARE, (8, 8, 8), source, order))
        for order in (target, target[::-1])
    ]
    assert found[0].comms == found[1].comms
    assert found[0].cost == found[1].cost


@pytest.mark.parametrize("mesh", [(2, 2, 2), (1, 1, 8), (2, 2, 2, 1)])
def test_a_mesh_that_the_dictionary_does_not_know_is_said_in_one_sentence(mesh):
    said = refusal(UsageError, GreedySearch(EagerDimSpec).spec, Mesh.of(*mesh), (8, 8), ())
    assert f"mesh {'x'.join(map(str, mesh))} of {len(mesh)} axes ends in a KeyError" in said
    assert "'interned'" in said


def test_a_conversion_leaves_its_specs_as_they_were():
    search = GreedySearch(SharedDimSpec)
    source = search.spec(SQUARE, (8, 8), ((1, (0, 1)),))
    target = search.spec(SQUARE, (8, 8), ((0, (0, 1)),))
    path = search.convert(source, target).path
    assert path[0] is source
    assert (source.partition, target.partition) == (((1, (0, 1)),), ((0, (0, 1)),))
    assert path[-1].dim_partition is not target.dim_partition
