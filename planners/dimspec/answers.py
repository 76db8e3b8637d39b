"""Answers to a stream of conversions, and how a search is asked for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from harness.contract import NotApplicable, Prepared
from planners.dimspec.conversion.partition import Mesh, Partition
from planners.dimspec.conversion.search import Conversion
from planners.dimspec.conversion.stream import Stream
from planners.dimspec.problem import ConstructorProblem, DimSpecProblem


class Search(Protocol):
    """Anything that answers queries; its specs are its own."""

    def spec(self, mesh: Mesh, shape: tuple[int, ...], partition: Partition) -> Any:
        """Return a sharding spec."""

    def convert(self, source: Any, target: Any) -> Conversion:
        """Return the conversion of one spec into another of the same tensor."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The last conversion for each query, and the total cost that every call reported.

    ColossalAI's constructor keeps no more than the cost of a call either.
    """

    conversions: Sequence[Conversion]
    costs: Sequence[float]


def answer(stream: Stream, search: Search) -> Answers:
    """Make the specs of a stream and ask a search all that the stream asks."""
    specs = [search.spec(*spec) for spec in stream.specs]
    pairs = stream.pairs
    conversions: list[Any] = [None] * len(pairs)
    costs = []
    convert = search.convert
    for index in stream.sequence:
        source, target = pairs[index]
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
    stream = problem.stream
    assert len(stream.pairs) == len(stream.queries)  # numbered here, where nothing is timed
    return Prepared(run=lambda: answer(stream, search()))
