"""Asking a search all that a stream asks."""

from collections.abc import Callable
from typing import Any, Protocol

from harness.registry import NotApplicable, Prepared
from planners.dimspec.decision import Answers
from planners.dimspec.partition import Mesh, Partition
from planners.dimspec.problem import ConstructorProblem, DimSpecProblem
from planners.dimspec.search import Conversion
from planners.dimspec.stream import Stream


class Search(Protocol):
    """What answers questions; its specs are its own."""

    def spec(self, mesh: Mesh, shape: tuple[int, ...], partition: Partition) -> Any:
        """Return a sharding spec."""

    def convert(self, source: Any, target: Any) -> Conversion:
        """Return the conversion of one spec into another of the same tensor."""


def answer(stream: Stream, search: Search) -> Answers:
    """Ask a search all that a stream asks; specs are made once for each partition of a tensor."""
    specs: dict[tuple[Mesh, tuple[int, ...], Partition], Any] = {}

    def spec(mesh: Mesh, shape: tuple[int, ...], partition: Partition) -> Any:
        key = mesh, shape, partition
        if key not in specs:
            specs[key] = search.spec(*key)
        return specs[key]

    asked = [
        (spec(mesh, shape, source), spec(mesh, shape, target))
        for mesh, shape, source, target in stream.questions
    ]
    conversions: list[Any] = [None] * len(asked)
    costs = []
    convert = search.convert
    for index in stream.sequence:
        source, target = asked[index]
        conversion = conversions[index] = convert(source, target)
        costs.append(conversion.cost.total)
    return Answers(conversions, costs)


def prepare(problem: DimSpecProblem, search: Callable[[], Search]) -> Prepared[Answers]:
    """Return a stream ready to be asked, each time of a search that knows nothing yet.

    Raises:
        NotApplicable: the problem is ColossalAI's constructor, which runs in a process of its own.
    """
    if isinstance(problem, ConstructorProblem):
        raise NotApplicable(
            "It answers conversions; strategies are made by ColossalAI's own constructor, in the "
            "variants named after it."
        )
    stream = problem.stream
    return Prepared(run=lambda: answer(stream, search()))
