"""Settings of torchrec's partitioners, for the compiled one."""

from dataclasses import dataclass

from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
    SortBy,
)
from torchrec.distributed.planner.types import Partitioner


@dataclass(frozen=True, slots=True)
class PartitionRules:
    """The settings of GreedyPerfPartitioner, or with `searches` of MemoryBalancedPartitioner."""

    by_perf: bool = False  # the groups of most perf are placed first, else those of most storage
    balance_modules: bool = False  # modules with fewest tables come first of all
    searches: int | None = None  # a proposal is placed again on less HBM, at most this often
    tolerance: float = 0.0  # its rating may then be worse by this fraction


def rules_of(partitioner: Partitioner) -> PartitionRules | None:
    """Return the rules of a partitioner, or None where it is not compiled, e.g. any subclass."""
    if type(partitioner) is GreedyPerfPartitioner and isinstance(partitioner._sort_by, SortBy):
        return PartitionRules(partitioner._sort_by is SortBy.PERF, partitioner._balance_modules)
    if type(partitioner) is MemoryBalancedPartitioner:
        searches, tolerance = partitioner._max_search_count, partitioner._tolerance
        return PartitionRules(True, partitioner._balance_modules, searches, tolerance)
    return None
