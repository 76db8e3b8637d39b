"""The options that a best plan can be made of: those that fit, and that no other one beats."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from planners.embedding.search.space import Devices, Ints, Placement, SearchSpace


@dataclass(frozen=True, slots=True)
class Candidates:
    """Option numbers, table after table: table t has options[first[t]:first[t + 1]]."""

    options: Ints
    first: Ints

    def of(self, table: int) -> Ints:
        """Return the options of one table; there are none where no device can hold any."""
        return self.options[self.first[table] : self.first[table + 1]]

    @property
    def without_options(self) -> Ints:
        """The tables that have no option left."""
        return np.flatnonzero(np.diff(self.first) == 0)


def candidates(space: SearchSpace, devices: Devices) -> Candidates:
    """Return the options of each table that fit on devices by themselves and are not dominated.

    An option is dominated by another one of its table that has as many shards, each of them at
    most as large and as dear, and whose shards may go wherever those of the first may. A plan with
    the first stays a plan, and no dearer, with the other in its place.
    """
    fitting = _fitting(space, devices)
    by_table: list[list[int]] = [[] for _ in range(space.tables)]
    for option in np.flatnonzero(fitting).tolist():
        by_table[space.table[option]].append(option)
    kept = [_undominated(space, options) for options in by_table]
    return Candidates(
        options=np.array([option for options in kept for option in options], np.int64),
        first=np.concatenate([[0], np.cumsum([len(options) for options in kept])]).astype(np.int64),
    )


def _fitting(space: SearchSpace, devices: Devices) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each shard of an option fits on an empty device that it may go to."""
    fits_anywhere = np.zeros(len(space.storage), bool)
    for capacity in np.unique(devices.storage, axis=0):
        fits_anywhere |= (space.storage <= capacity).all(axis=1)
    fitting = np.logical_and.reduceat(fits_anywhere[space.estimate], space.first_shard[:-1])
    fitting &= space.placement != Placement.NOWHERE
    counts = np.diff(space.first_shard)
    fitting &= (space.placement != Placement.UNIFORM) | (counts == devices.ranks)
    by_host = np.isin(
        space.placement, (Placement.HOST_ROWS, Placement.HOST_COLUMNS, Placement.HOSTS)
    )
    fitting &= ~by_host | (devices.hosts > 0)
    fitting &= (space.placement != Placement.HOST_ROWS) | (counts == devices.host_ranks)
    fitting &= (space.placement != Placement.HOSTS) | (counts % devices.host_ranks == 0)
    if len(np.unique(devices.storage, axis=0)) > 1:
        for option in np.flatnonzero(fitting & (space.placement == Placement.UNIFORM)):
            shards = space.estimate[space.first_shard[option] : space.first_shard[option + 1]]
            fitting[option] = (space.storage[shards] <= devices.storage).all()
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
    if placement != others and not (
        placement == Placement.DEVICE and others == Placement.HOST_COLUMNS
    ):
        return False
    first, last = space.first_shard[option], space.first_shard[option + 1]
    others_first, others_last = space.first_shard[other], space.first_shard[other + 1]
    if last - first != others_last - others_first:
        return False
    mine, theirs = space.estimate[first:last], space.estimate[others_first:others_last]
    return bool(
        (space.total[mine] <= space.total[theirs]).all()
        and (space.storage[mine] <= space.storage[theirs]).all()
    )


def distinct_shards(space: SearchSpace, option: int) -> Iterator[tuple[int, int]]:
    """Yield the estimates that an option's shards have, each with how many shards have it."""
    shards = np.sort(space.estimate[space.first_shard[option] : space.first_shard[option + 1]])
    edges = np.flatnonzero(np.diff(shards, prepend=-1, append=-1))
    for start, end in pairwise(edges.tolist()):
        yield int(shards[start]), end - start
