"""The options that a best plan can be made of: those that fit, and that no other one beats."""

from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from planners.embedding.search.space import Devices, Floats, Ints, Placement, SearchSpace

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Options to place on devices, those of table t from first[t] to first[t + 1]."""

    space: SearchSpace
    devices: Devices  # without memory where a rank is not usable, so that none is negative
    usable: Bools  # whether a rank can hold any shard, shape (ranks,)
    options: Ints  # by their numbers in the search space, shape (C,)
    first: Ints

    def of(self, table: int) -> Ints:
        """Return the options of one table; there are none where no device can hold any."""
        return self.options[self.first[table] : self.first[table + 1]]

    @property
    def without_options(self) -> Ints:
        """The tables that have no option left."""
        return np.flatnonzero(np.diff(self.first) == 0)

    def only(self, kept: Bools) -> "Candidates":
        """Return some of the candidates, by a mask of shape (C,)."""
        before = np.concatenate([[0], np.cumsum(kept)])
        return replace(self, options=self.options[kept], first=before[self.first])

    @property
    def largest(self) -> Floats:
        """The milliseconds of the dearest shard of each, shape (C,)."""
        return self.space.largest_shard[self.options]

    @property
    def any_rating(self) -> float:
        """Milliseconds that no plan rates above."""
        dearest = np.maximum.reduceat(self.space.option_perf[self.options], self.first[:-1])
        return float(2.0 * dearest.sum())

    @property
    def smallest(self) -> Ints:
        """The option of each table that takes the least part of all memory, shape (T,)."""
        capacity = np.maximum(self.devices.storage.sum(axis=0), 1)
        size = (self.space.option_storage[self.options] / capacity).sum(axis=1)
        order = np.lexsort((size, self.space.table[self.options]))
        return np.asarray(self.options[order[self.first[:-1]]])


def candidates(space: SearchSpace, devices: Devices) -> Candidates:
    """Return the options of each table that fit on devices by themselves and are not dominated.

    An option is dominated by another one of its table that has as many shards, each at most as
    large and as dear, and free to go wherever those of the first may: a plan stays a plan, and no
    dearer, with the other in its place.
    """
    by_table: list[list[int]] = [[] for _ in range(space.tables)]
    for option in np.flatnonzero(_fitting(space, devices)).tolist():
        by_table[space.table[option]].append(option)
    kept = [_undominated(space, options) for options in by_table]
    first = np.cumsum([0, *map(len, kept)], dtype=np.int64)
    return on_usable_ranks(space, devices, np.array([*chain(*kept)], np.int64), first)


def on_usable_ranks(space: SearchSpace, devices: Devices, options: Ints, first: Ints) -> Candidates:
    """Return these options as candidates; a rank that can hold no shard of them is not usable."""
    used = np.zeros(len(space.storage), bool)
    for option in options.tolist():
        used[space.estimates_of(option)] = True
    capacities, kind = np.unique(devices.storage, axis=0, return_inverse=True)
    holds = [(space.storage[used] <= capacity).all(axis=1).any() for capacity in capacities]
    usable = np.array(holds)[kind.ravel()]
    devices = replace(devices, storage=np.where(usable[:, None], devices.storage, 0))
    return Candidates(space, devices, usable, options, first)


def _fitting(space: SearchSpace, devices: Devices) -> Bools:
    """Whether each shard of an option fits on an empty device that it may go to."""
    fits_anywhere = np.zeros(len(space.storage), bool)
    capacities = np.unique(devices.storage, axis=0)
    for capacity in capacities:
        fits_anywhere |= (space.storage <= capacity).all(axis=1)
    fitting = np.logical_and.reduceat(fits_anywhere[space.estimate], space.first_shard[:-1])
    counts, placement = np.diff(space.first_shard), space.placement
    by_host = (Placement.HOST_ROWS, Placement.HOST_COLUMNS, Placement.HOSTS)
    fitting &= placement != Placement.NOWHERE
    fitting &= (placement != Placement.UNIFORM) | (counts == devices.ranks)
    fitting &= ~np.isin(placement, by_host) | (devices.hosts > 0)
    fitting &= (placement != Placement.HOST_ROWS) | (counts == devices.host_ranks)
    fitting &= (placement != Placement.HOSTS) | (counts % devices.host_ranks == 0)
    if len(capacities) > 1:
        for option in np.flatnonzero(fitting & (placement == Placement.UNIFORM)).tolist():
            storage = space.storage[space.estimates_of(option)]
            fitting[option] = (storage <= devices.storage).all()
    return fitting


def _undominated(space: SearchSpace, options: list[int]) -> list[int]:
    """Return the options that no other one dominates, in an order of their own.

    TorchRec enumerates kernels in the order of a set, which differs from process to process.
    """

    def order(option: int) -> tuple[int, str, str]:
        # The freer placement first, so that of two equal options it is the one that stays.
        named = space.options[option]
        return int(space.placement[option]), named.sharding_type, named.compute_kernel

    kept: list[int] = []
    for option in sorted(options, key=order):
        if not any(_dominates(space, other, option) for other in kept):
            kept = [other for other in kept if not _dominates(space, option, other)]
            kept.append(option)
    return kept


def _dominates(space: SearchSpace, option: int, other: int) -> bool:
    placement, others = space.placement[option], space.placement[other]
    freer = placement == Placement.DEVICE and others == Placement.HOST_COLUMNS
    mine, theirs = space.estimates_of(option), space.estimates_of(other)
    return bool(
        (placement == others or freer)
        and len(mine) == len(theirs)
        and (space.total[mine] <= space.total[theirs]).all()
        and (space.storage[mine] <= space.storage[theirs]).all()
    )
