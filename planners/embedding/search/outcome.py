"""The outcomes of a search over the arrays of a search space."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from planners.embedding.search.space import Devices, Ints, SearchSpace


@dataclass(frozen=True, slots=True)
class Found:
    """A plan: the option of each table, and the ranks of their shards.

    Attributes:
        options: option numbers in the order of the plan, shape (T,).
        ranks: the rank of each shard of these options, one after the other.
        rating: milliseconds of the slowest rank, as torchrec's perf model adds them.
        proposals: how many different proposals were tried.
        partitions: how many of them could be placed.
    """

    options: Ints
    ranks: Ints
    rating: float
    proposals: int
    partitions: int

    def renumbered(self, numbers: Ints) -> "Found":
        """Return the same with other numbers for options: that of option o is `numbers[o]`."""
        return replace(self, options=numbers[self.options])


@dataclass(frozen=True, slots=True)
class NotFound:
    """No proposal could be placed.

    Attributes:
        smallest: the option numbers of the proposal that needs the least storage (HBM, then DDR,
            then SSD; the first of equals), in its order; None where nothing was proposed.
        last: those of the last proposal that was tried.
        proposals: how many different proposals were tried.
    """

    smallest: Ints | None
    last: Ints | None
    proposals: int

    def renumbered(self, numbers: Ints) -> "NotFound":
        """Return the same with other numbers for options: that of option o is `numbers[o]`."""
        smallest, last = (
            None if row is None else numbers[row] for row in (self.smallest, self.last)
        )
        return NotFound(smallest, last, self.proposals)


Search = Callable[[SearchSpace, Devices], Found | NotFound]
