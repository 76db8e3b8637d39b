"""The proposals that torchrec sums and rejects when no plan was found."""

from collections.abc import Callable

import numpy as np
from torchrec.distributed.planner.types import Perf, Shard, ShardingOption, Storage

from planners.embedding.search.outcome import NotFound
from planners.embedding.search.space import Ints, SearchSpace
from planners.embedding.search.unmade_shards import with_shards

_MOST_SHARDS = 2_000_000  # about 1 GB


def failed_proposals(
    space: SearchSpace, outcome: NotFound, copied: Callable[[ShardingOption], ShardingOption]
) -> tuple[list[list[ShardingOption]], bool]:
    """Return copies of the smallest and the last proposal, and whether their shards are summed.

    TorchRec's error has the memory of the smallest proposal. Proposals with too many shards for
    objects have one shard per option, with its whole memory; no partitioner can place them.
    """
    failed = [row.tolist() for row in (outcome.smallest, outcome.last) if row is not None]
    distinct = failed[:1] if failed[:1] == failed[1:] else failed
    counts = np.diff(space.first_shard)
    summed = any(int(counts[row].sum()) > _MOST_SHARDS for row in distinct)

    def copy_of(option: int) -> ShardingOption:
        made = space.options[option]
        return (
            with_shards(made, [_sum_of(space, option)], ShardingOption) if summed else copied(made)
        )

    return [[copy_of(option) for option in row] for row in distinct], summed


def _sum_of(space: SearchSpace, option: int) -> Shard:
    perf = Perf(float(space.option_perf[option]), 0.0, 0.0, 0.0)
    return Shard([], [], Storage(*space.option_storage[option].tolist()), perf)


def least_memory(space: SearchSpace) -> Ints:
    """Return each table's option with the least HBM, then DDR, then SSD."""
    order = np.lexsort((*space.option_storage.T[::-1], space.table))
    return np.asarray(order[np.searchsorted(space.table[order], np.arange(space.tables))])
