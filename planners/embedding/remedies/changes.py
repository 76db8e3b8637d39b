"""Changes of a problem: more memory, a smaller reservation, a smaller batch, more hosts."""

import copy
import math
from dataclasses import replace
from typing import Any

from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import DeviceHardware, PlannerError, Storage, Topology

from planners.embedding.problem import EmbeddingProblem

_PLENTY = 16  # times the memory, where a reservation leaves less than none


def changed(problem: EmbeddingProblem, **fields: Any) -> EmbeddingProblem:
    """Return the problem with other fields, and the memory that its reservation then leaves."""
    return replace(problem, known={}, moving=None, live=None, **fields).with_usable_memory()


def with_memory(topology: Topology, **held: int) -> Topology:
    """Return a copy of a topology whose devices all have `hbm` or `ddr` bytes of memory."""
    other = copy.deepcopy(topology)
    for device in other.devices:
        device.storage = Storage(**{**vars(device.storage), **held})
    return other


def roomy(problem: EmbeddingProblem) -> EmbeddingProblem:
    """Return the problem, with much more HBM if its reservation needs more than all."""
    try:
        problem.reserved()
    except PlannerError:
        hbm = _PLENTY * problem.topology.devices[0].storage.hbm
        return replace(problem, topology=with_memory(problem.topology, hbm=hbm))
    return problem


def total_for(problem: EmbeddingProblem, kind: str, usable: int) -> int:
    """Return the least bytes per rank of `hbm` or `ddr` that leave `usable` bytes.

    A reservation takes a share of the total, a number of bytes, or both.
    """

    def left(total: int) -> int:
        topology = problem.reserved(with_memory(problem.topology, **{kind: total}))
        return int(min(getattr(device.storage, kind) for device in topology.devices))

    high = max(_PLENTY * usable, *(getattr(d.storage, kind) for d in problem.topology.devices))
    share = (left(2 * high) - left(high)) / high  # of each byte more
    total: int = high - math.floor((left(high) - usable) / share)
    while (missing := usable - left(total)) > 0:
        total += max(math.floor(missing / share), 1)
    while left(total - 1) >= usable:
        total -= 1
    return total


def reserving(problem: EmbeddingProblem, usable: int) -> EmbeddingProblem:
    """Return the problem with a percentage reserved that leaves at least `usable` bytes of HBM."""
    total = min(device.storage.hbm for device in problem.topology.devices)
    share = max(1 - usable / total, 0.0)
    while share > 0 and int((1 - share) * total) < usable:
        share = max(share - 2.0**-52, 0.0)
    return changed(problem, reservation=lambda: FixedPercentageStorageReservation(share))


def on_ranks(problem: EmbeddingProblem, ranks: int) -> EmbeddingProblem:
    """Return the problem on another number of ranks, each with the memory of the smallest one."""
    topology = copy.deepcopy(problem.topology)
    held = [vars(device.storage) for device in topology.devices]
    smallest = {kind: min(storage[kind] for storage in held) for kind in held[0]}
    perf = topology.devices[0].perf
    topology._world_size, topology._custom_topology_data = ranks, None
    topology._devices = [
        DeviceHardware(rank=rank, storage=Storage(**smallest), perf=copy.copy(perf))
        for rank in range(ranks)
    ]
    return changed(problem, topology=topology, options=None)


def with_batch(problem: EmbeddingProblem, batch_size: int) -> EmbeddingProblem:
    """Return the problem with another batch size."""
    return changed(problem, batch_size=batch_size, options=None)
