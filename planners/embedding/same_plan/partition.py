"""Places proposals, which are rows of option numbers, exactly as torchrec's partitioners do."""

from dataclasses import dataclass

import numpy as np
from torchrec.distributed.planner.constants import MAX_SIZE
from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
    SortBy,
)
from torchrec.distributed.planner.types import Partitioner
from torchrec.distributed.planner.utils import mb_to_bytes

from planners.embedding.same_plan.arrays import inputs_of, work_for
from planners.embedding.same_plan.placing import place_rows
from planners.embedding.search.space import Devices, Floats, Ints, Placement, SearchSpace, load_of

# MemoryBalancedPartitioner ends its bisection when the interval is at most this many bytes wide.
_CLOSE = int(mb_to_bytes(10))


@dataclass(frozen=True, slots=True)
class PartitionRules:
    """The settings of GreedyPerfPartitioner or, if `searches` is set, MemoryBalancedPartitioner."""

    by_perf: bool = False  # place groups of tables by descending perf, else by descending storage
    balance_modules: bool = False  # before that, place modules with fewer tables first
    searches: int | None = None  # most times that a proposal is placed again, on less HBM
    tolerance: float = 0.0  # fraction by which less HBM may make the rating worse


def rules_of(partitioner: Partitioner) -> PartitionRules | None:
    """Return a partitioner's settings; None if its type, e.g. a subclass, has no compiled form."""
    if type(partitioner) is GreedyPerfPartitioner and isinstance(partitioner._sort_by, SortBy):
        return PartitionRules(partitioner._sort_by is SortBy.PERF, partitioner._balance_modules)
    if type(partitioner) is MemoryBalancedPartitioner:
        searches, tolerance = partitioner._max_search_count, partitioner._tolerance
        return PartitionRules(True, partitioner._balance_modules, searches, tolerance)
    return None


class Partition:
    """Places each proposal on empty devices and remembers the best plan.

    `best` contains the option numbers of the best plan, shape (T,), and `best_rating` the
    milliseconds of its slowest rank. Before the first plan they are None and, as in torchrec,
    2**63.
    """

    def __init__(
        self, space: SearchSpace, devices: Devices, rules: PartitionRules, exact: bool = False
    ) -> None:
        self._space, self._devices = space, devices
        self._rules, self._exact = rules, exact
        self._inputs = inputs_of(space, devices, rules.by_perf, rules.balance_modules)
        self._work = work_for(space, devices, self._inputs)
        self._best_hbm = 0  # bytes of each rank on which the best plan was placed, see place_rows
        self.best: Ints | None = None
        self.best_rating = float(MAX_SIZE)

    @property
    def best_ranks(self) -> Ints:
        """The rank of each shard of the best plan, option by option; requires a plan."""
        assert self.best is not None
        self._place(self.best[np.newaxis], self._best_hbm)
        return self._ranks(self.best)

    def place(self, rows: Ints) -> Floats:
        """Place proposals of shape (P, T); return the rating of each, NaN if it cannot be placed.

        Unless `exact`, the rating of a proposal that does not improve on the best plan may be a
        lower bound of torchrec's.
        """
        if self._rules.searches is None:
            ratings = self._place(rows, best=np.inf if self._exact else self.best_rating)
            hbm = np.zeros(len(rows), np.int64)
        else:
            ratings, hbm = map(np.array, zip(*map(self._balance, rows), strict=True))
        chosen = int(np.argmin(np.where(np.isnan(ratings), np.inf, ratings)))  # the first if equal
        if ratings[chosen] < self.best_rating:
            self.best, self.best_rating = rows[chosen].copy(), float(ratings[chosen])
            self._best_hbm = int(hbm[chosen])
        return ratings

    def _balance(self, row: Ints) -> tuple[float, int]:
        """Bisect for the least HBM per rank that keeps the rating in tolerance.

        Return the rating, NaN if the proposal cannot be placed, and that HBM in bytes, 0 for each
        rank's own. Invariant: the plan of `rating` and `hbm` needs at most `enough` bytes.
        """
        rating, hbm = float(self._place(row[np.newaxis])[0]), 0
        if np.isnan(rating):
            return rating, hbm
        allowed = rating * (1 + self._rules.tolerance)
        shards = np.concatenate([self._space.estimates_of(option) for option in row.tolist()])
        used = load_of(self._space, row, self._ranks(row), self._devices.ranks).used[:, 0]
        enough = int(used.max())
        average = int(int(used.sum()) / self._devices.ranks)
        too_little = max(average, int(self._space.storage[shards, 0].max()))
        for _ in range(self._rules.searches or 0):
            if too_little + _CLOSE >= enough:
                break
            middle = (enough + too_little) // 2
            with_less = float(self._place(row[np.newaxis], middle)[0])
            if with_less <= allowed:
                rating = with_less
                hbm = enough = middle
            else:  # also if it is NaN
                too_little = middle
        return rating, hbm

    def _place(self, rows: Ints, hbm: int = 0, best: float = np.inf) -> Floats:
        ratings = np.empty(len(rows))
        place_rows(self._inputs, self._work, np.ascontiguousarray(rows), hbm, best, ratings)
        return ratings

    def _ranks(self, row: Ints) -> Ints:
        """Return the ranks of the shards of the row just placed, option by option."""
        uniform = (self._inputs.placement[row] == Placement.UNIFORM).tolist()
        counts = np.diff(self._space.first_shard)[row].tolist()
        return np.concatenate(
            [
                np.arange(count) if on_all else placed[:count]
                for count, on_all, placed in zip(counts, uniform, self._work.ranks, strict=True)
            ]
        )
