"""Build the problems of the dimspec family; check, hash and rate decisions."""

import hashlib
import math
import struct
from collections import Counter
from collections.abc import Mapping
from operator import methodcaller, ne

from harness.contract import InfeasibleDecision
from planners.dimspec.conversion.cheapest import CheapestSearch
from planners.dimspec.conversion.costs import NOTHING, CommSpec, Pattern, step_cost
from planners.dimspec.conversion.partition import (
    PartitionError,
    checked_partition,
    local_elements,
    sequence_name,
)
from planners.dimspec.conversion.search import Conversion
from planners.dimspec.conversion.stream import Query, RecordedAnswer
from planners.dimspec.observer import observe
from planners.dimspec.problem import Answers, StreamProblem, answer, build

__all__ = ["build", "facts", "fingerprint", "observe", "quality", "validate"]

facts = methodcaller("facts")
"""Describe a problem, its size first."""

# The relative difference between sums of the same costs in different orders is below this.
_ROUNDING = 1e-9
_MILLION = 1e6


def fingerprint(decision: Answers) -> str:
    """Return a hash of all specs, steps and exact costs."""
    digest = hashlib.sha256()
    for conversion in decision.conversions:
        path = tuple(spec.partition for spec in conversion.path)
        steps = tuple((str(step.pattern), *step[1:]) for step in conversion.comms)
        digest.update(repr((path, steps)).encode())
        digest.update(struct.pack("3d", *conversion.cost))
    digest.update(struct.pack(f"{len(decision.costs)}d", *decision.costs))
    return digest.hexdigest()[:16]


def validate(problem: StreamProblem, decision: Answers) -> None:
    """Raise InfeasibleDecision if a conversion does not lead from its source to its target."""
    queries, conversions = problem.stream.queries, decision.conversions
    if len(conversions) != len(queries):
        raise InfeasibleDecision(f"{len(conversions)} conversions answer {len(queries)} queries.")
    totals = []
    for number, (query, conversion) in enumerate(zip(queries, conversions, strict=True)):
        if reason := _wrong(query, conversion):
            raise InfeasibleDecision(f"Conversion {number}: {reason}.")
        totals.append(conversion.cost.total)
    if list(decision.costs) != [totals[index] for index in problem.stream.sequence]:
        raise InfeasibleDecision("A call reported another cost than that of its conversion.")


def _wrong(query: Query, conversion: Conversion) -> str:
    source, target = dict(query.source), dict(query.target)
    if not all(math.isfinite(cost) and cost >= 0 for cost in conversion.cost):
        return f"its cost is {conversion.cost}"
    if source == target:
        is_nothing = not conversion.path and not conversion.comms and conversion.cost == NOTHING
        return "" if is_nothing else "it has steps although its source is its target"
    for spec in conversion.path:
        if (spec.mesh, tuple(spec.shape)) != (query.mesh, query.shape):
            return f"its path leads over a tensor of shape {tuple(spec.shape)} on mesh {spec.mesh}"
        try:
            checked_partition(query.mesh, query.shape, spec.partition)
        except PartitionError as error:
            return str(error).rstrip(".")
    layouts = [dict(spec.partition) for spec in conversion.path]
    if len(layouts) < 2 or layouts[0] != source or layouts[-1] != target:
        return "its path does not lead from its source to its target"
    if len(conversion.comms) != len(layouts) - 1:
        return f"{len(conversion.comms)} steps join {len(layouts)} specs"
    for before, step, after in zip(layouts, conversion.comms, layouts[1:], strict=False):
        if _after(before, step) != after:
            return f"{step} does not make {after} of {before}"
    return ""


def _after(before: dict[int, tuple[int, ...]], step: CommSpec) -> dict[int, tuple[int, ...]] | None:
    """Return the partition after a step, or None if the step is not possible.

    A gather removes the last axis of a dimension. A split appends an axis to a dimension. An
    all-to-all does both, with dimensions of at most one axis; if both dimensions are sharded, the
    axis moves from the later one.
    """
    pattern, gather_dim, shard_dim, axis = step
    is_all_to_all = pattern == Pattern.ALL_TO_ALL
    if pattern not in tuple(Pattern) or is_all_to_all == (gather_dim == shard_dim):
        return None
    after = dict(before)
    if pattern != Pattern.SPLIT:
        held = after.pop(gather_dim, ())
        if held[-1:] != (axis,) or (is_all_to_all and len(held) > 1):
            return None
        if held[:-1]:
            after[gather_dim] = held[:-1]
    if pattern != Pattern.GATHER:
        held = after.get(shard_dim, ())
        if held and held[-1] >= axis:
            return None
        if held and is_all_to_all and (len(held) > 1 or gather_dim < shard_dim):
            return None
        after[shard_dim] = (*held, axis)
    return after


def quality(problem: StreamProblem, decision: Answers) -> Mapping[str, float]:
    """Return a decision's total costs, in millions of cost units, and counts of conversions.

    `cheapest_millions` is a proven lower bound: Dijkstra's algorithm over the same steps finds it.
    """
    stream, conversions = problem.stream, decision.conversions
    cheapest = answer(stream, CheapestSearch()).conversions
    paid = list(map(true_cost, stream.queries, conversions))
    least = list(map(true_cost, stream.queries, cheapest))
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
    """Return the summed cost of a conversion's steps, forward plus backward, in cost units.

    Each step counts once, unlike in the compounded costs that ColossalAI reports.
    """
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
