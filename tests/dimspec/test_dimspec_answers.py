"""Answers that are wrong are refused, and every change of an answer changes its fingerprint."""

from dataclasses import replace
from math import nan

import pytest
from small_streams import SEARCHES, problem_of

from harness.contract import InfeasibleDecision
from planners.dimspec.conversion.steps import (
    ALL_TO_ALL,
    GATHER,
    NO_CONVERSION,
    NOTHING,
    SPLIT,
    CommSpec,
    Conversion,
    Cost,
    Mesh,
)
from planners.dimspec.implementation import fingerprint, quality, validate
from planners.dimspec.problem import Answers, Query, RecordedAnswer, answer, once_each

MESH = Mesh.of(2, 2)
FROM, TO = ((0, (0,)),), ((1, (0,)),)
BOTH = ((0, (0,)), (1, (1,)))
MOVE = CommSpec(ALL_TO_ALL, 0, 1, 0)
PAID = Cost(1.0, 2.0, 3.0)


def gather(dim, axis):
    return CommSpec(GATHER, dim, dim, axis)


def split(dim, axis):
    return CommSpec(SPLIT, dim, dim, axis)


def check(path, comms, cost=PAID, source=FROM, target=TO, shape=(8, 8)):
    conversion = Conversion(tuple(path), tuple(comms), cost)
    stream = once_each([Query(MESH, shape, source, target)])
    validate(stream, Answers([conversion], [cost.total]))


@pytest.mark.parametrize(
    ("path", "comms"),
    [
        ([FROM, TO], [MOVE]),
        ([FROM, (), TO], [gather(0, 0), split(1, 0)]),
        (
            [FROM, BOTH, ((1, (1,)),), (), TO],
            [split(1, 1), gather(0, 0), gather(1, 1), split(1, 0)],
        ),
    ],
)
def test_any_path_of_possible_steps_is_valid(path, comms):
    """A path need not be short."""
    check(path, comms)


NO_WAY = "does not lead from its source to its target"
NO_STEP = "does not make"


@pytest.mark.parametrize(
    ("path", "comms", "cost", "said"),
    [
        ([], [], NOTHING, NO_WAY),
        ([TO, FROM], [MOVE], PAID, NO_WAY),
        ([FROM, ()], [gather(0, 0)], PAID, NO_WAY),
        ([FROM, TO], [], PAID, "0 steps join 2 partitions."),
        ([FROM, TO], [MOVE._replace(logical_process_axis=1)], PAID, NO_STEP),
        ([FROM, TO], [MOVE._replace(pattern="anything")], PAID, NO_STEP),
        ([FROM, (), TO], [gather(0, 0), split(0, 0)], PAID, NO_STEP),
        (
            [FROM, ((0, (0,)), (1, (7,))), FROM, TO],
            [split(1, 7), gather(1, 7), MOVE],
            PAID,
            NO_STEP,
        ),
        ([FROM, TO], [MOVE], Cost(nan, 1.0, 1.0), "its cost is Cost(forward=nan"),
        ([FROM, TO], [MOVE], Cost(1.0, 1.0, -2.0), "its cost is Cost("),
    ],
)
def test_a_wrong_path_is_refused(path, comms, cost, said):
    """The sentence names the conversion and its fault."""
    with pytest.raises(InfeasibleDecision, match=r"^Conversion 0: ") as refused:
        check(path, comms, cost)
    assert said in str(refused.value)


def test_a_step_that_divides_no_size_is_refused():
    """A tensor of size 3 cannot be shared between two devices, not even on the way."""
    ends = {"source": (), "target": FROM, "shape": (2, 3)}
    with pytest.raises(InfeasibleDecision, match="does not divide"):
        check([(), TO, FROM], [split(1, 0), CommSpec(ALL_TO_ALL, 1, 0, 0)], **ends)


def test_nothing_may_be_done_where_nothing_is_to_be_done():
    """Equal shardings have one valid answer."""
    check(*NO_CONVERSION, target=FROM)
    with pytest.raises(InfeasibleDecision, match="its source is its target"):
        check([FROM, (), FROM], [gather(0, 0), split(0, 0)], target=FROM)


def changed(**fields):
    """Return a change to the first conversion of several steps."""

    def change(answers):
        conversions = list(answers.conversions)
        number = next(n for n, made in enumerate(conversions) if len(made.comms) > 1)
        made = conversions[number]
        new = {name: function(getattr(made, name)) for name, function in fields.items()}
        conversions[number] = made._replace(**new)
        return replace(answers, conversions=conversions)

    return change


def a_bit_more(field):
    return lambda cost: cost._replace(**{field: getattr(cost, field) * (1 + 2**-52)})


@pytest.mark.parametrize(
    "change",
    [
        changed(path=lambda path: path[:-1]),
        changed(comms=lambda comms: (comms[0]._replace(gather_dim=5), *comms[1:])),
        changed(cost=a_bit_more("forward")),
        changed(cost=a_bit_more("total")),
        lambda a: replace(a, costs=[*a.costs[:-2], a.costs[-2] * (1 + 2**-52), a.costs[-1]]),
        lambda a: replace(a, costs=a.costs[:-1]),
        lambda a: replace(a, conversions=a.conversions[::-1]),
    ],
)
def test_every_change_is_refused_or_changes_the_fingerprint(change):
    """A path, a step, a bit of a cost, and the cost that a call reported all count."""
    stream = problem_of("all-pairs[shape=8x16,mesh=2x4]/dgx_a100_80gb:8")
    answers = answer(stream, SEARCHES["interned"]())
    assert fingerprint(change(answers)) != fingerprint(answers)
    validate(stream, answers)
    if change(answers).costs != answers.costs:
        with pytest.raises(InfeasibleDecision, match="reported another cost"):
            validate(stream, change(answers))


@pytest.mark.parametrize(
    "change",
    [
        lambda recorded: recorded._replace(path=(*recorded.path[:-1], "[R, R]")),
        lambda recorded: recorded._replace(patterns=recorded.patterns[::-1]),
        lambda recorded: recorded._replace(cost=a_bit_more("total")(recorded.cost)),
    ],
)
def test_an_answer_unlike_the_recorded_one_is_counted(change):
    """Names of shardings, patterns and all bits of the cost are compared."""
    stream = once_each([Query(Mesh.of(4, 4), (64, 32), ((1, (0, 1)),), ((0, (0, 1)),))])
    answers = answer(stream, SEARCHES["interned"]())
    patterns = tuple(step.pattern for step in answers.conversions[0].comms)
    path = ("[R, S01]", "[R, S0]", "[S0, R]", "[S01, R]")
    recorded = RecordedAnswer(path, patterns, answers.conversions[0].cost)
    for told, unlike in ((recorded, 0), (change(recorded), 1)):
        found = quality(replace(stream, recorded=(told,)), answers)
        assert found["unlike_recorded"] == unlike
