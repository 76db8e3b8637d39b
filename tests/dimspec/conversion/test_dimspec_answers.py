"""Fingerprints, validation and quality of real and of altered answers."""

from collections.abc import Callable
from dataclasses import replace
from math import nan

import pytest
from small_streams import GREEDY, SEARCHES, stream_of

from harness.contract import InfeasibleDecision
from planners.dimspec.conversion.costs import Cost, Pattern
from planners.dimspec.conversion.partition import Mesh, Partition
from planners.dimspec.conversion.search import Conversion
from planners.dimspec.conversion.stream import Query, RecordedAnswer, Stream, all_pairs, once_each
from planners.dimspec.implementation import fingerprint, quality, true_cost, validate
from planners.dimspec.problem import Answers, StreamProblem, answer


class Spec:
    """A sharding spec as any search may return it: only `partition` is specific to it."""

    def __init__(self, partition: Partition) -> None:
        self.mesh, self.shape, self.partition = Mesh.of(2, 2), (8, 8), partition


@pytest.fixture(scope="module")
def stream() -> Stream:
    """Conversions between all pairs of shardings of a small tensor; some are repeated."""
    queries = tuple(all_pairs(Mesh.of(2, 4), (8, 16, 6)))
    return Stream(queries, [*range(len(queries)), 5, 3, 3, 7])


@pytest.fixture(scope="module")
def answers(stream) -> Answers:
    return answer(stream, SEARCHES["eager-dict"]())


def test_a_call_that_reported_another_cost_is_refused(stream, answers):
    for costs in (
        [*answers.costs[:-1], answers.costs[-1] + 1e-9],
        answers.costs[:-1],
        [*answers.costs, 1.0],
        [nan, *answers.costs[1:]],
    ):
        with pytest.raises(InfeasibleDecision, match="reported another cost"):
            validate(StreamProblem(stream), replace(answers, costs=costs))


def test_two_conversions_may_not_change_places(stream, answers):
    conversions = list(answers.conversions)
    conversions[1], conversions[2] = conversions[2], conversions[1]
    with pytest.raises(InfeasibleDecision, match=r"^Conversion 1: its path does not lead "):
        validate(StreamProblem(stream), replace(answers, conversions=conversions))


@pytest.mark.parametrize("name", SEARCHES)
def test_real_answers_are_valid_and_equal_ones_have_equal_fingerprints(name, stream, answers):
    found = answer(stream, SEARCHES[name]())
    validate(StreamProblem(stream), found)
    assert (fingerprint(found) == fingerprint(answers)) == (name in GREEDY)


def changed(change: Callable[[Conversion], Conversion]) -> Callable[[Answers], Answers]:
    """Return a function that applies `change` to one conversion of the answers.

    That conversion has several steps and starts with two sharded dimensions.
    """

    def change_answers(answers: Answers) -> Answers:
        conversions = list(answers.conversions)
        at = next(
            number
            for number, (path, comms, _) in enumerate(conversions)
            if len(set(comms)) > 1 and len(path[0].partition) > 1
        )
        conversions[at] = change(conversions[at])
        return replace(answers, conversions=conversions)

    return change_answers


def of_step(**named: object) -> Callable[[Answers], Answers]:
    return changed(lambda c: c._replace(comms=[c.comms[0]._replace(**named), *c.comms[1:]]))


def of_cost(index: int) -> Callable[[Answers], Answers]:
    def change(conversion: Conversion) -> Conversion:
        cost = list(conversion.cost)
        cost[index] = float.fromhex(cost[index].hex()) * (1 + 2**-52)
        return conversion._replace(cost=Cost(*cost))

    return changed(change)


