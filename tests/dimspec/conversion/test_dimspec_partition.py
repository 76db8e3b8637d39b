"""Possible partitions are accepted unchanged, and others are refused in a sentence."""

from itertools import permutations
from math import prod

import pytest
from hypothesis import given, strategies as st
from small_streams import meshes, refusal

from planners.dimspec.conversion.partition import (
    Mesh,
    PartitionError,
    all_partitions,
    check_partition,
    checked_partition,
    local_elements,
    sequence_name,
    spec_name,
)

SHAPE = (8, 12, 6)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([(0, [0]), (1, [0])], "Partition {0: [0], 1: [0]} uses mesh axis 0 twice"),
        ([(2, [1, 1])], "uses mesh axis 1 twice"),
        ([(3, [1])], "names dimension 3 of a tensor that has 3"),
        ([(-4, [1])], "names dimension -4"),
        ([(1, [2])], "names mesh axis 2, and mesh 2x4 has 2"),
        ([(0, [0]), (1, [-1])], "names mesh axis -1"),
        ([(2, [1])], "dimension 2, of size 6, between 4 devices"),
        ([(1, [0, 1])], "dimension 1, of size 12, between 8 devices"),
        ([(1, [0]), (1, [1])], "names a dimension twice"),
        ([(1, [0]), (-2, [1])], "names a dimension twice"),
        ([(0, [1, 0])], "in the order 1, 0"),
        ([(0, [])], "dimension 0 without mesh axes"),
    ],
)
def test_what_is_wrong_is_named_in_one_sentence(pairs, said):
    assert said in refusal(PartitionError, checked_partition, Mesh.of(2, 4), SHAPE, pairs)


@pytest.mark.parametrize(
    ("partition", "said"),
    [
        (((0, (0, 0)),), "uses mesh axis 0 twice"),
        (((-1, (1,)),), "names dimension -1"),
        (((2, (1,)),), "which do not divide it"),
    ],
)
def test_a_partition_of_an_object_is_checked_too(partition, said):
    assert said in refusal(PartitionError, check_partition, Mesh.of(2, 4), SHAPE, partition)


def test_a_mesh_axis_is_looked_at_before_what_it_would_divide():
    with pytest.raises(PartitionError, match="mesh axis 1, and mesh 8 has 1, "):
        checked_partition(Mesh.of(8), (7, 7), [(0, [0]), (1, [1])])


def test_negative_dimensions_count_from_the_end_and_the_order_is_kept():
    partition = checked_partition(Mesh.of(2, 4), SHAPE, [(-1, [0]), (-3, [1])])
    assert partition == ((2, (0,)), (0, (1,)))


def test_a_scalar_has_the_one_partition_that_shards_nothing():
    assert checked_partition(Mesh.of(2, 4), (), []) == ()
    assert list(all_partitions(Mesh.of(2, 4), ())) == [()]
    with pytest.raises(PartitionError, match="dimension 0 of a tensor that has 0"):
        checked_partition(Mesh.of(2, 4), (), [(0, [0])])


@pytest.mark.parametrize(
    ("mesh", "shape", "count"),
    [
        ((2, 2), (64,) * 4, 25),
        ((8,), (64,) * 4, 5),
        ((2, 2, 2), (64,) * 4, 125),
        ((2, 2, 2, 2), (64,) * 3, 256),
        ((2, 2), (3, 5, 7), 1),
        ((1, 1), (3, 5), 9),
        ((2, 4), (8, 12, 128, 64), 24),
        ((2, 2), (512, 3, 32, 32), 16),
        ((2, 4), (), 1),
    ],
)
def test_there_are_as_many_partitions_as_divide(mesh, shape, count):
    partitions = list(all_partitions(Mesh.of(*mesh), shape))
    assert len(partitions) == len(set(partitions)) == count


def test_a_size_that_all_devices_do_not_divide_is_sharded_by_some_alone():
    found = list(all_partitions(Mesh.of(2, 4), (12, 64)))
    names = {sequence_name(2, partition) for partition in found}
    assert names == {
        *("[R, R]", "[S0, R]", "[S1, R]", "[R, S0]", "[R, S1]", "[S0, S1]", "[S1, S0]", "[R, S01]")
    }


@given(mesh=meshes(4), shape=st.lists(st.integers(1, 24), max_size=3))
def test_every_partition_is_possible_and_none_is_missing(mesh, shape):
    found = list(all_partitions(mesh, shape))
    assert found[0] == ()
    for partition in found:
        assert checked_partition(mesh, shape, partition) == partition
        assert sorted(partition) == list(partition)
    one_axis = {
        ((dim, (axis,)),)
        for dim, size in enumerate(shape)
        for axis, devices in enumerate(mesh.shape)
        if size % devices == 0
    }
    assert one_axis == {each for each in found if len(each) == 1 and len(each[0][1]) == 1}


@given(mesh=meshes(3), shape=st.lists(st.integers(1, 24), max_size=3), data=st.data())
def test_a_device_holds_its_share(mesh, shape, data):
    partition = data.draw(st.sampled_from(list(all_partitions(mesh, shape))))
    shared_by = prod(mesh.devices(axes) for _, axes in partition)
    assert local_elements(mesh, shape, partition) * shared_by == prod(shape)


whole_numbers = st.integers(-3, 4)


@given(
    mesh=meshes(3),
    shape=st.lists(st.integers(1, 12), max_size=3),
    pairs=st.lists(st.tuples(whole_numbers, st.lists(whole_numbers, max_size=3)), max_size=3),
)
def test_anything_is_either_possible_or_refused_in_one_sentence(mesh, shape, pairs):
    is_outside = any(not -len(shape) <= dim < len(shape) for dim, _ in pairs)
    meant = tuple(sorted((dim % (len(shape) or 1), tuple(axes)) for dim, axes in pairs))
    if not is_outside and meant in set(all_partitions(mesh, shape)):
        assert tuple(sorted(checked_partition(mesh, shape, pairs))) == meant
        return
    assert refusal(PartitionError, checked_partition, mesh, shape, pairs).startswith("Partition {")


def test_the_order_of_dimensions_is_part_of_a_partition():
    pairs = [(0, [0]), (1, [1])]
    found = {checked_partition(Mesh.of(2, 2), SHAPE, order) for order in permutations(pairs)}
    assert len(found) == 2


def test_names_are_those_of_colossalai():
    assert [spec_name(axes) for axes in ((), (0,), (1,), (0, 1))] == ["R", "S0", "S1", "S01"]
    assert sequence_name(3, ((2, (0, 1)),)) == "[R, R, S01]"
    assert sequence_name(2, ((1, (0,)), (0, (1,)))) == "[S1, S0]"
    assert str(Mesh.of(2, 4)) == "2x4"
