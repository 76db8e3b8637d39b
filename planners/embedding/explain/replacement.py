"""What a plan would rate with one table placed otherwise and all others left where they are."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planners.embedding.search.space import Devices, Floats, Ints, Placement, SearchSpace

KINDS = ("HBM", "DDR", "SSD")


@dataclass(frozen=True, slots=True)
class Load:
    """What ranks have on them: milliseconds, shape (R,), and bytes of HBM, DDR, SSD, (R, 3)."""

    perf: Floats
    used: Ints

    def copy(self) -> "Load":
        """Return a load that can be changed by itself."""
        return Load(self.perf.copy(), self.used.copy())


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the shards of an option go, in their order, and the load of all ranks with them."""

    ranks: Ints
    load: Load

    @property
    def rating(self) -> float:
        """Milliseconds of the slowest rank."""
        return float(self.load.perf.max())


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why an option cannot be placed, as a clause.

    Where that is memory, a shard needs `needed` bytes of `kind`, and the ranks that it may go to
    have `free` at most.
    """

    clause: str
    kind: str = ""
    needed: int = 0
    free: int = 0


def replace(space: SearchSpace, devices: Devices, others: Load, option: int) -> Placed | Obstacle:
    """Place an option on ranks that have the shards of all `others` on them.

    Its shards go where torchrec allows them to, the dearest first, each on the rank that has least
    on it of those that have memory left for it, the lowest of equals. What must go onto one host
    goes onto the one whose slowest rank is then the fastest, blocks of a grid one after the other.
    Where all shards are equal, no placement rates better; else it is greedy.
    """
    shards = space.estimate[space.first_shard[option] : space.first_shard[option + 1]]
    placement = space.placement[option]
    ranks = range(devices.ranks)
    hosts = [
        ranks[first : first + devices.host_ranks]
        for first in range(0, devices.hosts * devices.host_ranks, devices.host_ranks)
    ]
    placing = _Placing(space, devices, others.copy())
    taken: list[int] | Obstacle
    if placement == Placement.UNIFORM:
        if len(shards) != devices.ranks:
            return Obstacle(f"its {len(shards)} shards are not one for each rank")
        taken = placing.in_order(shards, ranks)
    elif placement == Placement.DEVICE:
        taken = placing.spread(shards, ranks)
    elif placement == Placement.NOWHERE:
        return Obstacle("torchrec does not place it")
    elif not hosts:
        return Obstacle("there is no whole host")
    elif placement == Placement.HOST_COLUMNS:
        taken = placing.on_one_of(hosts, shards, _Placing.spread)
    elif len(shards) % devices.host_ranks or (
        placement == Placement.HOST_ROWS and len(shards) != devices.host_ranks
    ):
        return Obstacle(f"its {len(shards)} shards do not fill hosts of {devices.host_ranks} ranks")
    else:
        taken = placing.on_several_of(hosts, shards)
    if isinstance(taken, Obstacle):
        return taken
    return Placed(np.array(taken, np.int64), placing.load)


class _Placing:
    """Puts shards on ranks, whose load it changes."""

    def __init__(self, space: SearchSpace, devices: Devices, load: Load) -> None:
        self._space, self._devices = space, devices
        self.load = load

    def _put(self, estimate: int, rank: int) -> None:
        self.load.perf[rank] += self._space.total[estimate]
        self.load.used[rank] += self._space.storage[estimate]

    def in_order(self, shards: Ints, ranks: range) -> list[int] | Obstacle:
        """Put shard after shard on rank after rank."""
        for estimate, rank in zip(shards.tolist(), ranks, strict=True):
            needed = self._space.storage[estimate]
            free = self._devices.storage[rank] - self.load.used[rank]
            for kind in np.flatnonzero(needed > free).tolist():
                return _missing(kind, needed[kind], free[kind])
            self._put(estimate, rank)
        return list(ranks)

    def spread(self, shards: Ints, ranks: range) -> list[int] | Obstacle:
        """Put each shard on the rank that has least on it, of those that can hold it."""
        among = np.array(ranks)
        taken = [0] * len(shards)
        for place in np.argsort(-self._space.total[shards], kind="stable").tolist():
            needed = self._space.storage[shards[place]]
            free = self._devices.storage[among] - self.load.used[among]
            fits = (needed <= free).all(axis=1)
            if not fits.any():
                most = free.max(axis=0)
                for kind in np.flatnonzero(needed > most).tolist():
                    return _missing(kind, needed[kind], most[kind])
                return Obstacle("no rank has enough of each kind of memory free")
            taken[place] = int(among[np.where(fits, self.load.perf[among], np.inf).argmin()])
            self._put(int(shards[place]), taken[place])
        return taken

    def on_one_of(
        self,
        hosts: list[range],
        shards: Ints,
        put: Callable[["_Placing", Ints, range], list[int] | Obstacle],
    ) -> list[int] | Obstacle:
        """Put all shards on the host that is the fastest with them."""
        first: Obstacle | None = None
        best: tuple[float, Load, list[int]] | None = None
        for host in hosts:
            trial = _Placing(self._space, self._devices, self.load.copy())
            taken = put(trial, shards, host)
            if isinstance(taken, Obstacle):
                first = first or taken
                continue
            slowest = float(trial.load.perf[np.array(host)].max())
            if best is None or slowest < best[0]:
                best = slowest, trial.load, taken
        if best is None:
            assert first is not None
            return first
        self.load = best[1]
        return best[2]

    def on_several_of(self, hosts: list[range], shards: Ints) -> list[int] | Obstacle:
        """Put blocks of shards, one for each rank of a host, on hosts; none has two too early."""
        size = self._devices.host_ranks
        taken: list[int] = []
        waiting: list[range] = []
        for first in range(0, len(shards), size):
            waiting = waiting or list(hosts)
            block = self.on_one_of(waiting, shards[first : first + size], _Placing.in_order)
            if isinstance(block, Obstacle):
                return block
            taken += block
            waiting.remove(range(block[0], block[0] + size))
        return taken


def _missing(kind: int, needed: int, free: int) -> Obstacle:
    needed, free = int(needed), max(int(free), 0)
    gib = 2**30
    clause = (
        f"a shard needs {needed / gib:,.4g} GiB of {KINDS[kind]}, and {free / gib:,.4g} are free "
        "where it may go"
    )
    return Obstacle(clause, KINDS[kind], needed, free)
