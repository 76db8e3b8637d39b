"""A plan as arrays: the cost, the memory and the rank of each shard."""

from collections.abc import Sequence

import numpy as np
from torchrec.distributed.planner.types import ShardingOption

from planners.embedding.explain.replacement import Load
from planners.embedding.search.space import SearchSpace, search_space


class PlacedPlan:
    """A plan of T tables with S shards on R ranks, with the estimates of the plan's own shards.

    `space` has one option per table, so a table and its option have one number. `table`, `rank`,
    `perf` (milliseconds) and `storage` (bytes of HBM, DDR and SSD) are by shard, shape (S,) or
    (S, 3).
    """

    def __init__(self, options: Sequence[ShardingOption], ranks: int) -> None:
        self.options, self.ranks = options, ranks
        self.space = space = search_space(options)
        self.table = np.repeat(np.arange(len(options)), np.diff(space.first_shard))
        self.rank = np.array([shard.rank for option in options for shard in option.shards])
        self.perf, self.storage = space.total[space.estimate], space.storage[space.estimate]
        names = [option.name for option in options]
        # Names are shown with their path only where two tables have the same name.
        self.names = [
            option.fqn if names.count(option.name) > 1 else option.name for option in options
        ]
        self.by_fqn = {option.fqn: table for table, option in enumerate(options)}

    def load(self, without: int | None = None, only: int | None = None) -> Load:
        """Return the load of the ranks, without one table or with one table alone."""
        chosen = self.table == only if only is not None else self.table != without
        load = Load(np.zeros(self.ranks), np.zeros((self.ranks, 3), np.int64))
        np.add.at(load.perf, self.rank[chosen], self.perf[chosen])
        np.add.at(load.used, self.rank[chosen], self.storage[chosen])
        return load

    def number_in(self, space: SearchSpace, table: int) -> int | None:
        """Return the option of a search space that a table has here, or None if it has none.

        A variant may plan with options of its own, such as larger caches than torchrec's.
        """
        option, shards = self.options[table], self.table == table
        kind = option.fqn, option.sharding_type, option.compute_kernel
        for number, other in enumerate(space.options):
            if (other.fqn, other.sharding_type, other.compute_kernel) == kind:
                estimates = space.estimates_of(number)
                if np.array_equal(space.total[estimates], self.perf[shards]) and np.array_equal(
                    space.storage[estimates], self.storage[shards]
                ):
                    return number
        return None


def tables_of(space: SearchSpace) -> dict[str, int]:
    """Return the number of each table of a search space by torchrec's `fqn`, in order."""
    fqns = [option.fqn for option in space.options]
    return dict(zip(fqns, space.table.tolist(), strict=True))


def described(option: ShardingOption) -> str:
    """Return the text of an option: number of shards, sharding type, kernel."""
    return f"{len(option.shards)} x {option.sharding_type} {option.compute_kernel}"
