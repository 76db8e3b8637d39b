"""The rules of torchrec's partitioners, as settings of the compiled one."""

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

    by_perf: bool = False  # place the groups of most perf first, not those of most storage
    balance_modules: bool = False  # before that, those of the modules with fewest tables
    searches: int | None = None  # how often a proposal may be placed again, on less HBM
    tolerance: float = 0.0  # by how much its rating may then be worse, a fraction


def rules_of(partitioner: Partitioner) -> PartitionRules | None:
    """Return the rules of a partitioner; None for one that is not compiled, as any subclass."""
    if type(partitioner) is GreedyPerfPartitioner and isinstance(partitioner._sort_by, SortBy):
        return PartitionRules(partitioner._sort_by is SortBy.PERF, partitioner._balance_modules)
    if type(partitioner) is MemoryBalancedPartitioner:
        searches, tolerance = partitioner._max_search_count, partitioner._tolerance
        return PartitionRules(True, partitioner._balance_modules, searches, tolerance)
    return None
