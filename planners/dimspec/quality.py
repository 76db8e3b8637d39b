"""How good conversions are: what their steps truly cost, beside the least that is possible."""

import math
from collections import Counter
from collections.abc import Mapping

from planners.dimspec.answers import Answers, answer
from planners.dimspec.conversion.cheapest import CheapestSearch
from planners.dimspec.conversion.costs import step_cost
from planners.dimspec.conversion.partition import local_elements, sequence_name
from planners.dimspec.conversion.search import Conversion
from planners.dimspec.conversion.stream import Query, RecordedAnswer, Stream
from planners.dimspec.decision import Construction, Decision
from planners.dimspec.problem import DimSpecProblem, StreamProblem

# Sums of the same costs in another order differ by less than this share.
_ROUNDING = 1e-9
_MILLION = 1e6


def quality(problem: DimSpecProblem, decision: Decision) -> Mapping[str, float]:
    """Return the qualities of a decision, summed over all calls, in millions of cost units.

    The cheapest conversion is found by Dijkstra's search over the same steps, so no path that is
    made of them costs less. What ColossalAI's constructor made is told by its sum alone.
    """
    if isinstance(decision, Construction):
        return {"reported_millions": decision.total_resharding_cost / _MILLION}
    assert isinstance(problem, StreamProblem)
    return _quality(problem.stream, decision)


def _quality(stream: Stream, answers: Answers) -> Mapping[str, float]:
    asked = Counter(stream.sequence)
    least = _cheapest(stream)
    cost = cheapest = reported = 0.0
    dearer = 0
    for number, conversion in enumerate(answers.conversions):
        paid = true_cost(stream.queries[number], conversion)
        cost += asked[number] * paid
        cheapest += asked[number] * least[number]
        reported += asked[number] * conversion.cost.total
        dearer += paid > least[number] * (1 + _ROUNDING)
    found: dict[str, float] = {
        "cost_millions": cost / _MILLION,
        "cheapest_millions": cheapest / _MILLION,
        "reported_millions": reported / _MILLION,
        "dearer_conversions": dearer,
    }
    if stream.recorded is not None:
        found["unlike_recorded"] = sum(
            not _is_as_recorded(query, conversion, recorded)
            for query, conversion, recorded in zip(
                stream.queries, answers.conversions, stream.recorded, strict=True
            )
        )
    return found


def true_cost(query: Query, conversion: Conversion) -> float:
    """Return what the steps of a conversion cost in sum, in cost units, forward and backward."""
    mesh, shape = query.mesh, query.shape
    return math.fsum(
        step_cost(
            mesh,
            step.pattern,
            step.logical_process_axis,
            local_elements(mesh, shape, spec.partition),
        ).total
        for spec, step in zip(conversion.path, conversion.comms, strict=False)
    )


def _cheapest(stream: Stream) -> list[float]:
    found = answer(stream, CheapestSearch()).conversions
    return [
        true_cost(query, conversion)
        for query, conversion in zip(stream.queries, found, strict=True)
    ]


def _is_as_recorded(query: Query, conversion: Conversion, recorded: RecordedAnswer) -> bool:
    rank = len(query.shape)
    path = tuple(sequence_name(rank, spec.partition) for spec in conversion.path)
    patterns = tuple(str(step.pattern) for step in conversion.comms)
    return (path, patterns, tuple(conversion.cost)) == tuple(recorded)
