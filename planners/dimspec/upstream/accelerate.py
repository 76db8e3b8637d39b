"""Speed up the conversions of ColossalAI's auto-parallel planner with one call.

from shardbench import accelerate_colossalai

with accelerate_colossalai():
    model = autoparallelize(model, meta_args)
"""

from contextlib import AbstractContextManager
from threading import Lock
from typing import Any

import colossalai
from colossalai.device.device_mesh import DeviceMesh
from colossalai.tensor.comm_spec import CollectiveCommPattern, CommSpec
from colossalai.tensor.shape_consistency import ShapeConsistencyManager
from colossalai.tensor.sharding_spec import ShardingSpec

from harness.contract import InfeasibleDecision, SupportedReleases, UsageError
from planners.dimspec.conversion.interned import InternedSearch
from planners.dimspec.conversion.steps import Mesh, Partition

RELEASES = SupportedReleases("colossalai", ("0.4.0", "0.4.1"))

Answer = tuple[list[ShardingSpec], list[CommSpec], dict[str, float]]

_MOST_AXES = 2  # of a mesh; with more, upstream mostly raises KeyError, so pass those calls to it

_switch = Lock()


def partition_of(spec: ShardingSpec) -> Partition:
    """Return the partition of a ColossalAI spec, in the insertion order of its dictionary."""
    return tuple([(dim, tuple(axes)) for dim, axes in spec.dim_partition_dict.items()])


def values_of(mesh: DeviceMesh) -> tuple[Any, ...]:
    """Return a mesh's shape, alpha and beta, which determine conversions, as a hashable tuple."""
    return tuple(mesh.shape), tuple(mesh.mesh_alpha), tuple(mesh.mesh_beta)


class AcceleratedConversions(AbstractContextManager["AcceleratedConversions"]):
    """A faster search for ColossalAI's conversions, in all threads until `stop` or block end.

    Paths, communication, costs and `cached_spec_pairs_transform_path` equal upstream's to the last
    bit. Answers share all specs of a path except the first, so callers must not change them.
    Upstream's search still answers queries that this search does not support: for the forward pass
    only, with subclasses of meshes, specs or managers, or on an untested release.
    """

    def __init__(self, *, is_supported: bool = True) -> None:
        self.searches = 0
        self.left_to_upstream = 0
        self._is_on = False
        if not is_supported:
            return
        if not _switch.acquire(blocking=False):
            raise UsageError("ColossalAI's search is accelerated already; stop that one first.")
        self._tensors = InternedSearch()
        self._process_groups: dict[int, Any] = {}
        self._known: dict[tuple[Any, ...], tuple[tuple[str, str], Answer] | None] = {}
        self._upstream = ShapeConsistencyManager.shape_consistency
        self._replacement = self._replacing()
        ShapeConsistencyManager.shape_consistency = self._replacement
        self._is_on = True

    def stop(self) -> None:
        """Restore ColossalAI's search, or, if other code patched it since, pass all calls to it."""
        if self._is_on:
            self._is_on = False
            if ShapeConsistencyManager.shape_consistency is self._replacement:
                ShapeConsistencyManager.shape_consistency = self._upstream
            _switch.release()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _replacing(self) -> Any:
        known = self._known

        def shape_consistency(
            manager: ShapeConsistencyManager, source_spec: ShardingSpec, target_spec: ShardingSpec
        ) -> Answer:
            entry = None
            if self._is_on and _is_plain(manager, source_spec, target_spec):
                mesh = source_spec.device_mesh
                groups = mesh._process_group_dict
                key = (
                    values_of(mesh),
                    # Copies of a mesh share process groups; the answer's collectives run in them.
                    id(groups),
                    mesh.is_initialized,
                    source_spec.entire_shape,
                    len(target_spec.entire_shape),
                    partition_of(source_spec),
                    partition_of(target_spec),
                )
                try:
                    entry = known[key]
                except KeyError:
                    self._process_groups[id(groups)] = groups  # keeps the id from being reused
                    entry = known[key] = self._search(source_spec, target_spec)
                except TypeError:  # unhashable: a type of shape or axes that upstream never makes
                    pass
            if entry is None:
                self.left_to_upstream += 1
                answer: Answer = self._upstream(manager, source_spec, target_spec)
                return answer
            names, (specs, comms, cost) = entry
            path, steps = [source_spec, *specs] if specs else [], [*comms]
            manager.cached_spec_pairs_transform_path[names] = (path, steps)
            return path, steps, {**cost}

        return shape_consistency

    def _search(
        self, source: ShardingSpec, target: ShardingSpec
    ) -> tuple[tuple[str, str], Answer] | None:
        """Return the key in upstream's cache and the answer, whose path lacks the source's spec.

        None if upstream has to search.
        """
        mesh, shape = source.device_mesh, source.entire_shape
        if len(mesh.shape) > _MOST_AXES or len(shape) != len(target.entire_shape):
            return None
        values = Mesh(*values_of(mesh))
        try:
            ends = [
                self._tensors.spec(values, tuple(shape), partition_of(spec))
                for spec in (source, target)
            ]
            conversion = self._tensors.convert(*ends)
        except (KeyError, InfeasibleDecision):  # not a possible sharding, or out of reach
            return None
        self.searches += 1
        # The caller may change its source later, so the cached answer refers to a copy.
        specs = [
            ShardingSpec(
                mesh, shape, dim_partition_dict={dim: list(axes) for dim, axes in partition}
            )
            for partition in conversion.path
        ]
        comms = [
            CommSpec(
                CollectiveCommPattern[comm.pattern],
                sharding_spec=spec,
                gather_dim=comm.gather_dim,
                shard_dim=comm.shard_dim,
                logical_process_axis=comm.logical_process_axis,
            )
            for spec, comm in zip(specs, conversion.comms, strict=False)
        ]
        names = str(source.sharding_sequence), str(target.sharding_sequence)
        return names, (specs[1:], comms, conversion.cost._asdict())


def _is_plain(manager: ShapeConsistencyManager, source: ShardingSpec, target: ShardingSpec) -> bool:
    """Whether all classes are exactly upstream's, and the query is not forward-only."""
    return (
        type(manager) is ShapeConsistencyManager
        and type(source) is ShardingSpec
        and type(target) is ShardingSpec
        and type(source.device_mesh) is DeviceMesh
        and not manager.forward_only
    )


def accelerate(*, any_release: bool = False) -> AcceleratedConversions:
    """Replace the search for conversions of ColossalAI's planner in this process by a faster one.

    On an untested release, this warns once and changes nothing, unless `any_release` is set. The
    result counts searches, and its `stop` restores ColossalAI's search. Raises UsageError if the
    search is replaced already.
    """
    installed = colossalai.__version__
    is_supported = RELEASES.allow("accelerate()", installed, any_release=any_release)
    return AcceleratedConversions(is_supported=is_supported)
