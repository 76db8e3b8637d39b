"""Differences between shardings, and how many dictionaries of them each kind of spec builds."""

import pytest
from hypothesis import given
from small_streams import DIFFERENCES, queries

from harness.contract.recorder import Recorder
from planners.dimspec.conversion.partition import (
    Mesh,
    PartitionError,
    local_elements,
    sequence_name,
)
from planners.dimspec.conversion.specs import (
    NAMES,
    DimSpec,
    EagerDimSpec,
    LazyDimSpec,
    ShardingSpec,
    SharedDimSpec,
    build_copied_differences,
    build_differences,
    difference_points,
)
from planners.dimspec.observer import observe

KINDS = (EagerDimSpec, LazyDimSpec, SharedDimSpec)
WAYS = {"R": [], "S0": [0], "S1": [1], "S01": [0, 1]}


@pytest.fixture
def built():
    """Return how many dictionaries were built since the test began."""
    SharedDimSpec.forgotten()
    recorder = Recorder()
    with observe(recorder), recorder.call():
        yield lambda: recorder.counters["dictionaries_built"]


@pytest.mark.parametrize("build", [build_differences, build_copied_differences])
def test_the_dictionary_is_that_of_the_reference(build):
    found = build()
    assert found == DIFFERENCES
    assert all(type(points) is int for points in found.values())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_knows_the_same_differences(kind):
    for source, mine in WAYS.items():
        for target, theirs in WAYS.items():
            assert kind(mine).difference(kind(theirs)) == DIFFERENCES[source, target]


@pytest.mark.parametrize(
    ("source", "target", "points"),
    [
        ((), (0, 1, 2), 5 + 6 + 5 + 6 + 5),
        ((0, 1, 2), (), 20 + 6 + 20 + 6 + 20),
        ((0, 2), (0, 1), 20 + 6 + 5),
        ((1, 2), (0, 1, 2), 20 + 6 + 20 + 6 + 5 + 6 + 5 + 6 + 5),
        ((0,), (0, 3), 5),
        ((2,), (2,), 0),
    ],
)
def test_more_axes_are_as_far_apart_as_the_steps_between_them(source, target, points):
    assert difference_points(source, target) == points


@pytest.mark.parametrize(("axes", "name"), [([2], "S2"), ([1, 0], "S10"), ([0, 1, 2], "S012")])
@pytest.mark.parametrize("kind", KINDS)
def test_what_the_dictionary_does_not_know_is_a_key_error(kind, axes, name):
    with pytest.raises(KeyError) as raised:
        kind(axes).difference(kind([]))
    assert raised.value.args == ((name, "R"),)


@pytest.mark.parametrize("kind", [DimSpec, *KINDS])
def test_a_spec_of_a_dimension_has_the_name_of_its_axes(kind):
    assert [str(kind(axes)) for axes in WAYS.values()] == list(NAMES) == list(WAYS)
    assert [kind(axes).is_replica for axes in WAYS.values()] == [True, False, False, False]


def test_the_eager_one_builds_a_dictionary_for_every_object(built):
    kept = [EagerDimSpec(axes) for axes in WAYS.values()]
    assert built() == 4
    for mine in kept:
        for theirs in kept:
            mine.difference(theirs)
    assert built() == 4


def test_the_lazy_one_builds_a_dictionary_for_every_object_that_is_asked(built):
    first, second, third = (LazyDimSpec([axis]) for axis in (0, 1, 0))
    assert built() == 0
    first.difference(second)
    first.difference(third)
    assert built() == 1
    second.difference(first)
    assert built() == 2


def test_the_shared_one_builds_a_dictionary_for_all_objects_until_it_is_forgotten(built):
    for _ in range(5):
        SharedDimSpec([0]).difference(SharedDimSpec([]))
    assert built() == 1
    SharedDimSpec.forgotten()
    assert built() == 1
    SharedDimSpec([0]).difference(SharedDimSpec([]))
    assert built() == 2


@pytest.mark.parametrize(("kind", "dictionaries"), [(EagerDimSpec, 3), (LazyDimSpec, 0)])
def test_replicated_dimensions_are_one_object(kind, dictionaries, built):
    spec = ShardingSpec(Mesh.of(2, 2), (8,) * 5, {1: [0], 3: [1]}, kind)
    assert built() == dictionaries
    assert len({id(each) for each in spec.sharding_sequence}) == 3
    assert str(spec) == "[R, S0, R, S1, R]"


@given(queries())
def test_a_spec_tells_its_partition_its_name_and_what_a_device_holds(query):
    mesh, shape, partition, _ = query
    spec = ShardingSpec(mesh, shape, {dim: list(axes) for dim, axes in partition}, SharedDimSpec)
    assert spec.partition == partition
    assert str(spec) == sequence_name(len(shape), partition)
    elements = 1
    for size in spec.local_shape():
        elements *= size
    assert elements == local_elements(mesh, shape, partition)


@given(queries())
def test_differences_between_specs_are_the_sum_over_their_dimensions(query):
    mesh, shape, *partitions = query
    source, target = (
        ShardingSpec(mesh, shape, {dim: list(axes) for dim, axes in partition}, SharedDimSpec)
        for partition in partitions
    )
    pairs = zip(source.sharding_sequence, target.sharding_sequence, strict=True)
    points = source.difference(target)
    assert points == sum(DIFFERENCES[str(mine), str(theirs)] for mine, theirs in pairs)
    assert (points == 0) == (dict(query.source) == dict(query.target))


@pytest.mark.parametrize("partition", [{0: [0], 1: [0]}, {2: [0]}, {-1: [0]}, {1: [0]}])
def test_a_spec_that_is_not_possible_is_refused(partition):
    with pytest.raises(PartitionError):
        ShardingSpec(Mesh.of(2, 2), (8, 7), partition, SharedDimSpec)
