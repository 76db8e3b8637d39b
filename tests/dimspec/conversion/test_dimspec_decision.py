"""What is a valid answer, and what is said of one that is not."""

from contextlib import suppress
from itertools import product
from math import inf, nan

import pytest
from small_streams import candidates, divides, is_a_sentence

from harness.contract import InfeasibleDecision
from planners.dimspec.conversion.costs import NOTHING, CommSpec, Cost, Pattern
from planners.dimspec.conversion.partition import Mesh, Partition, all_partitions
from planners.dimspec.conversion.search import Conversion
from planners.dimspec.conversion.stream import Query, once_each
from planners.dimspec.implementation import validate
from planners.dimspec.problem import Answers, StreamProblem

MESH = Mesh.of(2, 2)
SHAPE = (8, 8)
FROM, TO = ((0, (0,)),), ((1, (0,)),)
BOTH = ((0, (0,)), (1, (1,)))
MOVE = CommSpec(Pattern.ALL_TO_ALL, 0, 1, 0)
PAID = Cost(1.0, 2.0, 3.0)


class Spec:
    """A spec as any search may give it back."""

    def __init__(
        self, partition: Partition, shape: tuple[int, ...] = SHAPE, mesh: Mesh = MESH
    ) -> None:
        self.mesh, self.shape, self.partition = mesh, shape, partition


def gather(dim, axis):
    return CommSpec(Pattern.GATHER, dim, dim, axis)


def split(dim, axis):
    return CommSpec(Pattern.SPLIT, dim, dim, axis)


def answered(path, comms, cost=PAID) -> Answers:
    conversion = Conversion([Spec(partition) for partition in path], comms, cost)
    return Answers([conversion], [cost.total])


def check(answers: Answers, source: Partition = FROM, target: Partition = TO) -> None:
    validate(StreamProblem(once_each([Query(MESH, SHAPE, source, target)])), answers)


