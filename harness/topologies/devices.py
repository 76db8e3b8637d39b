"""What was seen of a machine, as plain records, and the matrix of links that follows from it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from harness.topologies.link_matrix import Matrix

# NVML's nvmlGpuTopologyLevel_t, and what `nvidia-smi topo -m` calls each level.
_LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a PCI device is: `path` from its host bridge to itself, and its NUMA node (-1: none).

    A path is what `/sys/bus/pci/devices/<address>` links to, below `/sys/devices`.
    """

    path: tuple[str, ...]
    numa: int = -1


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """What NVML and torch say about a GPU; None is what they did not say.

    `memory_bytes` is torch's total where `memory_from` is `torch`. `memory_clock` is in kHz,
    `bus_width` in bits. `links` names what each active NVLink leads to: a GPU's PCI address,
    `switch`, or nothing where NVML does not tell. `link_raw_bw` is NVML's speed of one, bytes per
    millisecond one way. `has_fabric` says that it is registered in an NVLink fabric of many hosts.
    """

    name: str
    address: str = ""
    memory_bytes: int | None = None
    memory_from: str = ""
    memory_clock: int | None = None
    bus_width: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    links: tuple[str, ...] = ()
    link_raw_bw: float | None = None
    has_fabric: bool = False
    place: Place = Place(())


@dataclass(frozen=True, slots=True)
class SeenNic:
    """A network device: its speed in Gbit/s, None where it has no link or does not say."""

    name: str
    gbits: float | None
    is_rdma: bool
    place: Place = Place(())


def path_kind(one: Place, other: Place) -> str:
    """Return what lies between two PCI devices, in the words of `nvidia-smi topo -m`.

    A switch is an upstream port and a downstream port for each device: devices under one switch
    have everything but these last two in common.
    """
    if not one.path or not other.path or one.path[0] != other.path[0]:
        return "NODE" if one.numa == other.numa >= 0 else "SYS"
    common = 0
    for here, there in zip(one.path, other.path, strict=False):
        if here != there:
            break
        common += 1
    if common == 1:
        return "PHB"
    return "PIX" if max(len(one.path), len(other.path)) - common <= 2 else "PXB"


def matrix_of(
    gpus: Sequence[SeenGpu], nics: Sequence[SeenNic], levels: Mapping[tuple[int, int], int]
) -> Matrix:
    """Build the matrix of a machine: NVLinks where there are, PCIe paths otherwise.

    `levels` is NVML's common ancestor of each pair of GPUs, by their positions; where it is
    missing, the places tell.
    """
    names = [f"GPU{position}" for position in range(len(gpus))]
    nic_ids = [f"NIC{position}" for position in range(len(nics))]
    links: dict[tuple[str, str], str] = {}

    def join(one: str, other: str, kind: str) -> None:
        links[one, other] = links[other, one] = kind

    for a, first in enumerate(gpus):
        for b, second in enumerate(gpus[:a]):
            level = levels.get((a, b), levels.get((b, a)))
            over_pcie = _LEVELS.get(-1 if level is None else level)
            count = _joining(first, second)
            kind = f"NV{count}" if count else over_pcie or path_kind(first.place, second.place)
            join(names[a], names[b], kind)
        for position, nic in enumerate(nics):
            join(names[a], nic_ids[position], path_kind(first.place, nic.place))
    for a, nic in enumerate(nics):
        for b, second_nic in enumerate(nics[:a]):
            join(nic_ids[a], nic_ids[b], path_kind(nic.place, second_nic.place))
    return Matrix(
        tuple(names),
        tuple(nic_ids),
        links,
        {nic_id: nic.name for nic_id, nic in zip(nic_ids, nics, strict=True)},
    )


def _joining(one: SeenGpu, other: SeenGpu) -> int:
    """Return how many NVLinks join two GPUs, from one to the other or through a switch.

    A link whose end NVML does not tell, as in some virtual machines, leads to a switch: so NCCL
    takes it, too (NVIDIA/nccl#1182).
    """
    direct = sum(1 for end in one.links if end and end == other.address)
    through = (sum(1 for end in each.links if end in ("switch", "")) for each in (one, other))
    return direct or min(through)


def rate_gbits(text: str) -> float | None:
    """Return Gbit/s from a port's rate as the kernel writes it: `400 Gb/sec (4X NDR)`."""
    found = re.match(r"\s*(\d+(?:\.\d+)?)\s*Gb/sec", text)
    return float(found[1]) if found and float(found[1]) > 0 else None


def path_below_devices(resolved: str) -> tuple[str, ...]:
    """Return the path from the host bridge on, of a resolved `/sys/devices/...` link."""
    parts = resolved.split("/")
    start = next((at for at, part in enumerate(parts) if re.fullmatch(r"pci\w+:\w+", part)), None)
    if start is None:
        return ()
    address = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]")
    path = [parts[start]]
    for _, part in pairwise(parts[start:]):
        if not address.fullmatch(part):
            break
        path.append(part)
    return tuple(path)
