"""Represents a plan as arrays, and rates it with one table placed differently."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
from torchrec.distributed.planner.types import ShardingOption

from planners.embedding.search.space import (
    Devices,
    Ints,
    Load,
    Placement,
    SearchSpace,
    load_of,
    search_space,
)

KINDS = ("HBM", "DDR", "SSD")


class PlacedPlan:
    """A plan of T tables with S shards on R ranks as arrays, with the estimates of its shards.

    `space` has one option per table, so a table and its option have the same index. `table`,
    `rank`, `perf` (milliseconds) and `storage` (bytes of HBM, DDR and SSD) have a row per shard:
    shape (S,), or (S, 3) for `storage`.
    """

    def __init__(self, options: Sequence[ShardingOption], ranks: int) -> None:
        self.options, self.ranks = options, ranks
        self.space = space = search_space(options)
        self.table = np.repeat(np.arange(len(options)), np.diff(space.first_shard))
        self.rank = np.array([shard.rank for option in options for shard in option.shards])
        self.perf, self.storage = space.total[space.estimate], space.storage[space.estimate]
        names = [option.name for option in options]
        # Names are shown with their path only if two tables have the same name.
        self.names = [
            option.fqn if names.count(option.name) > 1 else option.name for option in options
        ]
        self.by_fqn = {option.fqn: table for table, option in enumerate(options)}

    def load(self, without: int | None = None, only: int | None = None) -> Load:
        """Return the load of all ranks, optionally without one table or with only one table."""
        chosen = self.table == only if only is not None else self.table != without
        return load_of(self.space, np.unique(self.table[chosen]), self.rank[chosen], self.ranks)

    def number_in(self, space: SearchSpace, table: int) -> int | None:
        """Return the index in `space` of the option that this plan has for a table, or None.

        None means that `space` lacks the option: a variant may plan with options of its own, such
        as larger caches than torchrec's.
        """
        option, shards = self.options[table], self.table == table
        kind = option.fqn, option.sharding_type, option.compute_kernel
        for number, other in enumerate(space.options):
            if (other.fqn, other.sharding_type, other.compute_kernel) == kind:
                estimates = space.estimates_of(number)
                if np.array_equal(space.total[estimates], self.perf[shards]) and np.array_equal(
                    space.storage[estimates], self.storage[shards]
                ):
                    return number
        return None


def tables_of(space: SearchSpace) -> dict[str, int]:
    """Map torchrec's `fqn` of each table to its index in a search space, in order."""
    fqns = [option.fqn for option in space.options]
    return dict(zip(fqns, space.table.tolist(), strict=True))


def described(option: ShardingOption) -> str:
    """Return an option as text: number of shards, sharding type, kernel."""
    return f"{len(option.shards)} x {option.sharding_type} {option.compute_kernel}"


@dataclass(eq=False)
class Obstacle(Exception):
    """Raised if an option cannot be placed; its fields are explained in `Alternative`."""

    why_not: str
    lacking: str = ""
    needed_bytes: int = 0
    free_bytes: int = 0

    @classmethod
    def of_memory(cls, needed: Ints, free: Ints) -> "Obstacle":
        """Return an obstacle that names the first kind of memory without enough free bytes."""
        if (needed <= free).all():
            return cls("no rank has enough of each kind of memory free")
        kind = int((needed > free).argmax())
        wanted, left = int(needed[kind]), max(int(free[kind]), 0)
        clause = (
            f"a shard needs {wanted / 2**30:,.4g} GiB of {KINDS[kind]}, and "
            f"{left / 2**30:,.4g} are free where it may go"
        )
        return cls(clause, KINDS[kind], wanted, left)


