"""A compiled form of torchrec's search: it tries the same proposals and finds the same plan."""

from collections import Counter
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import cast

import numpy as np
import numpy.typing as npt
from torchrec.distributed.planner.constants import MAX_SIZE
from torchrec.distributed.planner.types import Proposer, ShardingOption
from torchrec.distributed.planner.utils import mb_to_bytes

from planners.embedding.same_plan.arrays import inputs_of, work_for
from planners.embedding.same_plan.proposals import PartitionRules, depends_on_ratings, stream
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Devices, Floats, Ints, Placement, SearchSpace, load_of

Words = npt.NDArray[np.uint64]

# MemoryBalancedPartitioner ends its bisection when the interval is at most this many bytes wide.
_CLOSE = int(mb_to_bytes(10))


class SamePlan:
    """Finds the plan that torchrec finds with these proposers and a partitioner's rules.

    After the deadline, it returns the best plan so far, as torchrec does. It checks the clock only
    between chunks of proposals, so it always tries the first chunk. `proposals` is the number of
    proposals made so far, including repeated ones.
    """

    def __init__(
        self, proposers: Sequence[Proposer], rules: PartitionRules, deadline: Deadline | None = None
    ) -> None:
        self._proposers = proposers
        self._rules = rules
        self._deadline = deadline or Deadline()
        self.proposals = 0

    def __call__(self, space: SearchSpace, devices: Devices) -> Found | NotFound:
        """Try the proposals of each proposer in turn; return the best plan, or NotFound."""
        exact = any(depends_on_ratings(proposer) for proposer in self._proposers)
        trial = _Trial(space, Partition(space, devices, self._rules, exact))
        self.proposals = 0
        for proposer in self._proposers:
            proposals = stream(proposer, space, devices)
            with suppress(StopIteration):
                rows = next(proposals)
                while True:
                    if self.proposals and self._deadline.passed:
                        return trial.outcome()
                    self.proposals += len(rows)
                    rows = proposals.send(trial.ratings(rows))
        return trial.outcome()


class _Trial:
    """Places each distinct set of options once, when it is first proposed; keeps its rating."""

    def __init__(self, space: SearchSpace, partition: "Partition") -> None:
        self._space, self._partition = space, partition
        self._words = _words(space.options)
        self._ratings: dict[tuple[int, ...], float] = {}
        self._placed = 0
        self._smallest: Ints | None = None
        self._last: Ints | None = None

    def ratings(self, rows: Ints) -> Floats:
        """Return the rating of each proposal of a (P, T) array, NaN if it cannot be placed."""
        # The sum of its options' random words identifies a set of options in any order.
        keys = [*map(tuple, _sums(self._words, rows).tolist())]
        fresh: dict[tuple[int, ...], int] = {}
        for index, key in enumerate(keys):
            if key not in self._ratings:
                fresh.setdefault(key, index)
        if fresh:
            placed = self._place(rows[[*fresh.values()]])
            self._ratings.update(zip(fresh, placed.tolist(), strict=True))
        return np.array([self._ratings[key] for key in keys])

    def _place(self, rows: Ints) -> Floats:
        ratings = self._partition.place(rows)
        self._placed += int(np.count_nonzero(~np.isnan(ratings)))
        if not self._placed:
            self._last = rows[-1]
            if self._smallest is not None:
                rows = np.vstack([self._smallest, rows])
            storage = self._space.option_storage[rows].sum(1)
            self._smallest = rows[np.lexsort(storage.T[::-1])[0]]  # the first, if equal
        return ratings

    def outcome(self) -> Found | NotFound:
        """Return the best plan so far, else NotFound with the smallest and the last proposal."""
        best, proposals = self._partition.best, len(self._ratings)
        if best is None:
            return NotFound(self._smallest, self._last, proposals)
        ranks, rating = self._partition.best_ranks, self._partition.best_rating
        return Found(best, ranks, rating, proposals, partitions=self._placed)


class Partition:
    """Places each proposal on empty devices, as torchrec's partitioner; remembers the best plan.

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
        self._best_hbm = 0  # bytes of each rank on which the best plan was placed, 0 for its own
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
        used = load_of(self._space, row, self._ranks(row), self._devices.ranks).used[:, 0]
        enough, average = int(used.max()), int(int(used.sum()) / self._devices.ranks)
        too_little = max(average, int(self._inputs.largest[row, 0].max()))
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
        from planners.embedding.same_plan.placing import place_rows  # numba takes 0.2 s to import

        ratings = np.empty(len(rows))
        inputs = self._inputs
        if hbm:
            capacity = inputs.capacity.copy()
            capacity[0] = hbm
            inputs = inputs._replace(capacity=capacity)
        place_rows(inputs, self._work, np.ascontiguousarray(rows), best, ratings)
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


def _sums(words: Words, rows: Ints) -> Words:
    """Return the sum of each row's words, shape (P, 2), from the changes between adjacent rows.

    Unsigned sums wrap around, so the order of additions does not change the result.
    """
    differ = rows[1:] != rows[:-1]
    steps = words[rows[1:][differ]] - words[rows[:-1][differ]]
    sums = np.cumsum(np.vstack([words[rows[0]].sum(0), steps]), axis=0, dtype=np.uint64)
    return cast(Words, sums[np.cumsum([0, *differ.sum(1)])])


def _words(options: Sequence[ShardingOption]) -> Words:
    """Return two random 64-bit words for each option, shape (O, 2); equal options share theirs.

    TorchRec compares options by their hashes, which are slow to compute. This computes hashes only
    for options that have the same table, sharding type and kernel.
    """
    names = [(option.fqn, option.sharding_type, option.compute_kernel) for option in options]
    times = Counter(names)
    numbers: dict[Hashable, int] = {}
    number = [
        numbers.setdefault(name if times[name] == 1 else hash(option), len(numbers))
        for name, option in zip(names, options, strict=True)
    ]
    random = np.random.default_rng(seed=0)
    words = random.integers(2**64 - 1, size=(len(numbers), 2), dtype=np.uint64, endpoint=True)
    return words[number]
