"""Records of a host's GPUs and network devices, and the link matrix computed from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from harness.topologies.link_matrix import LinkMatrix

# The values of NVML's nvmlGpuTopologyLevel_t, and their names in `nvidia-smi topo -m`.
_LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}


@dataclass(frozen=True, slots=True)
class PciPlace:
    """The location of a PCI device: its path from the host bridge, and its NUMA node (-1: none).

    The path has the parts of the target of `/sys/bus/pci/devices/<address>` below `/sys/devices`.
    """

    path: tuple[str, ...] = ()
    numa: int = -1


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """A GPU as NVML and torch describe it; unknown fields are None.

    `memory_from` is the source of `memory_bytes`: `torch` or `NVML`. `memory_clock` is in kHz,
    `bus_width` in bits. `links` has the remote end of each active NVLink: a GPU's PCI address,
    `switch`, or an empty text if unknown. `link_raw_bw` is NVML's raw rate of one NVLink in bytes
    per millisecond one way. `has_fabric` is True if the GPU is registered in a multi-host NVLink
    fabric.
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
    """A network device; `gbits` is its speed in Gbit/s, None without a link or if unknown."""

    name: str
    gbits: float | None
    is_rdma: bool
    place: PciPlace = PciPlace()


def path_kind(one: PciPlace, other: PciPlace) -> str:
    """Return the type of path between two PCI devices, as `nvidia-smi topo -m` names it.

    A switch has one upstream port, and a downstream port for each device. So the paths of devices
    under the same switch differ only in their last two parts, downstream port and device.
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
    """Build the link matrix of a host: NVLinks if two GPUs have any, else the PCIe path.

    `levels` is NVML's common ancestor level for pairs of GPU indices. Pairs without a level use the
    devices' PCI locations.
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
    """Return the number of NVLinks between two GPUs, direct or through a switch.

    A link with an unknown remote end, as in some virtual machines, counts as a link to a switch,
    like in NCCL (NVIDIA/nccl#1182).
    """
    direct = sum(1 for end in one.links if end and end == other.address)
    return direct or min(sum(end in ("switch", "") for end in gpu.links) for gpu in (one, other))
