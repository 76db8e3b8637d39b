"""Problems of the dimspec family, built from workloads, and the timed calls on them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from harness.contract import Prepared, Topology, UpstreamProblem, UsageError, WorkloadSpec
from planners.dimspec import workloads
from planners.dimspec.conversion.partition import Mesh, Partition, all_partitions
from planners.dimspec.conversion.search import Conversion
from planners.dimspec.conversion.stream import (
    Stream,
    all_pairs,
    batch_of_eight,
    once_each,
    random_queries,
)
from planners.dimspec.stream_file import read_stream


@dataclass(frozen=True, slots=True)
class StreamProblem:
    """A stream of conversions that a search has to find, one after another."""

    stream: Stream

    def facts(self) -> dict[str, float | str]:
        """Return facts for reports; `conversions`, the first one, is the problem size."""
        facts: dict[str, float | str] = {
            "conversions": len(self.stream.sequence),
            "distinct": len(self.stream.queries),
            "mesh": self.stream.meshes,
        }
        if self.stream.left_out:
            facts["left out"] = self.stream.left_out
        return facts


def build(spec: WorkloadSpec, topology: Topology) -> StreamProblem | UpstreamProblem:
    """Return the problem of a workload; raises UsageError for an invalid workload or mesh.

    ColossalAI itself builds the strategies of a model.
    """
    asked = workloads.parameters_of(spec)
    if isinstance(asked, workloads.ConstructorParameters):
        mesh = Mesh.of(*workloads.mesh_shape(spec, asked, topology))
        return UpstreamProblem(
            {"model": asked.model, "mesh": str(mesh)},
            {"kind": "constructor", "model": asked.model, "mesh_shape": mesh.shape},
        )
    return StreamProblem(stream_of(spec, topology))


def stream_of(spec: WorkloadSpec, topology: Topology | None) -> Stream:
    """Return the stream of a workload, on the mesh that `mesh_shape` returns.

    Raises UsageError if the mesh is undetermined or invalid, or if the workload is a model.
    """
    match asked := workloads.parameters_of(spec):
        case workloads.StreamParameters():
            return read_stream(
                workloads.stream_path(spec),
                lambda recorded: workloads.mesh_shape(spec, asked, topology, recorded),
                asked.calls,
            )
        case workloads.RandomParameters():
            return once_each(random_queries(asked.conversions, asked.seed))
        case workloads.AllPairsParameters():
            mesh = Mesh.of(*workloads.mesh_shape(spec, asked, topology))
            shape = asked.shape or (workloads.SIZE,) * (asked.rank or workloads.DEFAULT_RANK)
            conversions = sum(1 for _ in all_partitions(mesh, shape)) ** 2
            if conversions > workloads.MOST_CONVERSIONS:
                raise UsageError(
                    f"Workload '{spec}' makes {conversions:,} conversions, more than "
                    f"{workloads.MOST_CONVERSIONS:,}; ask for a lower rank or a smaller mesh."
                )
            return once_each(all_pairs(mesh, shape))
        case workloads.ConstructorParameters():
            raise UsageError(
                f"Workload '{spec}' is a model; its conversions are known once ColossalAI has run."
            )
    return once_each(batch_of_eight())


class Search(Protocol):
    """The interface of searches for conversions; each has its own type of spec."""

    def spec(self, mesh: Mesh, shape: tuple[int, ...], partition: Partition) -> Any:
        """Return a sharding spec of this search's type."""

    def convert(self, source: Any, target: Any) -> Conversion:
        """Return the conversion between two specs of one tensor."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The last conversion of each query, and the reported total cost of each call in order."""

    conversions: Sequence[Conversion]
    costs: Sequence[float]


def answer(stream: Stream, search: Search) -> Answers:
    """Make the specs of a stream, and let a search find its conversions in order."""
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


def prepare(problem: StreamProblem, search: Callable[[], Search]) -> Prepared[Answers]:
    """Return a call that answers the stream by a new search."""
    stream = problem.stream
    assert len(stream.pairs) == len(stream.queries)  # computed here, untimed
    return Prepared(run=lambda: answer(stream, search()))
