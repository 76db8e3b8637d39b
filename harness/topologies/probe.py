"""Reading of the machine at hand: NVML, torch, `/sys` and psutil; nothing is decided here."""

import re
from collections.abc import Sequence
from contextlib import suppress
from ctypes import byref
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from harness.model.errors import one_line
from harness.topologies.devices import Place, SeenGpu, SeenNic, path_below_devices, rate_gbits
from harness.topologies.gpu_kinds import GB

SYS = Path("/sys")


def host_memory_bytes() -> int:
    """Return the host's memory, as psutil sees it: in a container the whole host's."""
    return int(psutil.virtual_memory().total)


def read_nics(system: Path = SYS) -> list[SeenNic]:
    """Return the network devices: ports of InfiniBand or RoCE, then Ethernet cards without them.

    What has no device behind it (`lo`, bridges, a container's end of a pair) is none.
    """
    found: dict[Path, SeenNic] = {}
    for port in sorted(system.glob("class/infiniband/*/ports/*")):
        card = port.parents[1]
        is_up = "ACTIVE" in _text(port / "state")
        gbits = rate_gbits(_text(port / "rate")) if is_up else None
        device = (card / "device").resolve()
        before = found.get(device)
        total = (before.gbits or 0 if before else 0) + (gbits or 0)
        found[device] = SeenNic(card.name, total or None, True, _place(device))
    for card in sorted(system.glob("class/net/*")):
        device = (card / "device").resolve()
        if not (card / "device").exists() or device in found:
            continue
        speed = _text(card / "speed").strip()  # Mbit/s; -1 or an error without a link
        gbits = int(speed) / 1000 if re.fullmatch(r"[1-9]\d*", speed) else None
        found[device] = SeenNic(card.name, gbits, False, _place(device))
    return list(found.values())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _place(device: Path) -> Place:
    numa = _text(device / "numa_node").strip()
    return Place(path_below_devices(str(device)), int(numa) if numa.lstrip("-").isdigit() else -1)


@dataclass(frozen=True, slots=True)
class SeenByNvml:
    """The GPUs, NVML's common ancestor of each pair, and the pairs without peer-to-peer access.

    `unseen` says line by line what could not be seen; without NVML the others are empty.
    """

    gpus: tuple[SeenGpu, ...] = ()
    levels: dict[tuple[int, int], int] = field(default_factory=dict)
    without_p2p: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


def read_gpus(system: Path = SYS) -> SeenByNvml:
    """Return what NVML tells of the GPUs, and where the kernel has them."""
    try:
        import pynvml
    except ImportError:
        return _nothing("the package nvidia-ml-py is not installed (pip's extra `nvml`)")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _nothing(f"no driver answers ({one_line(error)})")
    try:
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(position)
            for position in range(pynvml.nvmlDeviceGetCount())
        ]
        gpus = [_gpu(pynvml, handle, system) for handle in handles]
        levels: dict[tuple[int, int], int] = {}
        without: list[str] = []
        for a, first in enumerate(handles):
            for b, second in enumerate(handles[:a]):
                level = _ask(pynvml, "TopologyCommonAncestor", first, second)
                if level is not None:
                    levels[a, b] = int(level)
                # pynvml's NVML_P2P_CAPS_INDEX_READ is a tuple by mistake; the index is 0.
                status = _ask(pynvml, "P2PStatus", first, second, 0)
                if status not in (None, pynvml.NVML_P2P_STATUS_OK):
                    without.append(f"GPU{b}-GPU{a}")
        if not gpus:
            return _nothing("it answers, but sees no GPU")
        return SeenByNvml(tuple(gpus), levels, tuple(without))
    except pynvml.NVMLError as error:
        return _nothing(f"the GPUs cannot be read ({one_line(error)})")
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _nothing(why: str) -> SeenByNvml:
    return SeenByNvml(unseen=(f"NVML: {why}",))


