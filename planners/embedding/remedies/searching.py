"""Searches that memory alone decides: a plan that fits, and the least memory of the fullest rank.

The search for the best plan minimises the milliseconds of the slowest rank within each rank's
memory, and proves a bound. With bytes in the place of milliseconds, it minimises the memory of the
fullest rank instead. With all milliseconds zero, it ends at the first plan that fits. So its
searches and its proofs serve here too.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.proofs import proofs
from planners.embedding.best_plan.search import search_in_order
from planners.embedding.best_plan.torchrec_rules import canonical_order
from planners.embedding.explain.placed_plan import described
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.remedies.changes import memory_left
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import (
    Devices,
    Floats,
    Ints,
    SearchSpace,
    devices_of,
    load_of,
    search_space,
)

GIB = 2**30
KINDS = ("HBM", "DDR")
HBM, DDR = 0, 1  # columns of storage
_MOST_LONELY = 5  # tables named that fit nowhere on their own


@dataclass(frozen=True, slots=True)
class Flat:
    """A problem as arrays, with its options in canonical order."""

    space: SearchSpace
    devices: Devices

    @classmethod
    def of(cls, problem: EmbeddingProblem) -> "Flat":
        """Enumerate the options of a problem; raises what torchrec raises."""
        enumerator = problem.enumerator(DistinctShardEnumerator)
        space = search_space(enumerator.enumerate(problem.module, problem.sharders))
        return cls(with_options(space, canonical_order(space)), devices_of(memory_left(problem)))

    def with_memory(self, kind: int, capacity: int) -> "Flat":
        """Return the problem with this many usable bytes of a kind of memory on each rank."""
        storage = self.devices.storage.copy()
        storage[:, kind] = capacity
        return replace(self, devices=replace(self.devices, storage=storage))

    def in_hbm(self) -> "Flat | None":
        """Return the problem with the options without host memory; None if a table has none."""
        space = self.space
        options = np.flatnonzero(space.option_storage[:, DDR] == 0)
        if len(np.unique(space.table[options])) < space.tables:
            return None
        return replace(self, space=with_options(space, options))

    def any_plan(self, deadline: Deadline) -> Found | NotFound:
        """Search for a plan that fits, whatever its milliseconds, or for a proof that none does."""
        space = _rated(self.space, np.zeros(len(self.space.total)))
        memory = next(proofs(candidates(space, self.devices), deadline=deadline))
        if math.isinf(memory.milliseconds):
            return NotFound(None, None, 0, math.inf)
        return search_in_order(space, self.devices, deadline)

    def least_memory(self, kind: int, deadline: Deadline) -> Found | NotFound:
        """Search for the plan with the least memory of a kind on its fullest rank.

        The rating and the bound are in GiB. Other kinds of memory are limited as usual.
        """
        space = _rated(self.space, self.space.storage[:, kind] / GIB)
        for storage in (space.storage, space.option_storage):
            storage[:, kind] = 0
        return search_in_order(space, self.with_memory(kind, 0).devices, deadline)

    def best_from(self, plan: Found, deadline: Deadline) -> Found:
        """Return a plan that fits and rates at most as many milliseconds as `plan`, which fits."""
        load = load_of(self.space, plan.options, plan.ranks, self.devices.ranks)
        known = replace(plan, rating=load.rating)
        best = search_in_order(self.space, self.devices, deadline, known=known)
        return best if isinstance(best, Found) else known

    def fitting_nowhere(self) -> Iterator[str]:
        """Yield sentences on the tables without an option that fits on empty devices."""
        space, capacity = self.space, self.devices.storage.max(axis=0)
        part = (space.storage / np.maximum(capacity, 1)).max(axis=1)
        largest = np.maximum.reduceat(part[space.estimate], space.first_shard[:-1])
        lonely = candidates(space, self.devices).without_options.tolist()
        for table in lonely[:_MOST_LONELY]:
            options = np.flatnonzero(space.table == table)
            option = int(options[largest[options].argmin()])
            shards = space.estimates_of(option)
            need = space.storage[shards[part[shards].argmax()]]
            needs = " and ".join(
                f"{amount / GIB:.4g} GiB of {kind} (of {max(whole, 0) / GIB:.4g})"
                for kind, amount, whole in zip(
                    KINDS, need.tolist(), capacity.tolist(), strict=False
                )
                if amount
            )
            named = space.options[option]
            yield (
                f"Table {named.name} fits nowhere on its own: a shard needs {needs}, with its best "
                f"option, {described(named)}."
            )
        if len(lonely) > _MOST_LONELY:
            yield f"{len(lonely) - _MOST_LONELY} more tables fit nowhere on their own."


def with_options(space: SearchSpace, options: Ints) -> SearchSpace:
    """Return the search space of these options, given by number, in their order."""
    return search_space([space.options[number] for number in options.tolist()])


def _rated(space: SearchSpace, total: Floats) -> SearchSpace:
    """Return a copy of the search space with `total` as each estimate's milliseconds."""
    of_shards, first = total[space.estimate], space.first_shard[:-1]
    return replace(
        space,
        storage=space.storage.copy(),
        option_storage=space.option_storage.copy(),
        perf=np.column_stack([total, np.zeros((len(total), space.perf.shape[1] - 1))]),
        total=total,
        option_perf=np.add.reduceat(of_shards, first),
        largest_shard=np.maximum.reduceat(of_shards, first),
    )
