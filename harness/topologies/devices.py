"""The GPUs and network devices of a host, as records, and the matrix of links that follows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from harness.topologies.link_matrix import LinkMatrix

# NVML's nvmlGpuTopologyLevel_t, and what `nvidia-smi topo -m` calls each level.
_LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_ADDRESS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]"


@dataclass(frozen=True, slots=True)
class PciPlace:
    """Where a PCI device is: `path` from its host bridge to itself, and its NUMA node (-1: none).

    A path is what `/sys/bus/pci/devices/<address>` links to, below `/sys/devices`.
    """

    path: tuple[str, ...] = ()
    numa: int = -1


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """A GPU as NVML and torch describe it; None is what they do not say.

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
    place: PciPlace = PciPlace()


@dataclass(frozen=True, slots=True)
class NetworkDevice:
    """A network device: its speed in Gbit/s, None where it has no link or does not say."""

    name: str
    gbits: float | None
    is_rdma: bool
    place: PciPlace = PciPlace()


def path_kind(one: PciPlace, other: PciPlace) -> str:
    """Return what lies between two PCI devices, in the words of `nvidia-smi topo -m`.

    A switch is an upstream port and a downstream port for each device: devices under one switch
    have everything but these last two in common.
    """
    pairs = list(zip(one.path, other.path, strict=False))
    common = next((at for at, (a, b) in enumerate(pairs) if a != b), len(pairs))
    if common == 0:
        return "NODE" if one.numa == other.numa >= 0 else "SYS"
    if common == 1:
        return "PHB"
    return "PIX" if max(len(one.path), len(other.path)) - common <= 2 else "PXB"


def matrix_of(
    gpus: Sequence[GpuDevice],
    nics: Sequence[NetworkDevice],
    levels: Mapping[tuple[int, int], int],
) -> LinkMatrix:
    """Build the matrix of a host: NVLinks where there are, PCIe paths otherwise.

    `levels` is NVML's common ancestor of each pair of GPUs, by their positions; where it is
    missing, the places tell.
    """
    gpu_names = tuple(f"GPU{position}" for position in range(len(gpus)))
    nic_names = {f"NIC{position}": nic.name for position, nic in enumerate(nics)}
    names = (*gpu_names, *nic_names)
    devices: list[GpuDevice | NetworkDevice] = [*gpus, *nics]
    links: dict[tuple[str, str], str] = {}
    for a, b in combinations(range(len(devices)), 2):
        level = levels.get((a, b), levels.get((b, a)))
        kind = _joined_by(devices[a], devices[b], _LEVELS.get(-1 if level is None else level))
        links[names[a], names[b]] = links[names[b], names[a]] = kind
    return LinkMatrix(gpu_names, tuple(nic_names), links, nic_names)


def _joined_by(
    one: GpuDevice | NetworkDevice, other: GpuDevice | NetworkDevice, level: str | None
) -> str:
    """Return the kind of the link.

    An NVLink whose end NVML does not tell, as in some virtual machines, leads to a switch: so NCCL
    takes it, too (NVIDIA/nccl#1182).
    """
    count = 0
    if isinstance(one, GpuDevice) and isinstance(other, GpuDevice):
        direct = sum(1 for end in one.links if end and end == other.address)
        through = (sum(end in ("switch", "") for end in each.links) for each in (one, other))
        count = direct or min(through)
    return f"NV{count}" if count else level or path_kind(one.place, other.place)


def rate_gbits(text: str) -> float | None:
    """Return Gbit/s from a port's rate as the kernel writes it: `400 Gb/sec (4X NDR)`."""
    found = re.match(r"\s*(\d+(?:\.\d+)?)\s*Gb/sec", text)
    return float(found[1]) or None if found else None


def path_below_devices(resolved: str) -> tuple[str, ...]:
    """Return the path from the host bridge on, of a resolved `/sys/devices/...` link."""
    found = re.search(rf"/pci\w+:\w+(/{_ADDRESS}(?=/|$))*", resolved)
    return tuple(found[0].split("/")[1:]) if found else ()
