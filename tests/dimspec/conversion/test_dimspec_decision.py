"""Validation accepts valid answers, and refuses others in one sentence."""

from contextlib import suppress
from itertools import product
from math import inf, nan

import pytest
from small_streams import candidates, divides, refusal

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
    """A sharding spec as any search may return it."""

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


NO_WAY = "does not lead from its source to its target"
AROUND, NEGATIVE = ((0, (0,)), (1, (7,))), ((0, (0,)), (1, (-1,)))


@pytest.mark.parametrize(
    ("path", "comms", "cost", "said"),
    [
        ([], [], NOTHING, NO_WAY),
        ([FROM], [], PAID, NO_WAY),
        ([TO, FROM], [MOVE], PAID, NO_WAY),
        ([FROM, ()], [gather(0, 0)], PAID, NO_WAY),
        ([(), TO], [split(1, 0)], PAID, NO_WAY),
        ([FROM, TO], [], PAID, "0 steps join 2 specs."),
        ([FROM, TO], [MOVE, MOVE], PAID, "2 steps join 2 specs."),
        ([FROM, TO], [MOVE._replace(logical_process_axis=1)], PAID, "does not make"),
        ([FROM, TO], [MOVE._replace(gather_dim=1, shard_dim=0)], PAID, "does not make"),
        ([FROM, TO], [MOVE._replace(pattern="anything")], PAID, "does not make"),
        ([FROM, TO], [gather(0, 0)], PAID, "does not make"),
        ([FROM, TO], [split(1, 0)], PAID, "does not make"),
        ([FROM, (), TO], [gather(0, 0), split(0, 0)], PAID, "does not make"),
        ([FROM, FROM, TO], [CommSpec(Pattern.ALL_TO_ALL, 0, 0, 0), MOVE], PAID, "does not make"),
        ([FROM, (), TO], [CommSpec(Pattern.GATHER, 0, 1, 0), split(1, 0)], PAID, "does not make"),
        (
            [FROM, ((0, (0, 1)),), ((0, (1,)),), BOTH, TO],
            [split(0, 1), gather(0, 0), split(0, 0), gather(0, 0)],
            PAID,
            "does not make",
        ),
        ([FROM, ((0, (0,)), (1, (0,))), TO], [split(1, 0), gather(0, 0)], PAID, "axis 0 twice"),
        (
            [FROM, ((0, (0,)), (2, (1,))), FROM, TO],
            [split(2, 1), gather(2, 1), MOVE],
            PAID,
            "names dimension 2",
        ),
        ([FROM, AROUND, FROM, TO], [split(1, 7), gather(1, 7), MOVE], PAID, "names mesh axis 7"),
        ([FROM, NEGATIVE, FROM, TO], [split(1, -1), gather(1, -1), MOVE], PAID, "mesh axis -1"),
        ([FROM, TO], [MOVE], Cost(nan, 1.0, 1.0), "its cost is Cost(forward=nan"),
        ([FROM, TO], [MOVE], Cost(1.0, inf, inf), "its cost is Cost(forward=1.0, backward=inf"),
        ([FROM, TO], [MOVE], Cost(1.0, 1.0, -2.0), "its cost is Cost("),
    ],
)
def test_what_is_no_way_is_refused_in_one_sentence(path, comms, cost, said):
    found = refusal(InfeasibleDecision, check, answered(path, comms, cost))
    assert found.startswith("Conversion 0: ")
    assert said in found


def test_a_step_to_what_does_not_divide_is_refused():
    shape, partitions = (2, 3), ((), ((1, (0,)),), ((0, (0,)),))
    query = Query(MESH, shape, partitions[0], partitions[-1])
    path = [Spec(partition, shape) for partition in partitions]
    comms = [split(1, 0), CommSpec(Pattern.ALL_TO_ALL, 1, 0, 0)]
    answers = Answers([Conversion(path, comms, PAID)], [PAID.total])
    problem = StreamProblem(once_each([query]))
    assert "do not divide it" in refusal(InfeasibleDecision, validate, problem, answers)


def test_a_lower_axis_cannot_be_put_behind_a_higher_one():
    source, target = ((0, (1,)),), ((1, (1,)),)
    path = [source, ((0, (1, 0)),), source, target]
    move = MOVE._replace(logical_process_axis=1)
    check(answered([source, target], [move]), source, target)
    answers = answered(path, [split(0, 0), gather(0, 0), move])
    assert "in the order 1, 0" in refusal(InfeasibleDecision, check, answers, source, target)


@pytest.mark.parametrize(
    ("path", "comms", "cost"),
    [
        ([FROM, TO, FROM], [MOVE, MOVE._replace(gather_dim=1, shard_dim=0)], PAID),
        ([FROM], [], NOTHING),
        ([], [], PAID),
    ],
)
def test_where_nothing_is_to_be_done_nothing_may_be_done(path, comms, cost):
    said = refusal(InfeasibleDecision, check, answered(path, comms, cost), FROM, FROM)
    assert "it has steps although its source is its target" in said
    check(answered([], [], NOTHING), FROM, FROM)


@pytest.mark.parametrize(("shape", "mesh"), [((16, 16), MESH), (SHAPE, Mesh.of(4, 2))])
def test_a_path_of_another_tensor_is_refused(shape, mesh):
    conversion = Conversion([Spec(FROM, shape, mesh), Spec(TO, shape, mesh)], [MOVE], PAID)
    said = refusal(InfeasibleDecision, check, Answers([conversion], [PAID.total]))
    assert f"a tensor of shape {shape} on mesh {mesh}" in said


@pytest.mark.parametrize(
    ("mesh", "shape"), [(MESH, SHAPE), (MESH, (8, 8, 3)), (Mesh.of(2, 2, 2), (8, 8))]
)
def test_a_step_is_valid_exactly_where_colossalai_takes_it(mesh, shape):
    """Other steps are invalid: the bound, made from ColossalAI's steps, does not hold for them."""
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
    said = refusal(InfeasibleDecision, check, Answers([], []))
    assert said == "0 conversions answer 1 queries."
