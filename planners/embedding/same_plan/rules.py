"""The settings of torchrec's partitioners that the compiled partitioner follows."""

from dataclasses import dataclass

from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
    SortBy,
)
from torchrec.distributed.planner.types import Partitioner


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