def replace(
    space: SearchSpace, devices: Devices, others: Load, option: int
) -> tuple[list[int], Load]:
    """Place an option on ranks with the load `others`; return its ranks and the new load.

    Shards are placed on ranks that torchrec allows, the most expensive shard first, each on the
    least loaded rank with enough memory, the lowest such rank if several are equal. Shards that
    must share a host are placed on the host with the least resulting maximum load; blocks of a grid
    are placed one after the other. The result is optimal if all shards are equal, else greedy.
    Raises Obstacle if the option cannot be placed.
    """
    shards, placement = space.estimates_of(option), space.placement[option]
    ranks, count, size = range(devices.ranks), len(shards), devices.host_ranks
    hosts = [ranks[host * size : (host + 1) * size] for host in range(devices.hosts)]
    trial = _TrialPlacement(space, devices, deepcopy(others))
    if placement == Placement.UNIFORM:
        if count != devices.ranks:
            raise Obstacle(f"its {count} shards are not one for each rank")
        return trial.in_order(shards, ranks), trial.load
    if placement == Placement.DEVICE:
        return trial.spread(shards, ranks), trial.load
    if placement == Placement.NOWHERE:
        raise Obstacle("torchrec does not place it")
    if not hosts:
        raise Obstacle("there is no whole host")
    if placement == Placement.HOST_COLUMNS:
        return trial.on_one_of(hosts, shards, _TrialPlacement.spread), trial.load
    if count % size or (placement == Placement.HOST_ROWS and count != size):
        raise Obstacle(f"its {count} shards do not fill hosts of {size} ranks")
    return trial.on_several_of(hosts, shards), trial.load


@dataclass(slots=True)
class _TrialPlacement:
    """Puts shards on ranks and adds them to the load; raises Obstacle if they do not fit."""

    space: SearchSpace
    devices: Devices
    load: Load

    def _put(self, estimate: int, rank: int) -> None:
        self.load.perf[rank] += self.space.total[estimate]
        self.load.used[rank] += self.space.storage[estimate]

    def in_order(self, shards: Ints, ranks: range) -> list[int]:
        """Put shard i on the i-th rank; return the ranks."""
        for estimate, rank in zip(shards.tolist(), ranks, strict=True):
            free = self.devices.storage[rank] - self.load.used[rank]
            if (self.space.storage[estimate] > free).any():
                raise Obstacle.of_memory(self.space.storage[estimate], free)
            self._put(estimate, rank)
        return list(ranks)

    def spread(self, shards: Ints, ranks: range) -> list[int]:
        """Put each shard on the least loaded rank with enough memory; return the ranks."""
        among = np.array(ranks)
        taken = [0] * len(shards)
        for place in np.argsort(-self.space.total[shards], kind="stable").tolist():
            needed = self.space.storage[shards[place]]
            free = self.devices.storage[among] - self.load.used[among]
            fits = (needed <= free).all(axis=1)
            if not fits.any():
                raise Obstacle.of_memory(needed, free.max(axis=0))
            taken[place] = int(among[np.where(fits, self.load.perf[among], np.inf).argmin()])
            self._put(int(shards[place]), taken[place])
        return taken

    def on_one_of(
        self,
        hosts: Sequence[range],
        shards: Ints,
        put: Callable[["_TrialPlacement", Ints, range], list[int]],
    ) -> list[int]:
        """Put all shards on the host where the maximum load is then least; return the ranks."""
        possible: list[tuple[float, Load, list[int]]] = []
        obstacles: list[Obstacle] = []
        for host in hosts:
            trial = _TrialPlacement(self.space, self.devices, deepcopy(self.load))
            try:
                taken = put(trial, shards, host)
            except Obstacle as obstacle:
                obstacles.append(obstacle)
            else:
                possible.append((float(trial.load.perf[np.array(host)].max()), trial.load, taken))
        if not possible:
            raise obstacles[0]
        _, self.load, taken = min(possible, key=lambda trial: trial[0])
        return taken

    def on_several_of(self, hosts: Sequence[range], shards: Ints) -> list[int]:
        """Put blocks of one shard per rank on hosts, in rounds over all hosts; return the ranks."""
        taken: list[int] = []
        waiting: list[range] = []
        for block in np.split(shards, len(shards) // self.devices.host_ranks):
            waiting = waiting or list(hosts)
            taken += self.on_one_of(waiting, block, _TrialPlacement.in_order)
            waiting = [host for host in waiting if taken[-1] not in host]
        return taken
