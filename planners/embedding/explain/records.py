"""The figures of an explanation, which `shardbench explain --out` writes as JSON.

Milliseconds are torchrec's estimates, `ms` of one rank unless described as a table's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

PERF = {
    "fwd_compute": "forward\ncompute",
    "fwd_comms": "forward\ncomms",
    "bwd_compute": "backward\ncompute",
    "bwd_comms": "backward\ncomms",
    "prefetch_compute": "prefetch",
}
"""The components of torchrec's `Perf` that its total sums, with a heading of a column."""


@dataclass(frozen=True, slots=True)
class FullestRank:
    """The rank with the largest share of its memory used, for one kind of memory."""

    kind: str
    rank: int
    bytes: int
    usable_bytes: int


@dataclass(frozen=True, slots=True)
class BoundTable:
    """A table's options in the argument for the bound; `ms` is of all its shards together."""

    table: str
    option: str  # the cheapest in the argument `shards`
    ms: float
    with_memory: str  # in the relaxed plan of `memory` or `hosts` if one binds, else the same
    with_memory_ms: float
    placed: str  # in the explained plan
    placed_ms: float

    @property
    def excess_ms(self) -> float:
        """Milliseconds that the plan spends beyond the relaxed plan, on all ranks together."""
        return self.placed_ms - self.with_memory_ms


@dataclass(frozen=True, slots=True)
class BoundExplained:
    """The bound by argument; bytes are by kind of memory, on all ranks together."""

    ms: float
    binding: str  # the first argument that proves all of it
    proven: Mapping[str, float]  # milliseconds
    meaning: Mapping[str, str]
    table: str  # the table of the argument `table`
    needed_bytes: Mapping[str, int]  # of the cheapest options
    usable_bytes: Mapping[str, int]
    tables: tuple[BoundTable, ...]


@dataclass(frozen=True, slots=True)
class PlacedShard:
    """A shard on the rank, of `size` rows and columns; `ms` is the sum of `perf_ms`."""

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
    """A rank and its shards, the most expensive first."""

    rank: int
    ms: float
    perf_ms: Mapping[str, float]
    hbm_bytes: int
    ddr_bytes: int
    shards: tuple[PlacedShard, ...]


@dataclass(frozen=True, slots=True)
class Alternative:
    """An option of a table while all other tables stay; `present` is the current one.

    `ms` and bytes are of all its shards together. `slowest_rank` and the milliseconds of it and of
    the explained rank are None if the option is not possible, for the reason `why_not`. If memory
    is `lacking`, a shard needs `needed_bytes` and at most `free_bytes` are free on its ranks.
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
        """The text of the option: number of shards, sharding type, kernel."""
        return f"{self.shards} x {self.sharding_type} {self.compute_kernel}"


@dataclass(frozen=True, slots=True)
class TableExplained:
    """A table on the rank and its alternatives; `left_out` has the reason by type or kernel."""

    table: str
    rank_ms: float
    alternatives: tuple[Alternative, ...]
    left_out: Mapping[str, str]

    @property
    def best(self) -> Alternative:
        """The alternative with the fastest slowest rank; the present one if none helps."""
        possible = (option for option in self.alternatives if not option.why_not)
        return min(possible, key=lambda option: (option.slowest_rank_ms or 0, not option.present))


@dataclass(frozen=True, slots=True)
class DifferentTable:
    """A table that two plans place differently: option and `ms` of all shards in each plan."""

    table: str
    here: str
    there: str
    here_ms: float
    there_ms: float
    mean_ms: float  # added to the mean of the ranks, here less there
    alone_ms: float  # slowest rank of this plan with only this table placed as there
    fits: bool  # whether it then fits into memory


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """The difference to the plan of another variant; `slowest_ms`, `mean_ms` are that plan's."""

    variant: str
    slowest_ms: float
    mean_ms: float
    by_options_ms: float  # difference of the means: the sum of the tables' `mean_ms`
    by_balance_ms: float  # the rest of the difference of the slowest ranks
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
