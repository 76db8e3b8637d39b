"""List the distinct conversions of a dimspec workload, with their number of calls."""

import math
from collections import Counter

from harness.contract import Column, Inventory, Topology, WorkloadSpec
from planners.dimspec.conversion.partition import sequence_name
from planners.dimspec.problem import stream_of

_COLUMNS = (
    Column("shape", unit="elements"),
    Column("source"),
    Column("target"),
    Column("mesh"),
    Column("elements", kind="count", scale="log"),
    Column("asked", unit="times", kind="count", scale="log"),
)


def inventory(workload: WorkloadSpec, topology: Topology | None) -> Inventory:
    """Return a table with one row per distinct conversion; raises the errors of `stream_of`."""
    stream = stream_of(workload, topology)
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
