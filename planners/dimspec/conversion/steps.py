"""Shardings of a tensor on a device mesh, the steps between them, and the costs of steps.

Source: hpcaitech/ColossalAI v0.4.1, colossalai/device/device_mesh.py and, in colossalai/tensor,
comm_spec.py, shape_consistency.py and sharding_spec.py. Keep the order of the candidates, because
the search takes the first of equally near ones, and that of operations, which decides rounding.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

Partition = tuple[tuple[int, tuple[int, ...]], ...]
"""Pairs of a sharded dimension and its increasing mesh axes; the order of pairs breaks ties."""

Sharded = Mapping[int, tuple[int, ...]]
"""A partition as a mapping, in the same order."""

MOST_STEPS = 21
"""Most steps of a greedy search."""

GATHER = "GATHER_FWD_SPLIT_BWD"
ALL_TO_ALL = "ALL2ALL_FWD_ALL2ALL_BWD"
SPLIT = "SPLIT_FWD_GATHER_BWD"

_OTHER_WAY = 100.0
"""ColossalAI's cost of a split, in a split's forward and a gather's backward pass."""

_GATHER_POINTS, _SPLIT_POINTS, _FURTHER_STEP_POINTS = 20, 5, 6


@dataclass(frozen=True, slots=True)
class Mesh:
    """A device mesh: shape, and per axis the latency and cost per element, in cost units."""

    shape: tuple[int, ...]
    alpha: tuple[float, ...]
    beta: tuple[float, ...]

    @classmethod
    def of(cls, *shape: int) -> "Mesh":
        """Return a mesh with latency 1 and cost per element 1 on every axis."""
        return cls(shape, (1.0,) * len(shape), (1.0,) * len(shape))

    def devices(self, axes: Iterable[int]) -> int:
        """Return the product of the sizes of `axes`."""
        return math.prod(self.shape[axis] for axis in axes)

    def divides(self, shape: Sequence[int], sharded: Sharded) -> bool:
        """Whether the devices along the axes of each dimension divide its size."""
        return all(shape[dim] % self.devices(axes) == 0 for dim, axes in sharded.items())

    def local_elements(self, shape: Sequence[int], partition: Partition) -> int:
        """Return the number of elements in one device's shard."""
        return math.prod(shape) // self.devices(axis for _, axes in partition for axis in axes)

    def __str__(self) -> str:
        return "x".join(map(str, self.shape))


def sharding_name(rank: int, partition: Partition) -> str:
    """Return ColossalAI's name of a tensor's sharding, e.g. `[S01, R]`."""
    axes_of = dict(partition)
    names = ("".join(map(str, axes_of.get(dim, ()))) for dim in range(rank))
    return f"[{', '.join(f'S{name}' if name else 'R' for name in names)}]"


def all_partitions(mesh: Mesh, shape: Sequence[int]) -> Iterator[Partition]:
    """Yield every partition that divides the tensor, dimensions and axes in increasing order."""
    for dims in product((None, *range(len(shape))), repeat=len(mesh.shape)):
        sharded: dict[int, tuple[int, ...]] = {}
        for axis, dim in enumerate(dims):
            if dim is not None:
                sharded[dim] = (*sharded.get(dim, ()), axis)
        if mesh.divides(shape, sharded):
            yield tuple(sorted(sharded.items()))


class CommSpec(NamedTuple):
    """One conversion step: a collective along mesh axis `logical_process_axis`.

    `gather_dim` and `shard_dim` are tensor dimensions, equal for a gather and for a split.
    """

    pattern: str
    gather_dim: int
    shard_dim: int
    logical_process_axis: int


def candidate_steps(sharded: Sharded, rank: int, ndim: int) -> Iterator[CommSpec]:
    """Yield the steps from a sharding on a mesh of `ndim` axes, in ColossalAI's order.

    `rank` is the tensor's. Some steps lead to a sharding that does not divide the tensor.
    """
    # 1. Gather the last axis of a dimension.
    for dim, axes in sharded.items():
        yield CommSpec(GATHER, dim, dim, axes[-1])
    # 2. Move the only axis of a dimension to one without or, from the later to the earlier one,
    #    behind a lower axis: the axes of a dimension always increase.
    for front in range(rank):
        for back in range(front + 1, rank):
            match sharded.get(front, ()), sharded.get(back, ()):
                case [axis], []:
                    yield CommSpec(ALL_TO_ALL, front, back, axis)
                case [], [axis]:
                    yield CommSpec(ALL_TO_ALL, back, front, axis)
                case [lower], [axis] if lower < axis:
                    yield CommSpec(ALL_TO_ALL, back, front, axis)
    # 3. Split a dimension along an unused axis, behind its lower axes.
    used = {axis for axes in sharded.values() for axis in axes}
    unused = [axis for axis in range(ndim) if axis not in used]
    for dim in range(rank):
        for axis in unused:
            if dim not in sharded or axis > sharded[dim][-1]:
                yield CommSpec(SPLIT, dim, dim, axis)


def after_step(sharded: Sharded, step: CommSpec) -> dict[int, tuple[int, ...]]:
    """Return the sharding after one of its `candidate_steps`; a newly sharded dimension is last."""
    after = dict(sharded)
    if step.pattern != SPLIT:
        after[step.gather_dim] = after[step.gather_dim][:-1]
        if not after[step.gather_dim]:
            del after[step.gather_dim]
    if step.pattern != GATHER:
        after[step.shard_dim] = (*after.get(step.shard_dim, ()), step.logical_process_axis)
    return after


class Cost(NamedTuple):
    """Costs of the forward pass, of the backward pass and of both, in cost units."""

    forward: float
    backward: float
    total: float

    def plus(self, other: "Cost") -> "Cost":
        """Return the sum with another cost, field by field."""
        return Cost(
            self.forward + other.forward, self.backward + other.backward, self.total + other.total
        )


NOTHING = Cost(0.0, 0.0, 0.0)


def step_cost(mesh: Mesh, step: CommSpec, elements: int) -> Cost:
    """Return the cost of a step; each device has `elements` before it."""
    axis = step.logical_process_axis
    size, alpha, beta = mesh.shape[axis], mesh.alpha[axis], mesh.beta[axis]
    if step.pattern == ALL_TO_ALL:
        half = size / 2.0
        moved = alpha + beta * (size - 1) / size / size * elements * half + 0.001
        return Cost(moved, moved, moved + moved)
    gathered = alpha + beta * (size - 1) / size * elements + 0.1
    if step.pattern == GATHER:
        return Cost(gathered, _OTHER_WAY, gathered + _OTHER_WAY)
    return Cost(_OTHER_WAY, gathered, _OTHER_WAY + gathered)


def difference_points(source: Sequence[int], target: Sequence[int]) -> int:
    """Return the points from one sharding of a dimension to another, given as increasing mesh axes.

    A conversion keeps their common prefix, gathers the source's other axes and splits the target's.
    """
    if source == target:
        return 0
    kept = 0
    for mine, theirs in zip(source, target, strict=False):
        if mine != theirs:
            break
        kept += 1
    gathers, splits = len(source) - kept, len(target) - kept
    return (
        gathers * _GATHER_POINTS
        + splits * _SPLIT_POINTS
        + (gathers + splits - 1) * _FURTHER_STEP_POINTS
    )


class Conversion(NamedTuple):
    """Partitions from source to target, and the steps between; both empty if they are equal.

    `cost` is the cost that the search reports.
    """

    path: tuple[Partition, ...]
    comms: tuple[CommSpec, ...]
    cost: Cost


NO_CONVERSION = Conversion((), (), NOTHING)
