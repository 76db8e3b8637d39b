"""Rate conversions: what their steps truly cost, beside the least that is possible."""

import math
from collections import Counter
from collections.abc import Mapping
from operator import ne

from planners.dimspec.answers import answer
from planners.dimspec.conversion.cheapest import CheapestSearch
from planners.dimspec.conversion.costs import step_cost
from planners.dimspec.conversion.partition import local_elements, sequence_name
from planners.dimspec.conversion.search import Conversion
from planners.dimspec.conversion.stream import Query, RecordedAnswer
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
    stream, conversions = problem.stream, decision.conversions
    cheapest = answer(stream, CheapestSearch()).conversions
    paid, least = (list(map(true_cost, stream.queries, each)) for each in (conversions, cheapest))
    reported = [conversion.cost.total for conversion in conversions]
    asked = Counter(stream.sequence)

    def millions(costs: list[float]) -> float:
        return sum(asked[number] * cost for number, cost in enumerate(costs)) / _MILLION

    found: dict[str, float] = {
        "cost_millions": millions(paid),
        "cheapest_millions": millions(least),
        "reported_millions": millions(reported),
        "dearer_conversions": sum(
            cost > bound * (1 + _ROUNDING) for cost, bound in zip(paid, least, strict=True)
        ),
    }
    if stream.recorded is not None:
        answered = map(_recorded, stream.queries, conversions)
        found["unlike_recorded"] = sum(map(ne, answered, stream.recorded))
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


def _recorded(query: Query, conversion: Conversion) -> RecordedAnswer:
    rank = len(query.shape)
    path = tuple(sequence_name(rank, spec.partition) for spec in conversion.path)
    patterns = tuple(str(step.pattern) for step in conversion.comms)
    return RecordedAnswer(path, patterns, conversion.cost)
