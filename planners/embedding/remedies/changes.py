"""Changes of a problem: more memory, a smaller reservation, a smaller batch, more hosts."""

import copy
from bisect import bisect_left
from dataclasses import replace
from typing import Any

from torchrec.distributed.planner.types import DeviceHardware, PlannerError, Storage, Topology

from planners.embedding.problem import EmbeddingProblem

_MOST = 2**8  # times the memory that there is or that the tables need; a reservation takes the rest
_PRECISION = 2**14  # a total is found to this part of that memory


def changed(problem: EmbeddingProblem, **fields: Any) -> EmbeddingProblem:
    """Return the problem with other fields, and the memory that its reservation then leaves."""
    other = replace(problem, known={}, moving=None, live=None, **fields)
    left = [device.storage for device in memory_left(other).devices]
    return replace(
        other,
        usable_hbm=tuple(storage.hbm for storage in left),
        usable_ddr=tuple(storage.ddr for storage in left),
    )


def memory_left(problem: EmbeddingProblem, topology: Topology | None = None) -> Topology:
    """Return the topology, by default the problem's, with the memory that a reservation leaves.

    If the reservation needs more than there is, less than no HBM is left: -1 byte.
    """
    try:
        return problem.reserved(topology)
    except PlannerError:
        return with_memory(topology or problem.topology, hbm=-1)


def with_memory(topology: Topology, **amounts: int) -> Topology:
    """Return a copy of a topology whose devices all have `hbm` or `ddr` bytes of memory."""
    other = copy.copy(topology)
    other._devices = [
        replace(device, storage=replace(device.storage, **amounts)) for device in topology.devices
    ]
    return other


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
