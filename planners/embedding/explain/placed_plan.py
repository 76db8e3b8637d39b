"""A plan as arrays: what each of its shards costs and holds, and on which rank."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torchrec.distributed.planner.types import ShardingOption

from planners.embedding.explain.replacement import Load
from planners.embedding.search.space import Floats, Ints, SearchSpace


@dataclass(frozen=True)
class PlacedPlan:
    """A plan of T tables with S shards, on R ranks; its figures are those of its own shards."""

    options: Sequence[ShardingOption]  # the chosen one of each table
    ranks: int

    @cached_property
    def table(self) -> Ints:
        """The table of each shard, as its option's place in the plan, shape (S,)."""
        return np.repeat(np.arange(len(self.options)), [len(each.shards) for each in self.options])

    @cached_property
    def rank(self) -> Ints:
        """The rank of each shard, shape (S,)."""
        return np.array([s.rank for each in self.options for s in each.shards], np.int64)

    @cached_property
    def perf(self) -> Floats:
        """Milliseconds of each shard, shape (S,)."""
        return np.array([s.perf.total for each in self.options for s in each.shards], np.float64)

    @cached_property
    def storage(self) -> Ints:
        """Bytes of HBM, DDR and SSD of each shard, shape (S, 3)."""
        held = [s.storage for each in self.options for s in each.shards]
        return np.array([(s.hbm, s.ddr, s.ssd) for s in held], np.int64).reshape(-1, 3)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the tables in texts: with their path where two have one name."""
        names = [each.name for each in self.options]
        return tuple(each.fqn if names.count(each.name) > 1 else each.name for each in self.options)

    @cached_property
    def by_fqn(self) -> dict[str, int]:
        """The place of each table in the plan, by torchrec's `fqn`."""
        return {option.fqn: place for place, option in enumerate(self.options)}

    def load(self, without: int | None = None, only: int | None = None) -> Load:
        """Return what ranks have on them, without one table, or with one alone."""
        chosen = self.table == only if only is not None else self.table != without
        load = Load(np.zeros(self.ranks), np.zeros((self.ranks, 3), np.int64))
        np.add.at(load.perf, self.rank[chosen], self.perf[chosen])
        np.add.at(load.used, self.rank[chosen], self.storage[chosen])
        return load

    def number_in(self, space: SearchSpace, place: int) -> int | None:
        """Return which option of a search space a table has here; None where it has none of them.

        A variant may plan with options of its own, e.g. with larger caches than torchrec's.
        """
        mine, shards = self.options[place], self.table == place
        for number, option in enumerate(space.options):
            if (option.fqn, option.sharding_type, option.compute_kernel) == (
                mine.fqn,
                mine.sharding_type,
                mine.compute_kernel,
            ):
                estimates = space.estimates_of(number)
                if np.array_equal(space.total[estimates], self.perf[shards]) and np.array_equal(
                    space.storage[estimates], self.storage[shards]
                ):
                    return number
        return None


def tables_of(space: SearchSpace) -> dict[str, int]:
    """Return the number of each table of a search space, by torchrec's `fqn`, in their order."""
    return {
        option.fqn: table for option, table in zip(space.options, space.table.tolist(), strict=True)
    }


def described(option: ShardingOption) -> str:
    """Return an option as people read it: how many shards, sharding type, kernel."""
    return f"{len(option.shards)} x {option.sharding_type} {option.compute_kernel}"
