"""Record every conversion that ColossalAI makes, in the format of `stream_file`."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any
from unittest.mock import patch

import colossalai
import msgspec
from colossalai.tensor.shape_consistency import ShapeConsistencyManager

from planners.dimspec.conversion.partition import Mesh
from planners.dimspec.conversion.stream import Query
from planners.dimspec.stream_file import CostRecord, QueryRecord, StreamRecord
from planners.dimspec.upstream.plain_values import query_of


class StreamRecording:
    """A recording of distinct queries with answers, and of the order of all calls.

    It has only queries on the mesh of the first query. `left_out` counts queries on other meshes
    and queries for the forward pass only.
    """

    def __init__(self) -> None:
        self.queries: list[QueryRecord] = []
        self.sequence: list[int] = []
        self.left_out = 0
        self._mesh: Mesh | None = None
        self._indices: dict[Query, int] = {}
        self._lock = Lock()

    def add(self, manager: Any, query: Query, found: Any) -> None:
        """Record a query and its answer; callers make `query` before ColossalAI answers."""
        with self._lock:
            self._mesh = self._mesh or query.mesh
            if query.mesh != self._mesh or manager.forward_only:
                self.left_out += 1
                return
            index = self._indices.setdefault(query, len(self.queries))
            if index == len(self.queries):
                self.queries.append(_record(query, *found))
            self.sequence.append(index)

    def content(self) -> dict[str, Any]:
        """Return the stream in JSON types; `mesh_shape` is empty if there was no call."""
        mesh = self._mesh or Mesh((), (), ())
        stream = StreamRecord(
            mesh_shape=mesh.shape,
            mesh_alpha=tuple(map(float, mesh.alpha)),
            mesh_beta=tuple(map(float, mesh.beta)),
            queries=tuple(self.queries),
            sequence=self.sequence,
            left_out=self.left_out,
        )
        source = f"conversions that ColossalAI {colossalai.__version__} was asked for"
        return {"source": source, **msgspec.to_builtins(stream)}


def _record(query: Query, path: Any, comms: Any, cost: Any) -> QueryRecord:
    return QueryRecord(
        query.shape,
        query.source,
        query.target,
        tuple(str(spec.sharding_sequence) for spec in path),
        tuple(comm.comm_pattern.name for comm in comms),
        CostRecord(*(float(cost[phase]) for phase in ("forward", "backward", "total"))),
    )


@contextmanager
def recording() -> Iterator[StreamRecording]:
    """Record every conversion of this process in the `with` block."""
    recorded = StreamRecording()
    upstream = ShapeConsistencyManager.shape_consistency

    def shape_consistency(manager: Any, source_spec: Any, target_spec: Any) -> Any:
        query = query_of(source_spec, target_spec)
        found = upstream(manager, source_spec, target_spec)
        recorded.add(manager, query, found)
        return found

    with patch.object(ShapeConsistencyManager, "shape_consistency", shape_consistency):
        yield recorded


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Build a model's strategies, and return the recorded stream.

    The request has `model`, a name of MODELS, and `mesh_shape`. The answer also has the model's
    name, and `fingerprint`, `nodes` and `strategies` of `constructor.described`.
    """
    from planners.dimspec.upstream.constructor import build, described

    with recording() as recorded:
        constructor, _ = build({name: request[name] for name in ("model", "mesh_shape")})
    figures = described(constructor)
    return {
        "model": request["model"],
        **{name: figures[name] for name in ("fingerprint", "nodes", "strategies")},
        **recorded.content(),
    }