def _ask(nvml: Any, what: str, *arguments: Any) -> Any:
    """Return what NVML answers, None where this driver or GPU does not know the question."""
    try:
        return getattr(nvml, f"nvmlDeviceGet{what}")(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None


def _gpu(nvml: Any, handle: Any, system: Path) -> SeenGpu:
    address = _address(nvml.nvmlDeviceGetPciInfo(handle).busId)
    memory = _ask(nvml, "MemoryInfo", handle)
    clock = _ask(nvml, "MaxClockInfo", handle, nvml.NVML_CLOCK_MEM)
    links = _links(nvml, handle)
    name = nvml.nvmlDeviceGetName(handle)
    return SeenGpu(
        name=name.decode() if isinstance(name, bytes) else str(name),
        address=address,
        memory_bytes=int(memory.total) if memory else None,
        memory_from="NVML" if memory else "",
        memory_clock=int(clock) * 1000 if clock else None,
        bus_width=_ask(nvml, "MemoryBusWidth", handle),
        pcie_generation=_ask(nvml, "MaxPcieLinkGeneration", handle),
        pcie_width=_ask(nvml, "MaxPcieLinkWidth", handle),
        links=links,
        link_raw_bw=_link_speed(nvml, handle) if links else None,
        has_fabric=_has_fabric(nvml, handle),
        place=_place((system / "bus/pci/devices" / address).resolve()),
    )


def _address(bus_id: Any) -> str:
    """Return a PCI address as the kernel writes it: four digits of domain, small letters."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else str(bus_id)
    domain, _, rest = text.partition(":")
    return f"{domain[-4:]}:{rest}".lower()


def _links(nvml: Any, handle: Any) -> tuple[str, ...]:
    ends = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        if not _ask(nvml, "NvLinkState", handle, link):
            continue
        kind = _ask(nvml, "NvLinkRemoteDeviceType", handle, link)
        remote = _ask(nvml, "NvLinkRemotePciInfo", handle, link)
        if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            ends.append("switch")
        elif kind == nvml.NVML_NVLINK_DEVICE_TYPE_GPU and remote is not None:
            ends.append(_address(remote.busId))
        elif kind != nvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU:
            ends.append("")
    return tuple(ends)


def _link_speed(nvml: Any, handle: Any) -> float | None:
    field = nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
    values = _ask(nvml, "FieldValues", handle, [field])
    if not values or values[0].nvmlReturn != nvml.NVML_SUCCESS:
        return None
    megabytes = int(values[0].value.uiVal)  # MB/s one way
    return megabytes / 1000 * GB if megabytes else None


def _has_fabric(nvml: Any, handle: Any) -> bool:
    """Whether the GPU is registered in an NVLink fabric, as those of an NVL72 are."""
    info = nvml.c_nvmlGpuFabricInfoV_t()
    if _ask(nvml, "GpuFabricInfoV", handle, byref(info)) is None:
        return False
    is_complete = info.state == nvml.NVML_GPU_FABRIC_STATE_COMPLETED
    return bool(is_complete and any(bytes(info.clusterUuid)))


def with_torch(gpus: Sequence[SeenGpu]) -> tuple[Sequence[SeenGpu], list[str]]:
    """Take over what torch's CUDA reports: the memory that programs get, clock and bus width.

    The second value says why there is nothing to take over.
    """
    try:
        import torch
    except ImportError:
        return gpus, ["torch: not installed"]
    if not torch.version.cuda:
        return gpus, [f"torch: {torch.__version__} is built without CUDA"]
    if not torch.cuda.is_available():
        return gpus, [f"torch: {torch.__version__} sees no CUDA device"]
    if torch.cuda.device_count() != len(gpus):
        seen = torch.cuda.device_count()
        return gpus, [f"torch: it sees {seen} GPUs, NVML {len(gpus)}, so NVML's memory is taken"]
    found = []
    for position, gpu in enumerate(gpus):
        properties = torch.cuda.get_device_properties(position)
        found.append(
            replace(
                gpu,
                memory_bytes=int(properties.total_memory),
                memory_from="torch",
                memory_clock=getattr(properties, "memory_clock_rate", None) or gpu.memory_clock,
                bus_width=getattr(properties, "memory_bus_width", None) or gpu.bus_width,
            )
        )
    return found, []
