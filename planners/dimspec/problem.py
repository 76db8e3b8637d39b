"""A problem: a stream of conversions, or a model for ColossalAI's strategy constructor."""

from dataclasses import dataclass

from harness.contract import Topology, UsageError, WorkloadSpec
from planners.dimspec import workloads
from planners.dimspec.capture.stream_file import read_stream
from planners.dimspec.conversion.partition import Mesh, all_partitions
from planners.dimspec.conversion.stream import (
    Stream,
    all_pairs,
    batch_of_eight,
    once_each,
    random_queries,
)


@dataclass(frozen=True, slots=True)
class StreamProblem:
    """Conversions that are asked for one after the other."""

    stream: Stream

    def facts(self) -> dict[str, float | str]:
        """Describe the problem; `conversions` is its size."""
        facts: dict[str, float | str] = {
            "conversions": len(self.stream.sequence),
            "distinct": len(self.stream.queries),
            "mesh": self.stream.meshes,
        }
        if self.stream.left_out:
            facts["left out"] = self.stream.left_out
        return facts


@dataclass(frozen=True, slots=True)
class ConstructorProblem:
    """A model whose sharding strategies ColossalAI makes for a mesh."""

    model: str
    mesh: Mesh

    def facts(self) -> dict[str, float | str]:
        """Describe the problem, which has no size in numbers."""
        return {"model": self.model, "mesh": str(self.mesh)}


DimSpecProblem = StreamProblem | ConstructorProblem


def build(spec: WorkloadSpec, topology: Topology) -> DimSpecProblem:
    """Return the problem of a workload on a topology.

    Raises:
        UsageError: the workload is unknown or malformed, or there is no such mesh.
    """
    workloads.checked(spec)
    if spec.name == workloads.CONSTRUCTOR:
        mesh = Mesh.of(*workloads.mesh_shape(spec, topology))
        return ConstructorProblem(workloads.model(spec), mesh)
    return StreamProblem(stream_of(spec, topology))


def stream_of(spec: WorkloadSpec, topology: Topology | None) -> Stream:
    """Return the stream of a workload, on the mesh that it names or was recorded on if on no other.

    Raises:
        UsageError: there is no such mesh, or none without a topology.
    """
    if path := workloads.stream_path(spec):
        return read_stream(
            path,
            lambda recorded: workloads.mesh_shape(spec, topology, recorded),
            workloads.calls(spec),
        )
    if spec.name == "all-pairs-batch":
        return once_each(tuple(batch_of_eight()))
    if spec.name == "random":
        return once_each(tuple(random_queries(*workloads.random_conversions(spec))))
    mesh = Mesh.of(*workloads.mesh_shape(spec, topology))
    shape = workloads.shape(spec)
    conversions = sum(1 for _ in all_partitions(mesh, shape)) ** 2
    if conversions > workloads.MOST_CONVERSIONS:
        raise UsageError(
            f"Workload '{spec}' makes {conversions:,} conversions, more than "
            f"{workloads.MOST_CONVERSIONS:,}; ask for a lower rank or a smaller mesh."
        )
    return once_each(tuple(all_pairs(mesh, shape)))
