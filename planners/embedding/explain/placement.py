"""Represents a plan as arrays, and rates it with one table placed differently."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torchrec.distributed.planner.types import ShardingOption

from planners.embedding.best_plan.parts import HOST, Parts, places, rounds
from planners.embedding.search.space import (
    Devices,
    Ints,
    Load,
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
        """Return an obstacle that names the first kind of memory without enough free bytes.

        Both have the bytes of HBM, DDR and SSD of each shard of a part, shape (size, 3): what it
        needs, and the most that are free on any of its ranks.
        """
        short = (needed > free).any(axis=0)
        if not short.any():
            return cls("no rank has enough of each kind of memory free")
        kind = int(short.argmax())
        shard = int((needed - free)[:, kind].argmax())
        wanted, left = int(needed[shard, kind]), max(int(free[shard, kind]), 0)
        clause = (
            f"a shard needs {wanted / 2**30:,.4g} GiB of {KINDS[kind]}, and "
            f"{left / 2**30:,.4g} are free where it may go"
        )
        return cls(clause, KINDS[kind], wanted, left)


def replace(
    space: SearchSpace, devices: Devices, parts: Parts, others: Load, option: int
) -> tuple[Ints, Load]:
    """Place an option on ranks with the load `others`; return its ranks and the new load.

    If all its parts must share a host, that is the host with the least resulting maximum load. The
    result is optimal if all shards are equal, else greedy. Raises Obstacle if the option cannot be
    placed.
    """
    if parts.first[option] == parts.first[option + 1]:
        hosts = f"{devices.hosts} hosts of {devices.host_ranks} ranks"
        raise Obstacle(f"its {len(space.estimates_of(option))} shards have no place on {hosts}")
    ranks = np.arange(devices.ranks)
    if not parts.together[option]:
        return _inserted(space, devices, parts, others, option, ranks)
    trials: list[tuple[float, Ints, Load]] = []
    obstacles: list[Obstacle] = []
    for host in ranks[: devices.hosts * devices.host_ranks].reshape(devices.hosts, -1):
        try:
            placed, load = _inserted(space, devices, parts, others, option, host)
        except Obstacle as obstacle:
            obstacles.append(obstacle)
        else:
            trials.append((float(load.perf[host].max()), placed, load))
    if not trials:
        raise obstacles[0]
    _, placed, load = min(trials, key=lambda trial: trial[0])
    return placed, load


def _inserted(
    space: SearchSpace, devices: Devices, parts: Parts, others: Load, option: int, ranks: Ints
) -> tuple[Ints, Load]:
    """Place an option's parts on some of the ranks; return the ranks of its shards and the load.

    1. The parts of a run are placed from the most to the least expensive one.
    2. Each goes where there is enough memory and the resulting maximum load is least, on the lowest
       such ranks if several are equal.
    3. The host of a part is taken for the rest of the run.
    """
    load = Load(others.perf.copy(), others.used.copy())
    placed = np.empty(len(space.estimates_of(option)), np.int64)
    for run in rounds(parts, devices, option):
        free = places(parts, devices, run[0])
        free = free[np.isin(free, ranks).all(axis=1)]
        cost = space.total[space.estimate[parts.shard[run]]]
        for part in (run[place] for place in np.argsort(-cost, kind="stable").tolist()):
            shards = parts.shard[part] + np.arange(parts.size[part])
            estimate = space.estimate[shards]
            perf, needed = space.total[estimate], space.storage[estimate]
            left = devices.storage[free] - load.used[free]
            fits = (needed <= left).all(axis=(1, 2))
            if not fits.any():
                raise Obstacle.of_memory(needed, left.max(axis=0))
            slowest = (load.perf[free] + perf).max(axis=1)
            best = int(np.where(fits, slowest, np.inf).argmin())
            load.perf[free[best]] += perf
            load.used[free[best]] += needed
            placed[shards - space.first_shard[option]] = free[best]
            if parts.unit[part] == HOST:
                free = np.delete(free, best, axis=0)
    return placed, load
