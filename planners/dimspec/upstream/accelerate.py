"""Quicker conversions for ColossalAI's auto-parallel planner: one call switches them on.

from shardbench import accelerate_colossalai

with accelerate_colossalai():
    model = autoparallelize(model, meta_args)
"""

from threading import Lock
from types import TracebackType
from typing import Any

from colossalai.device.device_mesh import DeviceMesh
from colossalai.tensor.comm_spec import CollectiveCommPattern, CommSpec
from colossalai.tensor.shape_consistency import ShapeConsistencyManager
from colossalai.tensor.sharding_spec import ShardingSpec

from harness.registry import InfeasibleDecision, UsageError
from planners.dimspec.interned import Interned
from planners.dimspec.partition import Mesh, PartitionError
from planners.dimspec.upstream.forms import dictionary_of, partition_of, values_of

Answer = tuple[list[ShardingSpec], list[CommSpec], dict[str, float]]

_MOST_AXES = 2  # of a mesh; what upstream answers for more, mostly an error, is left to it

_switch = Lock()


class _Known:
    """The answer to one question, without its source; the objects are in every such answer."""

    __slots__ = ("backward", "comms", "forward", "specs", "total")

    def __init__(
        self,
        specs: tuple[ShardingSpec, ...],
        comms: tuple[CommSpec, ...],
        cost: tuple[float, float, float],
    ) -> None:
        self.specs = specs
        self.comms = comms
        self.forward, self.backward, self.total = cost


class Accelerated:
    """ColossalAI's search for conversions while it is accelerated, in all threads of the process.

    Paths, communication and costs are upstream's own, to the last bit; what differs is how long
    finding them takes, and that `cached_spec_pairs_transform_path` stays empty. Specs of a path
    after its first one are shared between answers and must not be changed. Questions that the
    search here has no answer to are left to upstream, and those for the forward pass only.
    It ends with `stop`, or with the `with` block that it is used in.
    """

    def __init__(self) -> None:
        if not _switch.acquire(blocking=False):
            raise UsageError("ColossalAI's search is accelerated already; stop that one first.")
        self.searches = 0
        self.left_to_upstream = 0
        self._tensors = Interned()
        self._meshes: dict[tuple[Any, ...], DeviceMesh] = {}
        self._known: dict[tuple[Any, ...], _Known | None] = {}
        self._upstream = ShapeConsistencyManager.shape_consistency
        ShapeConsistencyManager.shape_consistency = self._replacement()
        self._is_on = True

    def stop(self) -> None:
        """Give ColossalAI its search back."""
        if self._is_on:
            self._is_on = False
            ShapeConsistencyManager.shape_consistency = self._upstream
            _switch.release()

    def __enter__(self) -> "Accelerated":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _replacement(self) -> Any:
        known = self._known

        def shape_consistency(
            manager: ShapeConsistencyManager, source_spec: ShardingSpec, target_spec: ShardingSpec
        ) -> Answer:
            if manager.forward_only:
                return self._ask_upstream(manager, source_spec, target_spec)
            mesh = source_spec.device_mesh
            key = (
                values_of(mesh),
                # Copies of a mesh share their process groups, which the answer is carried out with.
                id(mesh._process_group_dict),
                mesh.is_initialized,
                source_spec.entire_shape,
                len(target_spec.entire_shape),
                partition_of(source_spec),
                partition_of(target_spec),
            )
            try:
                found = known[key]
            except KeyError:
                self._meshes.setdefault(key[:3], mesh)  # while it is kept, its id is no other's
                found = known[key] = self._search(source_spec, target_spec)
            if found is None:
                return self._ask_upstream(manager, source_spec, target_spec)
            return (
                [source_spec, *found.specs] if found.specs else [],
                [*found.comms],
                {"forward": found.forward, "backward": found.backward, "total": found.total},
            )

        return shape_consistency

    def _ask_upstream(
        self, manager: ShapeConsistencyManager, source: ShardingSpec, target: ShardingSpec
    ) -> Answer:
        self.left_to_upstream += 1
        answer: Answer = self._upstream(manager, source, target)
        return answer

    def _search(self, source: ShardingSpec, target: ShardingSpec) -> _Known | None:
        mesh, shape = source.device_mesh, source.entire_shape
        if len(mesh.shape) > _MOST_AXES or len(shape) != len(target.entire_shape):
            return None
        try:
            values = Mesh(*values_of(mesh))
            tensor = self._tensors.tensor(values, tuple(shape))
            found = tensor.convert(partition_of(source), partition_of(target))
        except (PartitionError, InfeasibleDecision):
            return None
        self.searches += 1
        # The caller may change its source later, so that what is kept has one of its own.
        specs = [
            ShardingSpec(mesh, shape, dim_partition_dict=dictionary_of(spec.partition))
            for spec in found.path
        ]
        comms = [
            CommSpec(
                CollectiveCommPattern[comm.pattern],
                sharding_spec=spec,
                gather_dim=comm.gather_dim,
                shard_dim=comm.shard_dim,
                logical_process_axis=comm.logical_process_axis,
            )
            for spec, comm in zip(specs, found.comms, strict=False)
        ]
        return _Known(tuple(specs[1:]), tuple(comms), found.cost)


def accelerate() -> Accelerated:
    """Switch quicker conversions on, for ColossalAI's planner in this process.

    Returns:
        What counts the searches, and switches them off again.

    Raises:
        UsageError: they are on already.
    """
    return Accelerated()
