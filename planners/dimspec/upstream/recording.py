"""Every conversion that building a model's strategies asks for, as a file can keep it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import colossalai
from colossalai.tensor.shape_consistency import ShapeConsistencyManager

from planners.dimspec.upstream.constructor import build, described
from planners.dimspec.upstream.forms import device_mesh, pairs_of, partition_of


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Build the strategies of a model and record.

    Args:
        request: `model`, a name of MODELS, and `mesh_shape`.

    Returns:
        `source`, `model`, `mesh_shape`, `mesh_alpha` and `mesh_beta` (per mesh axis, cost units),
        `fingerprint`, `nodes` and `strategies` as `constructor.described` has them; `queries`, the
        distinct questions with their answers; and `sequence`, the questions by index, in order.
    """
    with _recording() as (queries, sequence):
        constructor, _ = build({"model": request["model"], "mesh_shape": request["mesh_shape"]})
    figures = described(constructor)
    mesh = device_mesh(request["mesh_shape"])
    return {
        "source": "conversions asked for by the StrategiesConstructor of ColossalAI "
        f"{colossalai.__version__}",
        "model": request["model"],
        "mesh_shape": list(mesh.shape),
        "mesh_alpha": [float(alpha) for alpha in mesh.mesh_alpha],
        "mesh_beta": [float(beta) for beta in mesh.mesh_beta],
        **{name: figures[name] for name in ("fingerprint", "nodes", "strategies")},
        "queries": queries,
        "sequence": sequence,
    }


@contextmanager
def _recording() -> Iterator[tuple[list[dict[str, Any]], list[int]]]:
    queries: list[dict[str, Any]] = []
    sequence: list[int] = []
    indices: dict[Any, int] = {}
    upstream = ShapeConsistencyManager.shape_consistency

    def shape_consistency(manager: Any, source_spec: Any, target_spec: Any) -> Any:
        shape = tuple(source_spec.entire_shape)
        source, target = partition_of(source_spec), partition_of(target_spec)
        found = upstream(manager, source_spec, target_spec)
        index = indices.setdefault((shape, source, target), len(queries))
        if index == len(queries):
            path, comms, cost = found
            queries.append(
                {
                    "shape": list(shape),
                    "src": pairs_of(source),
                    "dst": pairs_of(target),
                    "path": [str(spec.sharding_sequence) for spec in path],
                    "comms": [comm.comm_pattern.name for comm in comms],
                    "cost": {
                        "fwd": float(cost["forward"]),
                        "bwd": float(cost["backward"]),
                        "total": float(cost["total"]),
                    },
                }
            )
        sequence.append(index)
        return found

    ShapeConsistencyManager.shape_consistency = shape_consistency
    try:
        yield queries, sequence
    finally:
        ShapeConsistencyManager.shape_consistency = upstream
