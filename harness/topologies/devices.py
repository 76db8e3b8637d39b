"""The GPUs and network devices of a host, as records, and the matrix of links that follows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from harness.topologies.link_matrix import LinkMatrix

# NVML's nvmlGpuTopologyLevel_t, and what `nvidia-smi topo -m` calls each level.
_LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}


@dataclass(frozen=True, slots=True)
class PciPlace:
    """Where a PCI device is: `path` from its host bridge to itself, and its NUMA node (-1: none).

    A path is what `/sys/bus/pci/devices/<address>` links to, below `/sys/devices`.
    """

    path: tuple[str, ...] = ()
    numa: int = -1


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """A GPU as NVML and torch describe it; unknown fields are None.

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
    """Return the kind of path between two PCI devices, as `nvidia-smi topo -m` names it.

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
    gpus: Sequence[GpuDevice], nics: Sequence[NetworkDevice], levels: Mapping[tuple[int, int], int]
) -> LinkMatrix:
    """Build the matrix of a host: NVLinks where there are, PCIe paths otherwise.

    `levels` is NVML's common ancestor of each pair of GPUs, by their positions; where it is
    missing, the places decide.
    """
    gpu_names = tuple(f"GPU{position}" for position in range(len(gpus)))
    nic_names = {f"NIC{position}": nic.name for position, nic in enumerate(nics)}
    devices: Sequence[tuple[str, GpuDevice | NetworkDevice]] = [
        *zip(gpu_names, gpus, strict=True),
        *zip(nic_names, nics, strict=True),
    ]
    links: dict[tuple[str, str], str] = {}
    for (a, (name, one)), (b, (other_name, other)) in combinations(enumerate(devices), 2):
        level = levels.get((a, b), levels.get((b, a), -1))
        kind = _LEVELS.get(level) or path_kind(one.place, other.place)
        if isinstance(one, GpuDevice) and isinstance(other, GpuDevice):
            count = _nvlinks(one, other)
            kind = f"NV{count}" if count else kind
        links[name, other_name] = links[other_name, name] = kind
    return LinkMatrix(gpu_names, tuple(nic_names), links, nic_names)


def _nvlinks(one: GpuDevice, other: GpuDevice) -> int:
    """Return how many NVLinks join two GPUs, from one to the other or through a switch.

    A link without a known end, as in some virtual machines, counts as one to a switch, as NCCL does
    (NVIDIA/nccl#1182).
    """
    direct = sum(1 for end in one.links if end and end == other.address)
    return direct or min(sum(end in ("switch", "") for end in gpu.links) for gpu in (one, other))
