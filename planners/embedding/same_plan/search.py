"""A compiled form of torchrec's search: it tries the same proposals and finds the same plan."""

from collections import Counter
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import cast

import numpy as np
import numpy.typing as npt
from torchrec.distributed.planner.types import Proposer, ShardingOption

from planners.embedding.same_plan.partition import Partition, PartitionRules
from planners.embedding.same_plan.proposals import depends_on_ratings, stream
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Devices, Floats, Ints, SearchSpace

Words = npt.NDArray[np.uint64]


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

    def __init__(self, space: SearchSpace, partition: Partition) -> None:
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
        best = self._partition.best
        if best is None:
            return NotFound(self._smallest, self._last, len(self._ratings))
        return Found(
            options=best,
            ranks=self._partition.best_ranks,
            rating=self._partition.best_rating,
            proposals=len(self._ratings),
            partitions=self._placed,
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
