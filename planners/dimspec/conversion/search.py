"""ColossalAI's greedy search for a conversion: each step goes to the spec nearest to the target.

Source: hpcaitech/ColossalAI v0.4.1, colossalai/tensor/shape_consistency.py. Keep the order of the
candidates: of equally near ones, the search takes the first.
"""

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import NamedTuple, Protocol

from harness.contract import InfeasibleDecision, UsageError
from planners.dimspec.conversion.costs import NOTHING, CommSpec, Cost, Pattern, step_cost
from planners.dimspec.conversion.partition import Mesh, Partition, PartitionError
from planners.dimspec.conversion.specs import NAMES, DimSpec, ShardingSpec, SharedDimSpec

MOST_STEPS = 21
_MOST_MESH_AXES = 2


class Spec(Protocol):
    """The interface of sharding specs: a tensor's mesh, shape and partition."""

    @property
    def mesh(self) -> Mesh:
        """The mesh that the tensor is sharded over."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the unsharded tensor, in elements."""

    @property
    def partition(self) -> Partition:
        """The sharded dimensions with their mesh axes, in the order of their sharding."""


class Conversion(NamedTuple):
    """Specs from source to target, and the steps between; both empty if they are equal."""

    path: Sequence[Spec]
    comms: Sequence[CommSpec]
    cost: Cost


def no_way(source: object, target: object) -> InfeasibleDecision:
    """Return the error for a target that the search did not reach."""
    return InfeasibleDecision(f"No way from {source} to {target} was found in {MOST_STEPS} steps.")


class NearSpec(NamedTuple):
    """A candidate for the next step: the spec after the step, and the total cost up to it."""

    spec: ShardingSpec
    comm: CommSpec
    cost: Cost


class GreedySearch:
    """ColossalAI's search with a given DimSpec class; it caches nothing between calls."""

    def __init__(self, dim_spec: type[DimSpec]) -> None:
        self._dim_spec = dim_spec

    def spec(self, mesh: Mesh, shape: tuple[int, ...], partition: Partition) -> ShardingSpec:
        """Return a sharding spec; raises UsageError for a mesh of more than two axes."""
        if len(mesh.shape) > _MOST_MESH_AXES:
            raise UsageError(
                f"A dictionary of differences holds {', '.join(NAMES)} alone, so mesh {mesh} of "
                f"{len(mesh.shape)} axes ends in a KeyError; 'interned' and 'optimal' take it."
            )
        dim_partition = {dim: list(axes) for dim, axes in partition}
        return ShardingSpec(mesh, shape, dim_partition, self._dim_spec)

    def convert(self, source: ShardingSpec, target: ShardingSpec) -> Conversion:
        """Return the conversion between two specs of one tensor.

        ColossalAI adds to the total a step cost that already includes the total, so several steps
        cost more than their sum. This search computes the same cost. Raises InfeasibleDecision if
        MOST_STEPS steps do not reach the target.
        """
        if source.difference(target) == 0:
            return Conversion([], [], NOTHING)
        return self.search(source, target)

    def search(self, source: ShardingSpec, target: ShardingSpec) -> Conversion:
        """Compute the conversion between different specs; raises the errors of `convert`."""
        path: list[ShardingSpec] = [source]
        comms: list[CommSpec] = []
        total = NOTHING
        for _ in range(MOST_STEPS):
            nearest: NearSpec | None = None
            least: float = math.inf
            for candidate in self.expand(path[-1], total):
                points = candidate.spec.difference(target)
                if points < least:
                    nearest, least = candidate, points
                if points == 0:
                    break
            if nearest is None:
                break
            path.append(nearest.spec)
            comms.append(nearest.comm)
            total = total.plus(nearest.cost)
            if least == 0:
                return Conversion(path, comms, total)
        raise no_way(source, target)

    def expand(self, spec: ShardingSpec, total: Cost) -> list[NearSpec]:
        """Return the candidates for the next step, each with its cost added to `total`."""
        candidates = []
        for steps in (_gathers, _all_to_alls, _splits):
            for comm, dim_partition in steps(spec):
                cost = total.plus(_cost(spec, comm))
                try:
                    made = ShardingSpec(spec.mesh, spec.shape, dim_partition, self._dim_spec)
                except PartitionError:
                    continue
                candidates.append(NearSpec(made, comm, cost))
        return candidates


class PathCache(GreedySearch):
    """The search with a cache of conversions; ColossalAI writes such a cache but never reads it.

    The key contains everything that the result depends on: the values of the mesh, because callers
    copy meshes, and the order of the source's dimensions.
    """

    def __init__(self) -> None:
        super().__init__(SharedDimSpec.forgotten())
        self._known: dict[tuple[Mesh, tuple[int, ...], Partition, Partition], Conversion] = {}

    def convert(self, source: ShardingSpec, target: ShardingSpec) -> Conversion:
        """Return the conversion as `GreedySearch.convert` does, in new lists."""
        key = source.mesh, source.shape, source.partition, tuple(sorted(target.partition))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = super().convert(source, target)
        return Conversion(list(found.path), list(found.comms), found.cost)


_Steps = Iterator[tuple[CommSpec, dict[int, list[int]]]]


def _gathers(spec: ShardingSpec) -> _Steps:
    for dim in spec.dim_partition:
        changed = deepcopy(spec.dim_partition)
        axis = changed[dim].pop()
        if not changed[dim]:
            del changed[dim]
        yield CommSpec(Pattern.GATHER, dim, dim, axis), changed


def _all_to_alls(spec: ShardingSpec) -> _Steps:
    """Yield the steps that move a mesh axis to another dimension, with increasing axes there."""
    rank = len(spec.shape)
    for front in range(rank):
        for back in range(front + 1, rank):
            front_axes = deepcopy(spec.dim_partition.get(front, []))
            back_axes = deepcopy(spec.dim_partition.get(back, []))
            if not (front_axes or back_axes) or max(len(front_axes), len(back_axes)) > 1:
                continue
            if front_axes and back_axes and front_axes[0] >= back_axes[0]:
                continue
            gathered, sharded = (back, front) if back_axes else (front, back)
            changed = deepcopy(spec.dim_partition)
            axis = changed.pop(gathered)[0]
            changed.setdefault(sharded, []).append(axis)
            yield CommSpec(Pattern.ALL_TO_ALL, gathered, sharded, axis), changed


def _splits(spec: ShardingSpec) -> _Steps:
    used = {axis for axes in spec.dim_partition.values() for axis in axes}
    unused = [axis for axis in range(len(spec.mesh.shape)) if axis not in used]
    for dim in range(len(spec.shape)):
        held = spec.dim_partition.get(dim, [])
        for axis in unused:
            if held and axis < held[-1]:
                continue
            changed = deepcopy(spec.dim_partition)
            changed.setdefault(dim, []).append(axis)
            yield CommSpec(Pattern.SPLIT, dim, dim, axis), changed


def _cost(spec: ShardingSpec, comm: CommSpec) -> Cost:
    elements = math.prod(spec.local_shape())
    return step_cost(spec.mesh, comm.pattern, comm.logical_process_axis, elements)
