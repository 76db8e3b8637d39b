"""Variants that run real ColossalAI releases in child processes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from harness.contract import Prepared, ask_upstream
from planners.dimspec.conversion.costs import CommSpec, Cost
from planners.dimspec.conversion.partition import Mesh, Partition
from planners.dimspec.conversion.search import Conversion
from planners.dimspec.conversion.stream import Query
from planners.dimspec.family import FAMILY
from planners.dimspec.problem import Answers, StreamProblem
from planners.dimspec.variants.searches import CLAIM

_DRIVER = Path(__file__).parents[1] / "upstream" / "driver.py"
_BEFORE = "colossalai-0.4.0"
_AFTER = "colossalai-0.4.1"


@FAMILY.variant(_BEFORE, source="ColossalAI 0.4.0", same_as="eager-dict", upstream=_BEFORE)
def before(problem: StreamProblem) -> Prepared[Answers]:
    """ColossalAI 0.4.0, the last release before hpcaitech/ColossalAI#5446."""
    return _asked(problem, _BEFORE)


@FAMILY.variant(
    _AFTER, source="ColossalAI 0.4.1", same_as="eager-dict", upstream=_AFTER, claim=CLAIM
)
def after(problem: StreamProblem) -> Prepared[Answers]:
    """ColossalAI 0.4.1, the first release with hpcaitech/ColossalAI#5446."""
    return _asked(problem, _AFTER)


@FAMILY.variant(f"{_AFTER}+interned", source="shardbench", same_as="eager-dict", upstream=_AFTER)
def after_interned(problem: StreamProblem) -> Prepared[Answers]:
    """ColossalAI 0.4.1, with conversions from our search `interned`."""
    return _asked(problem, _AFTER, answered_by="interned")


def _asked(
    problem: StreamProblem, release: str, answered_by: str = "colossalai"
) -> Prepared[Answers]:
    return ask_upstream(problem, release, _DRIVER, {"answered_by": answered_by}, _translated)


def _translated(
    problem: StreamProblem,
) -> tuple[Mapping[str, Any], Callable[[Mapping[str, Any]], Answers]]:
    """Return the request for a stream, and the reader of its answer."""
    queries, sequence = problem.stream.queries, problem.stream.sequence

    def read(answer: Mapping[str, Any]) -> Answers:
        received = msgspec.convert(answer["answers"], list[_ReceivedAnswer])
        pairs = zip(queries, received, strict=True)
        return Answers([found.conversion(query) for query, found in pairs], answer["costs"])

    request = {"kind": "stream", "queries": msgspec.to_builtins(queries), "sequence": [*sequence]}
    return request, read


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