@pytest.mark.parametrize(
    "change",
    [
        changed(lambda c: c._replace(path=c.path[:-1])),
        changed(lambda c: c._replace(path=[Spec(()), *c.path[1:]])),
        changed(lambda c: c._replace(path=[Spec(c.path[0].partition[::-1]), *c.path[1:]])),
        changed(lambda c: c._replace(comms=c.comms[1:])),
        changed(lambda c: c._replace(comms=c.comms[::-1])),
        of_step(pattern=Pattern.SPLIT),
        of_step(gather_dim=5),
        of_step(shard_dim=5),
        of_step(logical_process_axis=5),
        of_cost(0),
        of_cost(1),
        of_cost(2),
        lambda a: replace(a, costs=[*a.costs[:-1], a.costs[-1] * (1 + 2**-52)]),
        lambda a: replace(a, costs=a.costs[:-1]),
        lambda a: replace(a, costs=[a.costs[1], a.costs[0], *a.costs[2:]]),
        lambda a: replace(a, conversions=a.conversions[:-1]),
        lambda a: replace(a, conversions=a.conversions[::-1]),
    ],
)
def test_the_fingerprint_sees_every_change(change, answers):
    assert fingerprint(change(answers)) != fingerprint(answers)


def test_the_fingerprint_does_not_care_what_holds_the_same(answers):
    same = Answers(
        tuple(
            Conversion(tuple(Spec(spec.partition) for spec in path), tuple(comms), cost)
            for path, comms, cost in answers.conversions
        ),
        tuple(answers.costs),
    )
    assert fingerprint(same) == fingerprint(answers)


@pytest.mark.parametrize("workload", ["resnet50[calls=1000]", "gpt12[calls=1000]"])
def test_on_a_recorded_stream_greed_is_as_recorded_and_the_cheapest_is_not(workload):
    stream = stream_of(f"{workload}/dgx_a100_80gb:4")
    problem = StreamProblem(stream)
    greedy, cheapest = (
        quality(problem, answer(stream, SEARCHES[name]())) for name in ("shared-dict", "optimal")
    )
    assert greedy["unlike_recorded"] == 0
    assert cheapest["unlike_recorded"] > 0
    assert greedy["cheapest_millions"] == cheapest["cheapest_millions"] == cheapest["cost_millions"]
    assert greedy["cost_millions"] > greedy["cheapest_millions"]
    assert greedy["reported_millions"] > greedy["cost_millions"]
    assert cheapest["reported_millions"] == pytest.approx(cheapest["cost_millions"], rel=1e-9)
    assert greedy["dearer_conversions"] > 0 == cheapest["dearer_conversions"]


def test_qualities_are_sums_over_all_calls(stream, answers):
    problem = StreamProblem(stream)
    found = quality(problem, answers)
    least = answer(stream, SEARCHES["optimal"]())
    paid, cheapest, reported = (
        sum(figures[index] for index in stream.sequence)
        for figures in (
            [true_cost(*each) for each in zip(stream.queries, answers.conversions, strict=True)],
            [each.cost.total for each in least.conversions],
            [each.cost.total for each in answers.conversions],
        )
    )
    assert found["cost_millions"] == pytest.approx(paid / 1e6)
    assert found["cheapest_millions"] == pytest.approx(cheapest / 1e6)
    assert found["reported_millions"] == pytest.approx(reported / 1e6)
    assert found["dearer_conversions"] == sum(
        true_cost(query, conversion) > other.cost.total * 1.000001
        for query, conversion, other in zip(
            stream.queries, answers.conversions, least.conversions, strict=True
        )
    )
    assert "unlike_recorded" not in found


@pytest.mark.parametrize(
    "change",
    [
        lambda recorded: recorded._replace(path=(*recorded.path[:-1], "[R, R]")),
        lambda recorded: recorded._replace(patterns=recorded.patterns[::-1]),
        lambda recorded: recorded._replace(
            cost=(recorded.cost[0] * (1 + 2**-52), *recorded.cost[1:])
        ),
    ],
)
def test_one_recorded_answer_that_differs_is_counted(change):
    query = Query(Mesh.of(4, 4), (64, 32), ((1, (0, 1)),), ((0, (0, 1)),))
    stream = once_each([query])
    given = answer(stream, SEARCHES["interned"]())
    (conversion,) = given.conversions
    right = RecordedAnswer(
        ("[R, S01]", "[R, S0]", "[S0, R]", "[S01, R]"),
        tuple(step.pattern.value for step in conversion.comms),
        tuple(conversion.cost),
    )
    for recorded, unlike in ((right, 0), (change(right), 1)):
        problem = StreamProblem(replace(stream, recorded=(recorded,)))
        assert quality(problem, given)["unlike_recorded"] == unlike