RIGHT = {
    "one step": ([FROM, TO], [MOVE]),
    "over nothing": ([FROM, (), TO], [gather(0, 0), split(1, 0)]),
    "around": (
        [FROM, BOTH, ((1, (1,)),), (), TO],
        [split(1, 1), gather(0, 0), gather(1, 1), split(1, 0)],
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_path_of_legal_steps_is_valid_whichever_it_is(name):
    check(answered(*RIGHT[name]))


def test_the_order_of_dimensions_does_not_make_a_path_invalid():
    way = [((1, (1,)), (0, (0,))), ((1, (1,)),)]
    check(answered(way, [gather(0, 0)]), BOTH, ((1, (1,)),))


@pytest.mark.parametrize(
    ("path", "comms", "cost", "said"),
    [
        ([], [], NOTHING, "its path does not lead from its source to its target."),
        ([FROM], [], PAID, "its path does not lead from its source to its target."),
        ([TO, FROM], [MOVE], PAID, "its path does not lead from its source to its target."),
        ([FROM, ()], [gather(0, 0)], PAID, "its path does not lead from its source to its target."),
        ([(), TO], [split(1, 0)], PAID, "its path does not lead from its source to its target."),
        ([FROM, TO], [], PAID, "0 steps join 2 specs."),
        ([FROM, TO], [MOVE, MOVE], PAID, "2 steps join 2 specs."),
        ([FROM, TO], [MOVE._replace(logical_process_axis=1)], PAID, "does not make"),
        ([FROM, TO], [MOVE._replace(gather_dim=1, shard_dim=0)], PAID, "does not make"),
        ([FROM, TO], [gather(0, 0)], PAID, "does not make"),
        ([FROM, TO], [split(1, 0)], PAID, "does not make"),
        ([FROM, (), TO], [gather(0, 0), split(0, 0)], PAID, "does not make"),
        (
            [FROM, ((0, (0, 1)),), ((0, (1,)),), BOTH, TO],
            [split(0, 1), gather(0, 0), split(0, 0), gather(0, 0)],
            PAID,
            "does not make",
        ),
        (
            [FROM, ((0, (0,)), (1, (0,))), TO],
            [split(1, 0), gather(0, 0)],
            PAID,
            "Partition {0: [0], 1: [0]} uses mesh axis 0 twice.",
        ),
        (
            [FROM, ((0, (0,)), (2, (1,))), FROM, TO],
            [split(2, 1), gather(2, 1), MOVE],
            PAID,
            "Partition {0: [0], 2: [1]} names dimension 2 of a tensor that has 2, counted from 0.",
        ),
        ([FROM, TO], [MOVE], Cost(nan, 1.0, 1.0), "its cost is Cost(forward=nan"),
        ([FROM, TO], [MOVE], Cost(1.0, inf, inf), "its cost is Cost(forward=1.0, backward=inf"),
        ([FROM, TO], [MOVE], Cost(1.0, 1.0, -2.0), "its cost is Cost("),
    ],
)
def test_what_is_no_way_is_refused_in_one_sentence(path, comms, cost, said):
    with pytest.raises(InfeasibleDecision) as refused:
        check(answered(path, comms, cost))
    assert str(refused.value).startswith("Conversion 0: ")
    assert said in str(refused.value)
    assert is_a_sentence(str(refused.value))


def test_a_step_to_what_does_not_divide_is_refused():
    shape, partitions = (2, 3), ((), ((1, (0,)),), ((0, (0,)),))
    query = Query(MESH, shape, partitions[0], partitions[-1])
    path = [Spec(partition, shape) for partition in partitions]
    comms = [split(1, 0), CommSpec(Pattern.ALL_TO_ALL, 1, 0, 0)]
    answers = Answers([Conversion(path, comms, PAID)], [PAID.total])
    with pytest.raises(InfeasibleDecision) as refused:
        validate(StreamProblem(once_each([query])), answers)
    assert str(refused.value) == (
        "Conversion 0: Partition {1: [0]} shares dimension 1, of size 3, between 2 devices, which "
        "do not divide it."
    )


def test_a_lower_axis_cannot_be_put_behind_a_higher_one():
    source, target = ((0, (1,)),), ((1, (1,)),)
    path = [source, ((0, (1, 0)),), source, target]
    move = MOVE._replace(logical_process_axis=1)
    check(answered([source, target], [move]), source, target)
    with pytest.raises(InfeasibleDecision) as refused:
        check(answered(path, [split(0, 0), gather(0, 0), move]), source, target)
    assert str(refused.value) == (
        "Conversion 0: Partition {0: [1, 0]} shards dimension 0 by mesh axes in the order 1, 0; a "
        "conversion knows rising axes only."
    )


@pytest.mark.parametrize(
    ("path", "comms", "cost"),
    [
        ([FROM, TO, FROM], [MOVE, MOVE._replace(gather_dim=1, shard_dim=0)], PAID),
        ([FROM], [], NOTHING),
        ([], [], PAID),
    ],
)
def test_where_nothing_is_to_be_done_nothing_may_be_done(path, comms, cost):
    with pytest.raises(InfeasibleDecision) as refused:
        check(answered(path, comms, cost), FROM, FROM)
    assert str(refused.value) == ("Conversion 0: it has steps although its source is its target.")
    check(answered([], [], NOTHING), FROM, FROM)


AROUND = ((0, (0,)), (1, (7,)))


@pytest.mark.parametrize(
    ("path", "comms", "said"),
    [
        (
            [FROM, AROUND, FROM, TO],
            [split(1, 7), gather(1, 7), MOVE],
            "Partition {0: [0], 1: [7]} names mesh axis 7, and mesh 2x2 has 2, counted from 0.",
        ),
        (
            [FROM, ((0, (0,)), (1, (-1,))), FROM, TO],
            [split(1, -1), gather(1, -1), MOVE],
            "Partition {0: [0], 1: [-1]} names mesh axis -1, and mesh 2x2 has 2, counted from 0.",
        ),
        (
            [FROM, FROM, TO],
            [CommSpec(Pattern.ALL_TO_ALL, 0, 0, 0), MOVE],
            "does not make {0: (0,)} of {0: (0,)}.",
        ),
        (
            [FROM, (), TO],
            [CommSpec(Pattern.GATHER, 0, 1, 0), split(1, 0)],
            "does not make {} of {0: (0,)}.",
        ),
        ([FROM, TO], [MOVE._replace(pattern="anything")], "does not make {1: (0,)} of {0: (0,)}."),
    ],
    ids=[
        "an axis that does not exist",
        "a negative axis",
        "a move to where it is",
        "a gather of two dimensions",
        "an unknown pattern",
    ],
)
def test_what_is_no_step_is_refused(path, comms, said):
    with pytest.raises(InfeasibleDecision) as refused:
        check(answered(path, comms))
    assert said in str(refused.value)
    assert is_a_sentence(str(refused.value))


@pytest.mark.parametrize(
    ("shape", "mesh", "said"),
    [
        ((16, 16), MESH, "a tensor of shape (16, 16) on mesh 2x2."),
        (SHAPE, Mesh.of(4, 2), "a tensor of shape (8, 8) on mesh 4x2."),
    ],
)
def test_a_path_of_another_tensor_is_refused(shape, mesh, said):
    conversion = Conversion([Spec(FROM, shape, mesh), Spec(TO, shape, mesh)], [MOVE], PAID)
    with pytest.raises(InfeasibleDecision) as refused:
        check(Answers([conversion], [PAID.total]))
    assert str(refused.value) == f"Conversion 0: its path leads over {said}"


@pytest.mark.parametrize(
    ("mesh", "shape"), [(MESH, SHAPE), (MESH, (8, 8, 3)), (Mesh.of(2, 2, 2), (8, 8))]
)
def test_a_step_is_valid_exactly_where_colossalai_takes_it(mesh, shape):
    """A step that it does not have may be cheaper than the bound, which is made of its own."""
    partitions = list(all_partitions(mesh, shape))
    dims, axes = range(len(shape)), range(len(mesh.shape))
    comms = [CommSpec(*step) for step in product(Pattern, dims, dims, axes)]
    valid, known = set(), set()
    for source in partitions:
        known |= {
            (source, each.step, tuple(sorted(each.partition)))
            for each in candidates(len(mesh.shape), len(shape), source)
            if divides(mesh, shape, each.partition)
        }
        for target, comm in product(partitions, comms):
            if source == target:
                continue
            path = [Spec(source, shape, mesh), Spec(target, shape, mesh)]
            answers = Answers([Conversion(path, [comm], PAID)], [PAID.total])
            problem = StreamProblem(once_each([Query(mesh, shape, source, target)]))
            with suppress(InfeasibleDecision):
                validate(problem, answers)
                valid.add((source, (str(comm.pattern), *comm[1:]), target))
    assert valid == known


def test_a_query_without_an_answer_is_refused():
    with pytest.raises(InfeasibleDecision) as refused:
        check(Answers([], []))
    assert str(refused.value) == "0 conversions answer 1 queries."
