"""Asking a search all that a stream asks."""

from collections.abc import Callable
from typing import Any, Protocol

from harness.contract import NotApplicable, Prepared
from planners.dimspec.conversion.partition import Mesh, Partition
from planners.dimspec.conversion.search import Conversion
from planners.dimspec.conversion.stream import Stream
from planners.dimspec.decision import Answers
from planners.dimspec.problem import ConstructorProblem, DimSpecProblem


class Search(Protocol):
    """What answers questions; its specs are its own."""

    def spec(self, mesh: Mesh, shape: tuple[int, ...], partition: Partition) -> Any:
        """Return a sharding spec."""

    def convert(self, source: Any, target: Any) -> Conversion:
        """Return the conversion of one spec into another of the same tensor."""


class Asked:
    """A stream with its specs told apart: one for each partition of a tensor, asked in pairs."""

    def __init__(self, stream: Stream) -> None:
        numbers: dict[tuple[Mesh, tuple[int, ...], Partition], int] = {}
        self.sequence = stream.sequence
        self.pairs = [
            (
                numbers.setdefault((mesh, shape, source), len(numbers)),
                numbers.setdefault((mesh, shape, target), len(numbers)),
            )
            for mesh, shape, source, target in stream.questions
        ]
        self.specs = tuple(numbers)


def answer(stream: Stream, search: Search) -> Answers:
    """Ask a search all that a stream asks."""
    return ask(Asked(stream), search)


def ask(asked: Asked, search: Search) -> Answers:
    """Make the specs of a stream and ask a search all that the stream asks."""
    specs = [search.spec(*spec) for spec in asked.specs]
    conversions: list[Any] = [None] * len(asked.pairs)
    costs = []
    convert = search.convert
    for index in asked.sequence:
        source, target = asked.pairs[index]
        conversion = conversions[index] = convert(specs[source], specs[target])
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
    asked = Asked(problem.stream)
    return Prepared(run=lambda: ask(asked, search()))
