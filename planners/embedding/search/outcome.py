"""The outcomes of a search over the arrays of a search space."""

from dataclasses import dataclass

from planners.embedding.search.space import Ints


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
