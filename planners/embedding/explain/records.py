"""The figures of an explanation, which `shardbench explain --out` writes as JSON.

Milliseconds are torchrec's estimates. Fields `ms` are for one rank unless described otherwise.
"""

import math
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
    """For one kind of memory, the rank that uses the largest share of its bytes."""

    kind: str
    rank: int
    bytes: int
    usable_bytes: int


@dataclass(frozen=True, slots=True)
class BoundTable:
    """A table's options in the proof of the bound and in the plan; `ms` is summed over shards."""

    table: str
    option: str  # the cheapest in the argument `shards`
    ms: float
    with_memory: str  # in the relaxed plan of `memory` if that or a later one binds, else the same
    with_memory_ms: float
    placed: str  # in the explained plan
    placed_ms: float

    @property
    def excess_ms(self) -> float:
        """The table's cost in the plan minus that in the relaxed plan, in ms over all ranks."""
        return self.placed_ms - self.with_memory_ms


@dataclass(frozen=True, slots=True)
class BoundExplained:
    """The lower bound by each argument; bytes are totals of all ranks, by kind of memory."""

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
    """A shard on the explained rank; `size` is rows and columns, `ms` the sum of `perf_ms`."""

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
    """A rank with its load and its shards, the most expensive shard first."""

    rank: int
    ms: float
    perf_ms: Mapping[str, float]
    hbm_bytes: int
    ddr_bytes: int
    shards: tuple[PlacedShard, ...]


@dataclass(frozen=True, slots=True)
class Alternative:
    """An option of a table, with all other tables unchanged; `present` marks the current option.

    `ms` and bytes are summed over its shards. If the option is not possible, `why_not` is the
    reason, and `slowest_rank`, `slowest_rank_ms` and `this_rank_ms` (of the explained rank) are
    None. If a kind of memory is `lacking`, a shard needs `needed_bytes`; its ranks have at most
    `free_bytes` free.
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
        """The option as text: number of shards, sharding type, kernel."""
        return f"{self.shards} x {self.sharding_type} {self.compute_kernel}"


@dataclass(frozen=True, slots=True)
class TableExplained:
    """A table on the rank, its alternatives, and reasons why a type or kernel is `left_out`."""

    table: str
    rank_ms: float
    alternatives: tuple[Alternative, ...]
    left_out: Mapping[str, str]

    @property
    def best(self) -> Alternative:
        """The alternative with the least `slowest_rank_ms`; in a tie the current option.

        Sums in another order may differ by rounding, which is a tie too.
        """
        possible = (option for option in self.alternatives if not option.why_not)
        least = min(possible, key=lambda option: option.slowest_rank_ms or 0)
        now = self.alternatives[0]
        is_tie = math.isclose(least.slowest_rank_ms or 0, now.slowest_rank_ms or 0, rel_tol=1e-9)
        return now if is_tie else least


@dataclass(frozen=True, slots=True)
class DifferentTable:
    """A table that two plans place differently; `here_ms`, `there_ms` are sums over its shards."""

    table: str
    here: str
    there: str
    here_ms: float
    there_ms: float
    mean_ms: float  # difference of the ranks' mean cost, this plan minus the other
    alone_ms: float  # slowest rank of this plan if only this table is placed as there
    fits: bool  # whether it then fits into memory


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """The comparison with another variant's plan, which costs `slowest_ms` and `mean_ms`."""

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
    """An explanation of a plan; `ranks_ms` has the milliseconds of each rank."""

    slowest_rank: int
    slowest_ms: float
    mean_ms: float
    ranks_ms: tuple[float, ...]
    bound: BoundExplained
    memory: tuple[FullestRank, ...]
    rank: RankExplained
    tables: tuple[TableExplained, ...]
    against: PlanDifference | None
