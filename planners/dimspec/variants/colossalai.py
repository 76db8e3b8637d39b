"""Variants that run real ColossalAI releases in child processes."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from harness.contract import Measured, Prepared, Upstream, is_observing
from planners.dimspec.conversion.costs import CommSpec, Cost
from planners.dimspec.conversion.partition import Mesh, Partition
from planners.dimspec.conversion.search import Conversion
from planners.dimspec.conversion.stream import Query
from planners.dimspec.family import FAMILY
from planners.dimspec.problem import (
    Answers,
    Construction,
    ConstructorProblem,
    Decision,
    DimSpecProblem,
)
from planners.dimspec.variants.searches import CLAIM

_DRIVER = Path(__file__).parents[1] / "upstream" / "driver.py"
_BEFORE = "colossalai-0.4.0"
_AFTER = "colossalai-0.4.1"


@FAMILY.variant(_BEFORE, source="ColossalAI 0.4.0", same_as="eager-dict", upstream=_BEFORE)
def before(problem: DimSpecProblem) -> "Prepared[Decision]":
    """ColossalAI 0.4.0, the last release before hpcaitech/ColossalAI#5446."""
    return _asked(problem, _BEFORE)


@FAMILY.variant(
    _AFTER, source="ColossalAI 0.4.1", same_as="eager-dict", upstream=_AFTER, claim=CLAIM
)
def after(problem: DimSpecProblem) -> "Prepared[Decision]":
    """ColossalAI 0.4.1, the first release with hpcaitech/ColossalAI#5446."""
    return _asked(problem, _AFTER)


@FAMILY.variant(f"{_AFTER}+interned", source="shardbench", same_as="eager-dict", upstream=_AFTER)
def after_interned(problem: DimSpecProblem) -> "Prepared[Decision]":
    """ColossalAI 0.4.1, with conversions from our search `interned`."""
    return _asked(problem, _AFTER, answered_by="interned")


def _asked(
    problem: DimSpecProblem, release: str, answered_by: str = "colossalai"
) -> Prepared[Decision]:
    if isinstance(problem, ConstructorProblem):
        request = {"kind": "constructor", "model": problem.model, "mesh_shape": problem.mesh.shape}
    else:
        stream = problem.stream
        queries = msgspec.to_builtins(stream.queries)
        request = {"kind": "stream", "queries": queries, "sequence": [*stream.sequence]}
    upstream = Upstream(release, _DRIVER)

    def run() -> Measured[Decision]:
        answer = upstream.ask(request | {"answered_by": answered_by, "count": is_observing()})
        decision: Decision
        if isinstance(problem, ConstructorProblem):
            decision = msgspec.convert(answer, Construction)
        else:
            received = msgspec.convert(answer["answers"], list[_ReceivedAnswer])
            pairs = zip(problem.stream.queries, received, strict=True)
            conversions = [found.conversion(query) for query, found in pairs]
            decision = Answers(conversions, answer["costs"])
        return Measured(decision, answer["wall_s"], answer["cpu_s"], counters=answer["counters"])

    return Prepared(run, close=upstream.close)


class _ReceivedSpec(NamedTuple):
    """A sharding spec that the child process returned."""

    mesh: Mesh
    shape: tuple[int, ...]
    partition: Partition


class _ReceivedAnswer(msgspec.Struct):
    """The answer to a query that the child process returned."""

    path: tuple[Partition, ...]
    comms: tuple[CommSpec, ...]
    cost: Cost

    def conversion(self, query: Query) -> Conversion:
        """Return the answer as a conversion, with specs of the query's mesh and shape."""
        path = tuple(_ReceivedSpec(query.mesh, query.shape, partition) for partition in self.path)
        return Conversion(path, self.comms, self.cost)
