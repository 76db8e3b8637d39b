"""Candidates: the options that an optimal plan can need, which fit and are not dominated."""

from dataclasses import dataclass, replace
from itertools import chain
from operator import gt

import numpy as np
import numpy.typing as npt

from planners.embedding.best_plan.parts import parts_of
from planners.embedding.search.space import (
    Devices,
    Floats,
    Ints,
    Placement,
    SearchSpace,
    torchrecs_order,
)

Bools = npt.NDArray[np.bool_]

SAFETY = 1e-9
"""More than the relative rounding error of a sum of floats; proofs allow for it."""

ROUNDING = 2.0**-53
"""The largest relative error of one rounding."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The options to choose from; table t has options[first[t] : first[t + 1]]."""

    space: SearchSpace
    devices: Devices  # unusable ranks have no memory here, so no capacity is negative
    usable: Bools  # whether any candidate's shard fits on a rank, shape (ranks,)
    options: Ints  # option numbers in the search space, shape (C,)
    first: Ints  # the index of each table's first candidate, shape (T + 1,)

    @property
    def without_options(self) -> Ints:
        """The tables that have no candidate."""
        return np.flatnonzero(np.diff(self.first) == 0)

    def only(self, kept: Bools) -> "Candidates":
        """Return the candidates that a mask of shape (C,) selects."""
        before = np.concatenate([[0], np.cumsum(kept)])
        return replace(self, options=self.options[kept], first=before[self.first])

    @property
    def largest(self) -> Floats:
        """Milliseconds of the most expensive shard of each candidate, shape (C,)."""
        return self.space.largest_shard[self.options]

    @property
    def any_rating(self) -> float:
        """An upper bound on the rating of every plan, in milliseconds."""
        most = np.maximum.reduceat(self.space.option_perf[self.options], self.first[:-1])
        return float(2.0 * most.sum()) or 1.0

    @property
    def smallest(self) -> Ints:
        """Each table's option that uses the least part of all devices' memory, shape (T,)."""
        capacity = np.maximum(self.devices.storage.sum(axis=0), 1)
        size = (self.space.option_storage[self.options] / capacity).sum(axis=1)
        order = np.lexsort((size, self.space.table[self.options]))
        return np.asarray(self.options[order[self.first[:-1]]])


def candidates(space: SearchSpace, devices: Devices) -> Candidates:
    """Return the options of each table that fit on empty devices and are not dominated.

    Option A of a table dominates option B if both have the same number of shards, each shard of A
    is at most as large and as expensive as that of B, and A may be placed wherever B may. Replacing
    B by A in a plan then never raises the rating.
    """
    kept: list[list[int]] = [[] for _ in range(space.tables)]
    sums = sums_of(space)
    # The less restricted placement is first, so it is kept if two options are equal.
    order = np.lexsort([*torchrecs_order(space.options).T[::-1], space.placement])
    order = order[fitting(space, devices)[order]]
    for option, table in zip(order.tolist(), space.table[order].tolist(), strict=True):
        if not any(dominates(space, sums, other, option) for other in kept[table]):
            rest = [other for other in kept[table] if not dominates(space, sums, option, other)]
            kept[table] = [*rest, option]
    return candidates_of(space, devices, np.array([*chain(*kept)], np.int64))


def all_candidates(space: SearchSpace, devices: Devices) -> Candidates:
    """Return the options of each table that fit on empty devices, in less time than `candidates`.

    Some may be dominated, so a linear programme over them is larger, but has the same bound.
    """
    return candidates_of(space, devices, np.flatnonzero(fitting(space, devices)))


def candidates_of(space: SearchSpace, devices: Devices, options: Ints) -> Candidates:
    """Return these options as candidates; a rank on which none of their shards fits is unusable."""
    used = np.zeros(len(space.storage), bool)
    for option in options.tolist():
        used[space.estimates_of(option)] = True
    capacities, kind = np.unique(devices.storage, axis=0, return_inverse=True)
    holds = [(space.storage[used] <= capacity).all(axis=1).any() for capacity in capacities]
    usable = np.array(holds)[kind.ravel()]
    devices = replace(devices, storage=np.where(usable[:, None], devices.storage, 0))
    options = options[np.argsort(space.table[options], kind="stable")]
    first = np.searchsorted(space.table[options], np.arange(space.tables + 1))
    return Candidates(space, devices, usable, options, first)


def fitting(space: SearchSpace, devices: Devices) -> Bools:
    """Return for each option whether every shard fits on an allowed, empty device, shape (O,)."""
    fits_anywhere = np.zeros(len(space.storage), bool)
    capacities = np.unique(devices.storage, axis=0)
    for capacity in capacities:
        fits_anywhere |= (space.storage <= capacity).all(axis=1)
    parts = parts_of(space, devices)
    fits = np.logical_and.reduceat(fits_anywhere[space.estimate], space.first_shard[:-1])
    fits &= np.diff(parts.first) > 0
    if len(capacities) > 1:
        everywhere = space.placement == Placement.UNIFORM
        for option in np.flatnonzero(fits & everywhere).tolist():
            storage = space.storage[space.estimates_of(option)]
            fits[option] = (storage <= devices.storage).all()
    return fits


def sums_of(space: SearchSpace) -> list[list[float]]:
    """Return for each option figures that are no larger than those of an option it dominates."""
    figures = (space.option_perf, space.largest_shard, space.option_storage)
    return [*map(list, np.column_stack(figures).tolist())]


def dominates(space: SearchSpace, sums: list[list[float]], option: int, other: int) -> bool:
    """Whether `option` may take the place of `other` in any plan, shard by shard."""
    if any(map(gt, sums[option], sums[other])):  # a cheap condition that many pairs do not meet
        return False
    placement, others = space.placement[option], space.placement[other]
    freer = placement == Placement.DEVICE and others == Placement.HOST_COLUMNS
    mine, theirs = space.estimates_of(option), space.estimates_of(other)
    return bool(
        (placement == others or freer)
        and len(mine) == len(theirs)
        and (space.total[mine] <= space.total[theirs]).all()
        and (space.storage[mine] <= space.storage[theirs]).all()
    )
