"""Counts the bytes that a plan moves relative to a previous plan of the same tables."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planners.embedding.best_plan.candidates import (
    Candidates,
    candidates,
    on_usable_ranks,
)
from planners.embedding.search.space import Devices, Ints, Placement, SearchSpace, search_space


@dataclass(frozen=True)
class Moves:
    """The previous rank of each shard of a search space, and the bytes moved if it changes rank.

    A shard that the previous plan lacks (with the same kernel and cut) counts as moved on any rank.
    """

    home: Ints  # the previous rank, or -1 if there is none, shape (S,)
    weight: Ints  # bytes moved if the shard is on any rank but its home, shape (S,)

    @cached_property
    def at_home(self) -> Ints:
        """The shards with a previous rank; few, even if S is large."""
        return np.flatnonzero(self.home >= 0)

    def options_at_home(self, space: SearchSpace) -> Ints:
        """Return the option of each shard of `at_home`."""
        return np.searchsorted(space.first_shard, self.at_home, side="right") - 1

    def least_moved(self, space: SearchSpace) -> Ints:
        """Return the bytes of each option's shards without a previous rank, shape (O,)."""
        moved = np.add.reduceat(self.weight, space.first_shard[:-1])
        np.subtract.at(moved, self.options_at_home(space), self.weight[self.at_home])
        return np.asarray(moved)

    def bytes_of(self, shards: Ints, ranks: Ints) -> int:
        """Return the total bytes moved if `shards[i]` is placed on `ranks[i]`."""
        return int(self.weight[shards][self.home[shards] != ranks].sum())


def shards_of(space: SearchSpace, options: Ints) -> Ints:
    """Return the shard numbers of some options as a flat array, option by option."""
    first = space.first_shard[options]
    counts = space.first_shard[options + 1] - first
    begin = np.cumsum(counts) - counts
    return np.repeat(first - begin, counts) + np.arange(counts.sum())


def with_previous(space: SearchSpace, devices: Devices, moves: Moves) -> Candidates:
    """Return the candidates and the previous plan's options that fit, even if dominated."""
    found = candidates(space, devices)
    options = np.unique(moves.options_at_home(space))
    if not len(options):
        return found
    alone = search_space([space.options[number] for number in options.tolist()])
    fitting = options[candidates(alone, devices).options]
    union = np.union1d(found.options, fitting)
    union = union[np.argsort(space.table[union], kind="stable")]
    counts = np.bincount(space.table[union], minlength=space.tables)
    return on_usable_ranks(space, devices, union, np.concatenate([[0], np.cumsum(counts)]))


def previous_options(found: Candidates, moves: Moves) -> Ints:
    """Return each table's option that can keep all shards at home, or -1 if none, shape (T,)."""
    space, stays = found.space, np.full(found.space.tables, -1)
    options, kept = np.unique(moves.options_at_home(space), return_counts=True)
    whole = options[kept == np.diff(space.first_shard)[options]]
    for option in whole[np.isin(whole, found.options)].tolist():
        if _allowed(found, option, moves.home[shards_of(space, np.array([option]))]):
            stays[space.table[option]] = option
    return stays


def _allowed(found: Candidates, option: int, ranks: Ints) -> bool:
    """Whether an option's placement rule allows its shards on these ranks of the current hosts."""
    placement, host_ranks = found.space.placement[option], found.devices.host_ranks
    hosts = ranks // host_ranks
    if placement in (Placement.UNIFORM, Placement.DEVICE):
        return True
    if (hosts >= found.devices.hosts).any():
        return False
    if placement == Placement.HOST_COLUMNS:
        return len(np.unique(hosts)) == 1
    positions = np.arange(len(ranks))
    return bool(
        (ranks % host_ranks == positions % host_ranks).all()
        and (hosts == hosts[positions // host_ranks * host_ranks]).all()
    )
