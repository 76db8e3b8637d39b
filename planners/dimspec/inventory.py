"""What a dimspec workload holds: its distinct conversions, and how often each is asked for."""

import math
from collections import Counter

from harness.registry import Column, Inventory, Topology, UsageError, WorkloadSpec
from planners.dimspec import workloads
from planners.dimspec.capture.stream_file import read_stream
from planners.dimspec.conversion.partition import sequence_name
from planners.dimspec.conversion.stream import Stream, batch_of_eight, once_each, random_queries
from planners.dimspec.problem import StreamProblem, build

_COLUMNS = (
    Column("shape", unit="elements"),
    Column("source"),
    Column("target"),
    Column("mesh"),
    Column("elements", kind="count", scale="log"),
    Column("asked", unit="times", kind="count", scale="log"),
)


def inventory(workload: WorkloadSpec, topology: Topology | None) -> Inventory:
    """Return the conversions of a workload, those that are the same counted as one.

    Raises:
        UsageError: it is unknown or malformed, has no stream, or needs a topology for its mesh.
    """
    stream = _stream(workloads.checked(workload), topology)
    asked = Counter(stream.sequence)
    rows = tuple(
        (
            "x".join(map(str, query.shape)),
            sequence_name(len(query.shape), query.source),
            sequence_name(len(query.shape), query.target),
            str(query.mesh),
            math.prod(query.shape),
            asked[index],
        )
        for index, query in enumerate(stream.queries)
    )
    left_out = f"Left out, since this mesh cannot have them: {stream.left_out:,} calls"
    return Inventory(
        title=f"Conversions of {workload}",
        part="conversion",
        columns=_COLUMNS,
        rows=rows,
        summary=f"{len(rows):,} distinct conversions, asked for {len(stream.sequence):,} times, "
        f"of tensors of {len({row[0] for row in rows}):,} shapes on {stream.meshes}",
        sort="asked",
        notes=(left_out,) if stream.left_out else (),
    )


def _stream(workload: WorkloadSpec, topology: Topology | None) -> Stream:
    if workload.name == workloads.CONSTRUCTOR:
        raise UsageError(
            f"Workload '{workload}' is a model; what it asks for is known once ColossalAI has run."
        )
    if topology is None and (path := workloads.stream_path(workload)):
        mesh = workloads.asked_mesh(workload)
        return read_stream(path, lambda recorded: mesh or recorded, workloads.calls(workload))
    if workload.name == "all-pairs-batch":
        return once_each(tuple(batch_of_eight()))
    if workload.name == "random":
        return once_each(tuple(random_queries(*workloads.random_conversions(workload))))
    if topology is None:
        raise UsageError(
            f"The mesh of workload '{workload}' depends on the machines; name them with --topology "
            "and --gpus."
        )
    problem = build(workload, topology)
    assert isinstance(problem, StreamProblem)
    return problem.stream
