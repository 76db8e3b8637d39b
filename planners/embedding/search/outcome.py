"""The outcomes of a search over the arrays of a search space."""

from dataclasses import dataclass

from planners.embedding.search.space import Ints


@dataclass(frozen=True, slots=True)
class Found:
    """A plan: the option of each table, and the ranks of their shards."""

    options: Ints  # in the order of the plan, shape (T,)
    ranks: Ints  # of each shard of these options, one after the other
    rating: float  # milliseconds of the slowest rank, as torchrec's perf model adds them
    proposals: int  # different ones that were tried
    partitions: int  # of them could be placed


@dataclass(frozen=True, slots=True)
class NotFound:
    """No proposal could be placed; two are told by their options, None where there was none."""

    smallest: Ints | None  # needs the least HBM, then DDR, then SSD; the first of equals
    last: Ints | None
    proposals: int  # different ones that were tried
