"""A problem without a plan as arrays, its changes, and the searches that memory alone decides.

The search for the best plan minimises the milliseconds of the slowest rank within each rank's
memory, and proves a bound. With bytes in the place of milliseconds, it minimises the memory of the
fullest rank. With all milliseconds zero, it ends at the first plan that fits. So its searches and
its proofs serve here too.
"""

import copy
import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from torchrec.distributed.planner.types import DeviceHardware, Storage, Topology

from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.proofs import proofs
from planners.embedding.best_plan.search import search_in_order
from planners.embedding.best_plan.torchrec_rules import canonical_order
from planners.embedding.explain.placed_plan import described
from planners.embedding.problem import EmbeddingProblem, changed, memory_left, with_memory
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

_MOST = 2**8  # times the memory that there is or that the tables need; a reservation takes the rest
_PRECISION = 2**14  # a total is found to this part of that memory
_MOST_LONELY = 5  # tables named that fit nowhere on their own


@dataclass(frozen=True, slots=True)
class Flat:
    """A problem with its options as arrays, in canonical order."""

    problem: EmbeddingProblem
    space: SearchSpace
    devices: Devices

    @classmethod
    def of(cls, problem: EmbeddingProblem) -> "Flat":
        """Enumerate the options of a problem; raises what torchrec raises."""
        enumerator = problem.judging_enumerator()
        space = search_space(enumerator.enumerate(problem.module, problem.sharders))
        space = with_options(space, canonical_order(space))
        return cls(problem, space, devices_of(memory_left(problem)))

    def with_memory(self, kind: int, capacity: int) -> "Flat":
        """Return the problem with this many usable bytes of a kind of memory on each rank."""
        storage = self.devices.storage.copy()
        storage[:, kind] = capacity
        return replace(self, devices=replace(self.devices, storage=storage))

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

    def best_from(self, known: Found, deadline: Deadline) -> Found:
        """Return a plan that fits and rates at most as many milliseconds as `known`, which fits."""
        load = load_of(self.space, known.options, known.ranks, self.devices.ranks)
        known = replace(known, rating=load.rating)
        outcome = search_in_order(self.space, self.devices, deadline, known=known)
        return outcome if isinstance(outcome, Found) else known

    def fitting_nowhere(self) -> Iterator[str]:
        """Yield sentences on the tables without an option that fits on empty devices."""
        space, capacity = self.space, self.devices.storage.max(axis=0)
        part = (space.storage / np.maximum(capacity, 1)).max(axis=1)
        largest = np.maximum.reduceat(part[space.estimate], space.first_shard[:-1])
        lonely = candidates(space, self.devices).without_options.tolist()
        for table in lonely[:_MOST_LONELY]:
            options = np.flatnonzero(space.table == table)
            best = int(options[largest[options].argmin()])
            shards = space.estimates_of(best)
            needed = space.storage[shards[part[shards].argmax()]].tolist()
            needs = " and ".join(
                f"{amount / GIB:.4g} GiB of {kind} (of {max(whole, 0) / GIB:.4g})"
                for kind, amount, whole in zip(KINDS, needed, capacity.tolist(), strict=False)
                if amount
            )
            yield (
                f"Table {space.options[best].name} fits nowhere on its own: a shard needs {needs}, "
                f"with its best option, {described(space, best)}."
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


def least_of(topology: Topology, kind: str) -> int:
    """Return the bytes of `hbm` or `ddr` of the rank with the least."""
    return min(int(getattr(device.storage, kind)) for device in topology.devices)


def least_total(problem: EmbeddingProblem, kind: str, usable: int) -> tuple[int, int] | None:
    """Return two numbers of bytes of `hbm` or `ddr` per rank that enclose the least sufficient one.

    Sufficient is what leaves `usable` bytes on each rank. Totals below the first number are not
    sufficient, the second one is. Return None if the reservation takes all of any memory. A
    reservation must not leave less of a larger total.
    """

    def left(total: int) -> int:
        return least_of(memory_left(problem, with_memory(problem.topology, **{kind: total})), kind)

    present = least_of(problem.topology, kind)
    scale = max(usable, present, 1)
    totals = range(present, _MOST * scale, max(scale // _PRECISION, 1))
    place = bisect_left(totals, usable, key=left)
    if place == len(totals):
        return None
    return (totals[place - 1] + 1 if place else present), totals[place]


def share_leaving(total: int, usable: int) -> float:
    """Return the largest share of `total`, in hundredths of a percent, that leaves `usable`."""
    parts = (total - usable) * 10_000 // total
    if int((1 - parts / 10_000) * total) < usable:  # torchrec rounds the rest down
        parts -= 1
    return parts / 10_000


def on_ranks(problem: EmbeddingProblem, ranks: int) -> EmbeddingProblem:
    """Return the problem on another number of ranks, each with the memory of the smallest one."""
    topology = copy.deepcopy(problem.topology)
    storage = {kind: least_of(topology, kind) for kind in vars(topology.devices[0].storage)}
    perf = topology.devices[0].perf
    topology._world_size, topology._custom_topology_data = ranks, None
    topology._devices = [
        DeviceHardware(rank=rank, storage=Storage(**storage), perf=copy.copy(perf))
        for rank in range(ranks)
    ]
    return changed(problem, topology=topology, options=None)
