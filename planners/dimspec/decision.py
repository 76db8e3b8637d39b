"""The decision of a stream: how each query was answered last, and the cost of every call."""

import hashlib
import math
import struct
from dataclasses import dataclass

from harness.contract import InfeasibleDecision
from planners.dimspec.answers import Answers
from planners.dimspec.conversion.costs import NOTHING, CommSpec, Pattern
from planners.dimspec.conversion.partition import PartitionError, checked_partition
from planners.dimspec.conversion.search import Conversion
from planners.dimspec.conversion.stream import Query, Stream
from planners.dimspec.problem import DimSpecProblem, StreamProblem


@dataclass(frozen=True, slots=True)
class Construction:
    """What ColossalAI's constructor made, told by a hash of its strategies and their costs."""

    fingerprint: str
    nodes: int
    strategies: int
    resharding_costs: int
    total_resharding_cost: float


Decision = Answers | Construction


def fingerprint(decision: Decision) -> str:
    """Return a hash of the specs and steps of all paths, and of all costs to the last bit."""
    if isinstance(decision, Construction):
        return decision.fingerprint[:16]
    digest = hashlib.sha256()
    for conversion in decision.conversions:
        path = tuple(spec.partition for spec in conversion.path)
        steps = tuple((str(step.pattern), *step[1:]) for step in conversion.comms)
        digest.update(repr((path, steps)).encode())
        digest.update(struct.pack("3d", *conversion.cost))
    digest.update(struct.pack(f"{len(decision.costs)}d", *decision.costs))
    return digest.hexdigest()[:16]


def validate(problem: DimSpecProblem, decision: Decision) -> None:
    """Raise InfeasibleDecision where a path is none from its source to its target.

    What ColossalAI's constructor made is told by a hash alone, so there is nothing to look at.
    """
    if isinstance(problem, StreamProblem) and isinstance(decision, Answers):
        _validate(problem.stream, decision)


def _validate(stream: Stream, answers: Answers) -> None:
    if len(answers.conversions) != len(stream.queries):
        raise InfeasibleDecision(
            f"{len(answers.conversions)} conversions answer {len(stream.queries)} queries."
        )
    totals = []
    for number, (query, conversion) in enumerate(
        zip(stream.queries, answers.conversions, strict=True)
    ):
        if reason := _wrong(query, conversion):
            raise InfeasibleDecision(f"Conversion {number}: {reason}.")
        totals.append(conversion.cost.total)
    if list(answers.costs) != [totals[index] for index in stream.sequence]:
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
    """Return what a step makes of a partition, None where it cannot be taken.

    It takes the last axis of a dimension, puts one at the end of a dimension, or does both with
    dimensions that have no more than one. Of two sharded dimensions the later one gives its axis.
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
