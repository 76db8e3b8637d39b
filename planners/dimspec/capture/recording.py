"""Every conversion that ColossalAI is asked for, as a file can keep it."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import colossalai
from colossalai.tensor.shape_consistency import ShapeConsistencyManager

from planners.dimspec.upstream.plain_values import pairs_of, partition_of, values_of


class Recording:
    """What has been asked and answered so far: distinct questions on one mesh, and their order.

    A file holds one mesh. Questions on another one than the first, or for the forward pass only,
    are counted and left out.
    """

    def __init__(self) -> None:
        self.queries: list[dict[str, Any]] = []
        self.sequence: list[int] = []
        self.left_out = 0
        self._mesh: tuple[Any, ...] | None = None
        self._indices: dict[Any, int] = {}
        self._lock = Lock()

    def add(self, manager: Any, key: tuple[Any, ...], found: Any) -> None:
        """Write a question down, as `_key_of` told it before it was answered, and its answer."""
        with self._lock:
            mesh, *question = key
            if self._mesh is None:
                self._mesh = mesh
            if mesh != self._mesh or manager.forward_only:
                self.left_out += 1
                return
            index = self._indices.setdefault(tuple(question), len(self.queries))
            if index == len(self.queries):
                self.queries.append(_query(*question, *found))
            self.sequence.append(index)

    def content(self) -> dict[str, Any]:
        """Return the stream in JSON types; it has no mesh where nothing was asked."""
        shape, alpha, beta = self._mesh or ((), (), ())
        return {
            "source": f"conversions that ColossalAI {colossalai.__version__} was asked for",
            "mesh_shape": list(shape),
            "mesh_alpha": [float(each) for each in alpha],
            "mesh_beta": [float(each) for each in beta],
            "queries": self.queries,
            "sequence": self.sequence,
            "left_out": self.left_out,
        }


def _key_of(source: Any, target: Any) -> tuple[Any, ...]:
    shape = tuple(source.entire_shape)
    return values_of(source.device_mesh), shape, partition_of(source), partition_of(target)


def _query(shape: Any, source: Any, target: Any, path: Any, comms: Any, cost: Any) -> Any:
    return {
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


@contextmanager
def recording() -> Iterator[Recording]:
    """Write down every conversion that this process asks for, until left."""
    recorded = Recording()
    upstream = ShapeConsistencyManager.shape_consistency

    def shape_consistency(manager: Any, source_spec: Any, target_spec: Any) -> Any:
        key = _key_of(source_spec, target_spec)
        found = upstream(manager, source_spec, target_spec)
        recorded.add(manager, key, found)
        return found

    ShapeConsistencyManager.shape_consistency = shape_consistency
    try:
        yield recorded
    finally:
        ShapeConsistencyManager.shape_consistency = upstream


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Build the strategies of a model and record.

    Args:
        request: `model`, a name of MODELS, and `mesh_shape`.

    Returns:
        `model`; `fingerprint`, `nodes` and `strategies` as `constructor.described` has them; and
        what `Recording.content` returns: mesh (alpha and beta per axis, in cost units), `queries`,
        the distinct questions with their answers, and `sequence`, the questions by index, in order.
    """
    from planners.dimspec.upstream.constructor import build, described

    with recording() as recorded:
        constructor, _ = build({"model": request["model"], "mesh_shape": request["mesh_shape"]})
    figures = described(constructor)
    return {
        "model": request["model"],
        **{name: figures[name] for name in ("fingerprint", "nodes", "strategies")},
        **recorded.content(),
    }
