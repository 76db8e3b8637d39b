"""ColossalAI's greedy search for a conversion: each step goes to the spec nearest to the target.

Source: hpcaitech/ColossalAI v0.4.1, colossalai/tensor/shape_consistency.py and sharding_spec.py.
The search makes the same objects, copies and costs as ColossalAI's.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Literal

from harness.contract import InfeasibleDecision
from planners.dimspec.conversion.steps import (
    MOST_STEPS,
    NO_CONVERSION,
    NOTHING,
    CommSpec,
    Conversion,
    Cost,
    Mesh,
    Partition,
    Sharded,
    after_step,
    candidate_steps,
    difference_points,
    step_cost,
)

Dictionaries = Literal["eager", "lazy", "shared"]
"""When dictionaries of differences are built: see `GreedySearch`."""

Differences = dict[tuple[str, str], int]
"""The points from one sharding of a dimension to another, by their names."""

_AXES: dict[str, tuple[int, ...]] = {"R": (), "S0": (0,), "S1": (1,), "S01": (0, 1)}
"""The shardings in the dictionary of differences: those of a mesh of two axes."""


def build_differences(copies_names: bool = False) -> Differences:
    """Return a dictionary of differences; before #5446, ColossalAI copied the names in its keys."""
    differences = {(a, b): difference_points(_AXES[a], _AXES[b]) for a in _AXES for b in _AXES}
    if not copies_names:
        return differences
    return {(deepcopy(a), deepcopy(b)): points for (a, b), points in differences.items()}


class DimSpec:
    """The sharding of one dimension, replicated if there are no axes.

    `differences` is the dictionary that it uses; None makes it build its own on first use.
    """

    def __init__(self, axes: tuple[int, ...], differences: Differences | None) -> None:
        self._axes = axes
        self._differences = differences

    def __repr__(self) -> str:
        if not self._axes:
            return "R"
        name = "S"
        for axis in self._axes:
            name += str(axis)
        return name

    def difference(self, other: "DimSpec") -> int:
        """Return the points from this sharding to another; raises KeyError for other axes."""
        if self._differences is None:
            self._differences = build_differences()
        return self._differences[str(self), str(other)]


class ShardingSpec:
    """The sharding of a tensor of `shape` (elements) over a mesh: one DimSpec per dimension."""

    def __init__(
        self,
        mesh: Mesh,
        shape: tuple[int, ...],
        sharded: Sharded,
        dim_spec: Callable[[tuple[int, ...]], DimSpec],
    ) -> None:
        self.mesh = mesh
        self.shape = shape
        self.sharded = sharded
        self._dim_specs = [dim_spec(())] * len(shape)
        for dim, axes in sharded.items():
            self._dim_specs[dim] = dim_spec(axes)
        self.is_possible = mesh.divides(shape, sharded)

    @property
    def partition(self) -> Partition:
        """The sharded dimensions with their mesh axes, in the order of their sharding."""
        return tuple(self.sharded.items())

    def difference(self, other: "ShardingSpec") -> int:
        """Return the points from this spec to another, summed over the dimensions."""
        pairs = zip(self._dim_specs, other._dim_specs, strict=True)
        return sum(mine.difference(theirs) for mine, theirs in pairs)


class GreedySearch:
    """ColossalAI's search, with one of three ways to build dictionaries of differences.

    Every DimSpec builds a dictionary when it is made (`eager`) or first used (`lazy`), or the
    search builds one for all (`shared`). With `caches_paths`, the search keeps conversions by
    all that they depend on; ColossalAI writes such a cache but never reads it.
    """

    def __init__(self, dictionaries: Dictionaries, caches_paths: bool = False) -> None:
        self._is_eager = dictionaries == "eager"
        self._shared = build_differences() if dictionaries == "shared" else None
        self._caches_paths = caches_paths
        self._known: dict[tuple[Mesh, tuple[int, ...], Partition, Partition], Conversion] = {}

    def _dim_spec(self, axes: tuple[int, ...]) -> DimSpec:
        differences = build_differences(copies_names=True) if self._is_eager else self._shared
        return DimSpec(axes, differences)

    def spec(self, mesh: Mesh, shape: tuple[int, ...], partition: Partition) -> ShardingSpec:
        """Return a sharding spec."""
        return ShardingSpec(mesh, shape, dict(partition), self._dim_spec)

    def convert(self, source: ShardingSpec, target: ShardingSpec) -> Conversion:
        """Return the conversion between two specs of one tensor."""
        if not self._caches_paths:
            return self.search(source, target)
        # The values of the mesh and the order of the source's dimensions decide, too.
        key = source.mesh, source.shape, source.partition, tuple(sorted(target.partition))
        conversion = self._known.get(key)
        if conversion is None:
            conversion = self._known[key] = self.search(source, target)
        return conversion

    def search(self, source: ShardingSpec, target: ShardingSpec) -> Conversion:
        """Compute a conversion; raises InfeasibleDecision if MOST_STEPS do not reach the target.

        As in ColossalAI, the cost of several steps is more than their sum: a candidate's cost
        includes the total before it, and is added to that total.
        """
        if source.difference(target) == 0:
            return NO_CONVERSION
        path: list[ShardingSpec] = [source]
        comms: list[CommSpec] = []
        total = NOTHING
        for _ in range(MOST_STEPS):
            candidates = self.expand(path[-1], total)
            nearest, least = candidates[0], math.inf
            for candidate in candidates:
                points = candidate[0].difference(target)
                if points < least:
                    nearest, least = candidate, points
                if points == 0:
                    break
            spec, comm, cost = nearest
            path.append(spec)
            comms.append(comm)
            total = total.plus(cost)
            if least == 0:
                return Conversion(tuple(spec.partition for spec in path), tuple(comms), total)
        raise InfeasibleDecision(
            f"{MOST_STEPS} steps do not convert {source.partition} to {target.partition}."
        )

    def expand(self, spec: ShardingSpec, total: Cost) -> list[tuple[ShardingSpec, CommSpec, Cost]]:
        """Return the candidates: the spec after a step, the step, and `total` with its cost."""
        candidates = []
        for step in candidate_steps(spec.sharded, len(spec.shape), len(spec.mesh.shape)):
            sharded = after_step(deepcopy(spec.sharded), step)
            elements = spec.mesh.local_elements(spec.shape, spec.partition)
            cost = total.plus(step_cost(spec.mesh, step, elements))
            after = ShardingSpec(spec.mesh, spec.shape, sharded, self._dim_spec)
            if after.is_possible:
                candidates.append((after, step, cost))
        return candidates
