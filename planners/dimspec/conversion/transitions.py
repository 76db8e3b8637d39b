"""Tables of one-step conversions, shared by all tensors with equally divisible dimensions.

A mask is a set of mesh axes, as the bits of an int. A layout is the sharding of a whole tensor;
layouts have numbers from 0 (replicated) in breadth-first order. Invariant: the candidates of a
layout are in ColossalAI's order, because the search takes the first of the nearest ones.
"""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from planners.dimspec.conversion.costs import CommSpec, Pattern, new_tuple
from planners.dimspec.conversion.partition import Mesh, Partition
from planners.dimspec.conversion.specs import difference_points

Masks = tuple[int, ...]
"""The mesh axes of each dimension, as bits."""

Divisible = tuple[frozenset[int], ...]
"""For each dimension the sets of mesh axes that divide its size."""

ARRIVED = -1

_GATHER, _ALL_TO_ALL, _SPLIT = Pattern.GATHER, Pattern.ALL_TO_ALL, Pattern.SPLIT
# By identity: an enumeration's hash is slow.
_KINDS = {id(pattern): number for number, pattern in enumerate(Pattern)}


class LayoutStep(NamedTuple):
    """A candidate for the next step: the collective, and the number of the layout after it.

    `kind` numbers the pairs of pattern and mesh axis: steps of one kind cost the same.
    """

    comm: CommSpec
    kind: int
    layout: int


class _MaskLayout(NamedTuple):
    """A mask per dimension, and the order in which dimensions were sharded, which breaks ties."""

    masks: Masks
    order: tuple[int, ...]


def divisible(mesh: Mesh, shape: Sequence[int]) -> Divisible:
    """Return for each dimension of a tensor the masks of mesh axes that divide its size."""
    sets = [axes_of(mask) for mask in range(1 << len(mesh.shape))]
    devices = [mesh.devices(axes) for axes in sets]
    return tuple(
        frozenset(mask for mask, shared_by in enumerate(devices) if size % shared_by == 0)
        for size in shape
    )


def axes_of(mask: int) -> tuple[int, ...]:
    """Return the mesh axes of a mask, in increasing order."""
    return tuple(axis for axis in range(mask.bit_length()) if mask >> axis & 1)


class Transitions:
    """All layouts of a tensor on a mesh of `ndim` axes, and the steps between them.

    `sizes` is a result of `divisible`. `steps[n]` are the candidates from layout n, `masks[n]`
    its mask per dimension, and `numbers` maps each partition to its layout's number.
    """

    def __init__(self, ndim: int, sizes: Divisible) -> None:
        self._rank = len(sizes)
        self._sizes = sizes
        self._axes = [axes_of(mask) for mask in range(1 << ndim)]
        self._points = [[difference_points(a, b) for a in self._axes] for b in self._axes]
        self._bits = [1 << axis for axis in range(ndim)]
        first = _MaskLayout((0,) * self._rank, ())
        self._numbers = {first: 0}
        self._layouts = [first]
        self._nearest: dict[Masks, list[int]] = {}
        self.steps: list[list[LayoutStep]] = []
        while len(self.steps) < len(self._layouts):
            self.steps.append(list(self.expand(self._layouts[len(self.steps)])))
        self.numbers = {self.partition(number): number for number in range(len(self._layouts))}
        self.masks: list[Masks] = [layout.masks for layout in self._layouts]
        # Repeat the first one: itemgetter returns no tuple for a single item.
        reachable = [[step.layout for step in steps] for steps in self.steps]
        self._pick_reachable = [itemgetter(*ahead, *(ahead[:1] or (0, 0))) for ahead in reachable]
        self._columns = list(zip(*self.masks, strict=True))

    def partition(self, number: int) -> Partition:
        """Return the partition of the layout with this number."""
        masks, order = self._layouts[number]
        return tuple((dim, self._axes[masks[dim]]) for dim in order)

    def nearest(self, target: Masks) -> list[int]:
        """Return, for each layout, the index of its step that ends nearest to `target`.

        Of equally near steps the first counts, as in ColossalAI's search. The entry of the target
        itself is ARRIVED.
        """
        known = self._nearest.get(target)
        if known is not None:
            return known
        columns = [
            map(self._points[mask].__getitem__, column)
            for mask, column in zip(target, self._columns, strict=True)
        ]
        points = list(map(sum, zip(*columns, strict=True)))
        nearest = []
        for here, pick in zip(points, self._pick_reachable, strict=True):
            if here:
                ahead = pick(points)
                nearest.append(ahead.index(min(ahead)))
            else:
                nearest.append(ARRIVED)
        self._nearest[target] = nearest  # last, because other threads read it
        return nearest

    def _step(
        self, layout: _MaskLayout, pattern: Pattern, gathered: int, sharded: int, bit: int
    ) -> LayoutStep | None:
        """Return the step that gathers, splits or moves a mesh axis; None if a size forbids it."""
        masks, order = list(layout[0]), layout[1]
        if pattern is not _SPLIT:
            left = masks[gathered] = masks[gathered] ^ bit
            if not left:
                order = tuple([dim for dim in order if dim != gathered])
        if pattern is not _GATHER:
            if not masks[sharded]:
                order = (*order, sharded)
            joined = masks[sharded] = masks[sharded] | bit
            if joined not in self._sizes[sharded]:
                return None
        made: _MaskLayout = new_tuple(_MaskLayout, (tuple(masks), order))
        number = self._numbers.get(made)
        if number is None:
            number = self._numbers[made] = len(self._layouts)
            self._layouts.append(made)
        axis = bit.bit_length() - 1
        comm = new_tuple(CommSpec, (pattern, gathered, sharded, axis))
        step: LayoutStep = new_tuple(
            LayoutStep, (comm, len(_KINDS) * axis + _KINDS[id(pattern)], number)
        )
        return step

    def expand(self, layout: _MaskLayout) -> Iterator[LayoutStep]:
        """Yield the candidates for a step from a layout, in ColossalAI's order."""
        masks = layout.masks
        for dim in layout.order:
            last = 1 << (masks[dim].bit_length() - 1)
            if step := self._step(layout, _GATHER, dim, dim, last):
                yield step
        for front in range(self._rank):
            for back in range(front + 1, self._rank):
                here, there = masks[front], masks[back]
                if not here and not there:
                    continue
                # Skip dimensions of several axes, and moves that would break the order of axes.
                if here & (here - 1) or there & (there - 1) or (there and here >= there):
                    continue
                gathered, sharded, bit = (back, front, there) if there else (front, back, here)
                if step := self._step(layout, _ALL_TO_ALL, gathered, sharded, bit):
                    yield step
        unused = [bit for bit in self._bits if not any(mask & bit for mask in masks)]
        for dim in range(self._rank):
            for bit in unused:
                # `bit > mask`: the new axis is above all axes of the dimension, so they increase.
                if bit > masks[dim] and (step := self._step(layout, _SPLIT, dim, dim, bit)):
                    yield step
