"""The figures of an explanation; as JSON they are what `shardbench explain --out` writes.

Milliseconds are torchrec's estimates, `ms` of one rank unless they are said to be a table's.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FullestRank:
    """The rank whose memory of a kind is fullest by its share: bytes used, and what it may use."""

    kind: str
    rank: int
    bytes: int
    usable_bytes: int


@dataclass(frozen=True, slots=True)
class BoundTable:
    """A table in the argument for the bound: its options, each with what all its shards cost."""

    table: str
    option: str  # the cheapest that the argument `shards` allows
    ms: float
    with_memory: str  # that of the relaxed plan of `memory` or `hosts` where one binds, or the same
    with_memory_ms: float
    placed: str  # that of the plan that is explained
    placed_ms: float

    @property
    def excess_ms(self) -> float:
        """Milliseconds that the plan spends on it beyond the bound, on all ranks together."""
        return self.placed_ms - self.with_memory_ms


@dataclass(frozen=True, slots=True)
class BoundExplained:
    """The bound, by argument; bytes are by kind of memory, on all ranks together."""

    ms: float
    binding: str  # the first argument to prove all of it
    proven: Mapping[str, float]  # milliseconds
    meaning: Mapping[str, str]
    table: str  # that the argument `table` is about
    needed_bytes: Mapping[str, int]  # by the cheapest options
    usable_bytes: Mapping[str, int]
    tables: tuple[BoundTable, ...]


@dataclass(frozen=True, slots=True)
class PlacedShard:
    """A shard on the rank: `size` in rows and columns; `ms` is the sum of `perf_ms`."""

    table: str
    sharding_type: str
    compute_kernel: str
    size: tuple[int, int]
    ms: float
    share: float
    perf_ms: Mapping[str, float]
    hbm_bytes: int
    ddr_bytes: int


@dataclass(frozen=True, slots=True)
class RankExplained:
    """A rank, its shards from the dearest on."""

    rank: int
    ms: float
    perf_ms: Mapping[str, float]
    hbm_bytes: int
    ddr_bytes: int
    shards: tuple[PlacedShard, ...]


@dataclass(frozen=True, slots=True)
class Alternative:
    """An option of a table, with all others left where they are; `present` is the one now.

    `ms` and bytes are of all its shards together, `largest_shard_ms` of its dearest one. With it,
    the slowest rank and the one that is looked at would have so many milliseconds, None where that
    is not possible. `why_not` says why: for lack of memory, of `lacking` kind, a shard needs
    `needed_bytes`, and `free_bytes` are free where it may go.
    """

    sharding_type: str
    compute_kernel: str
    shards: int
    ms: float
    largest_shard_ms: float
    hbm_bytes: int
    ddr_bytes: int
    present: bool
    slowest_rank: int | None
    slowest_rank_ms: float | None
    this_rank_ms: float | None
    why_not: str
    lacking: str
    needed_bytes: int
    free_bytes: int

    @property
    def option(self) -> str:
        """The option as people read it."""
        return f"{self.shards} x {self.sharding_type} {self.compute_kernel}"


@dataclass(frozen=True, slots=True)
class TableExplained:
    """A table on the rank, and what else it could be; what is not, by `left_out`, and why."""

    table: str
    rank_ms: float
    alternatives: tuple[Alternative, ...]
    left_out: Mapping[str, str]

    @property
    def best(self) -> Alternative:
        """The alternative with which the slowest rank is fastest; as it is now, if none helps."""
        possible = (each for each in self.alternatives if each.slowest_rank_ms is not None)
        return min(possible, key=lambda each: (each.slowest_rank_ms or 0.0, not each.present))


@dataclass(frozen=True, slots=True)
class DifferentTable:
    """A table that the other plan places otherwise: `ms` of all its shards, `here` and `there`."""

    table: str
    here: str
    there: str
    here_ms: float
    there_ms: float
    mean_ms: float  # that it adds to the mean of the ranks here and not there
    alone_ms: float  # of this plan's slowest rank with this table alone placed as it is there
    fits: bool  # whether the memory left here holds it so


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """The difference to another variant's plan, whose slowest and mean rank are given."""

    variant: str
    slowest_ms: float
    mean_ms: float
    by_options_ms: float  # the difference of the means, to which the tables' `mean_ms` add up
    by_balance_ms: float  # the rest: how much farther the slowest rank is from the mean
    other_options: int
    other_ranks: int
    tables: tuple[DifferentTable, ...]


@dataclass(frozen=True, slots=True)
class PlanExplained:
    """An explanation of a plan; `ranks_ms` has one figure for each rank."""

    slowest_rank: int
    slowest_ms: float
    mean_ms: float
    ranks_ms: tuple[float, ...]
    bound: BoundExplained
    memory: tuple[FullestRank, ...]
    rank: RankExplained
    tables: tuple[TableExplained, ...]
    against: PlanDifference | None
