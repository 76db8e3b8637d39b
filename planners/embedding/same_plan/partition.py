"""Places proposals, which are rows of option numbers, exactly as torchrec's partitioners do."""

import numpy as np
from torchrec.distributed.planner.constants import MAX_SIZE
from torchrec.distributed.planner.utils import mb_to_bytes

from planners.embedding.same_plan.placing.layout import inputs_of, work_for
from planners.embedding.same_plan.placing.rows import place_rows
from planners.embedding.same_plan.rules import PartitionRules
from planners.embedding.search.space import Devices, Floats, Ints, SearchSpace

# MemoryBalancedPartitioner ends its bisection when the interval is at most this many bytes wide.
_CLOSE = int(mb_to_bytes(10))


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
        self._work = work_for(space, devices, len(self._inputs.stretch_end))
        self._ranks = np.zeros(self._work.ranks.shape, np.int64)
        self.best: Ints | None = None
        self.best_rating = float(MAX_SIZE)

    @property
    def best_ranks(self) -> Ints:
        """The rank of each shard of the best plan, option by option; requires a plan."""
        assert self.best is not None
        return self._of_shards(self._ranks, self.best)

    def place(self, rows: Ints) -> Floats:
        """Place proposals of shape (P, T); return the rating of each, NaN if it cannot be placed.

        Unless `exact`, the rating of a proposal that does not improve on the best plan may be a
        lower bound of torchrec's.
        """
        rows = np.ascontiguousarray(rows)
        if self._rules.searches is not None:
            return np.array([self._place_balanced(row, self._rules.searches) for row in rows])
        ratings = np.empty(len(rows))
        chosen = place_rows(
            self._inputs, self._work, rows, 0, self._exact, self.best_rating, ratings, self._ranks
        )
        if chosen >= 0:
            self.best, self.best_rating = rows[chosen].copy(), float(ratings[chosen])
        return ratings

    def _place_balanced(self, row: Ints, searches: int) -> float:
        """Bisect for the least HBM per rank that keeps the rating in tolerance; return that rating.

        Return NaN if the proposal cannot be placed. Invariant: `placed` needs at most `enough` HBM.
        """
        placed = self._place_one(row, 0)
        if placed is None:
            return np.nan
        allowed = placed[0] * (1 + self._rules.tolerance)
        hbm = self._space.storage[self._space.estimate[self._shards(row)], 0]
        used = np.zeros(self._devices.ranks, np.int64)
        np.add.at(used, self._of_shards(placed[1], row), hbm)
        enough = int(used.max())
        too_little = max(int(int(hbm.sum()) / self._devices.ranks), int(hbm.max()))
        for _ in range(searches):
            if too_little + _CLOSE >= enough:
                break
            middle = (enough + too_little) // 2
            with_less = self._place_one(row, middle)
            if with_less is None or with_less[0] > allowed:
                too_little = middle
            else:
                placed, enough = with_less, middle
        rating, ranks = placed
        if rating < self.best_rating:
            self.best, self.best_rating = row.copy(), rating
            self._ranks[:] = ranks
        return rating

    def _place_one(self, row: Ints, hbm: int) -> tuple[float, Ints] | None:
        """Return a proposal's rating and ranks, or None; `hbm` = 0 means each rank's own HBM."""
        rating, ranks = np.empty(1), np.empty_like(self._ranks)
        chosen = place_rows(
            self._inputs, self._work, row[np.newaxis], hbm, True, np.inf, rating, ranks
        )
        return None if chosen < 0 else (float(rating[0]), ranks)

    def _of_shards(self, ranks: Ints, row: Ints) -> Ints:
        """Return the ranks of the shards of a row's options as a flat array, option by option."""
        counts = np.diff(self._space.first_shard)[row]
        there: Ints = ranks[np.arange(ranks.shape[1]) < counts[:, np.newaxis]]
        return there

    def _shards(self, row: Ints) -> Ints:
        """Return the shard numbers of a row's options as a flat array, option by option."""
        first = self._space.first_shard
        return np.concatenate([np.arange(first[option], first[option + 1]) for option in row])
