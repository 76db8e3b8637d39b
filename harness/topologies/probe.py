"""Read this machine's hardware from NVML, torch, `/sys` and psutil, without interpreting it."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ctypes import byref
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from harness.model.errors import UsageError, one_line
from harness.topologies.devices import GpuDevice, NetworkDevice, PciPlace
from harness.topologies.gpu_kinds import GB

SYS = Path("/sys")
_ADDRESS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]"


def host_memory_bytes() -> int:
    """Return the host's memory in bytes; in a container, the memory of the whole host."""
    return int(psutil.virtual_memory().total)


def read_nics(system: Path = SYS) -> list[NetworkDevice]:
    """Return the InfiniBand and RoCE devices, and then the other Ethernet cards.

    Skip virtual interfaces (`lo`, bridges, a container's veth). Ports of a device add up.
    """
    found: dict[Path, NetworkDevice] = {}
    for port in sorted(system.glob("class/infiniband/*/ports/*")):
        card = port.parents[1]
        device = (card / "device").resolve()
        gbits = found[device].gbits or 0 if device in found else 0
        if "ACTIVE" in _text(port / "state"):
            gbits += rate_gbits(_text(port / "rate"))
        found[device] = NetworkDevice(card.name, gbits or None, True, _place(device))
    for card in sorted(system.glob("class/net/*")):
        device = (card / "device").resolve()
        if (card / "device").exists() and device not in found:
            speed = _text(card / "speed").strip()  # Mbit/s; -1 or an error without a link
            gbits = int(speed) / 1000 if re.fullmatch(r"[1-9]\d*", speed) else 0
            found[device] = NetworkDevice(card.name, gbits or None, False, _place(device))
    return list(found.values())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def rate_gbits(text: str) -> float:
    """Return the Gbit/s in a port's rate from the kernel (`400 Gb/sec (4X NDR)`), 0 if none."""
    found = re.match(r"\s*(\d+(?:\.\d+)?)\s*Gb/sec", text)
    return float(found[1]) if found else 0


def path_below_devices(resolved: str) -> tuple[str, ...]:
    """Return the parts of a resolved `/sys/devices/...` path, from the host bridge on."""
    found = re.search(rf"/pci\w+:\w+(/{_ADDRESS}(?=/|$))*", resolved)
    return tuple(found[0].split("/")[1:]) if found else ()


def _place(device: Path) -> PciPlace:
    numa = _text(device / "numa_node").strip()
    path = path_below_devices(str(device))
    return PciPlace(path, int(numa) if numa.lstrip("-").isdigit() else -1)


class NvmlAnswers(NamedTuple):
    """NVML's report on the GPUs.

    `levels` has the common ancestor level of pairs of GPU indices. `without_p2p` names the pairs
    without peer-to-peer access. `failure` is the reason if there is no GPU, else empty.
    """

    gpus: tuple[GpuDevice, ...] = ()
    levels: Mapping[tuple[int, int], int] = {}
    without_p2p: tuple[str, ...] = ()
    failure: str = ""


def read_gpus(system: Path = SYS) -> NvmlAnswers:
    """Read the GPUs from NVML, and their PCI locations from `/sys`."""
    try:
        import pynvml
    except ImportError:
        return NvmlAnswers(failure="the package nvidia-ml-py is not installed (pip's extra `nvml`)")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return NvmlAnswers(failure=f"no driver answers ({one_line(error)})")
    try:
        return _answers(pynvml, system)
    except pynvml.NVMLError as error:
        return NvmlAnswers(failure=f"the GPUs cannot be read ({one_line(error)})")
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _answers(nvml: Any, system: Path) -> NvmlAnswers:
    handles = [nvml.nvmlDeviceGetHandleByIndex(at) for at in range(nvml.nvmlDeviceGetCount())]
    levels, without = {}, []
    for (a, first), (b, second) in combinations(enumerate(handles), 2):
        level = _ask(nvml, "TopologyCommonAncestor", first, second)
        if level is not None:
            levels[a, b] = int(level)
        # pynvml's NVML_P2P_CAPS_INDEX_READ is a tuple by mistake; the index is 0.
        if _ask(nvml, "P2PStatus", first, second, 0) not in (None, nvml.NVML_P2P_STATUS_OK):
            without.append(f"GPU{a}-GPU{b}")
    gpus = tuple(_gpu(nvml, handle, system) for handle in handles)
    failure = "" if gpus else "it answers, but sees no GPU"
    return NvmlAnswers(gpus, levels, tuple(without), failure)


def _ask(nvml: Any, what: str, *arguments: Any) -> Any:
    """Call `nvmlDeviceGet...`; return None if this driver or GPU does not support the call."""
    try:
        return getattr(nvml, f"nvmlDeviceGet{what}")(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None


def _gpu(nvml: Any, handle: Any, system: Path) -> GpuDevice:
    address = _address(nvml.nvmlDeviceGetPciInfo(handle).busId)
    memory = _ask(nvml, "MemoryInfo", handle)
    clock = _ask(nvml, "MaxClockInfo", handle, nvml.NVML_CLOCK_MEM)
    links = _links(nvml, handle)
    return GpuDevice(
        name=_decoded(nvml.nvmlDeviceGetName(handle)),
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


def _address(bus_id: str | bytes) -> str:
    """Return a PCI address as the kernel writes it: a four-digit domain, lower case."""
    domain, _, rest = _decoded(bus_id).partition(":")
    return f"{domain[-4:]}:{rest}".lower()


def _decoded(text: str | bytes) -> str:
    return text.decode() if isinstance(text, bytes) else text


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
    values = _ask(nvml, "FieldValues", handle, [nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON])
    if not values or values[0].nvmlReturn != nvml.NVML_SUCCESS:
        return None
    megabytes = int(values[0].value.uiVal)  # MB/s one way
    return megabytes / 1000 * GB or None


def _has_fabric(nvml: Any, handle: Any) -> bool:
    """Return whether the GPU is registered in an NVLink fabric, such as an NVL72's."""
    info = nvml.c_nvmlGpuFabricInfoV_t()
    if _ask(nvml, "GpuFabricInfoV", handle, byref(info)) is None:
        return False
    is_complete = info.state == nvml.NVML_GPU_FABRIC_STATE_COMPLETED
    return bool(is_complete and any(bytes(info.clusterUuid)))


def with_torch(gpus: Sequence[GpuDevice]) -> tuple[Sequence[GpuDevice], str]:
    """Return the GPUs with the memory size, memory clock and bus width that torch reports.

    If torch reports nothing usable, the GPUs are unchanged and the second value is the reason.
    """
    if unseen := _why_unseen():
        return gpus, unseen
    import torch

    count = torch.cuda.device_count()
    if count != len(gpus):
        return gpus, f"it sees {count} GPUs, NVML {len(gpus)}, so NVML's memory is taken"
    devices = map(torch.cuda.get_device_properties, range(count))
    return [
        replace(
            gpu,
            memory_bytes=int(device.total_memory),
            memory_from="torch",
            memory_clock=getattr(device, "memory_clock_rate", None) or gpu.memory_clock,
            bus_width=getattr(device, "memory_bus_width", None) or gpu.bus_width,
        )
        for gpu, device in zip(gpus, devices, strict=True)
    ], ""


def _why_unseen() -> str:
    """Return why torch sees no GPU, or "" if it sees one."""
    try:
        import torch
    except ImportError:
        return "not installed"
    if not torch.version.cuda:
        return f"{torch.__version__} is built without CUDA"
    return "" if torch.cuda.is_available() else f"{torch.__version__} sees no CUDA device"


def used_gpu() -> str:
    """Return the name of the GPU that torch uses; raises UsageError if torch sees none.

    Unlike NVML, torch follows CUDA_VISIBLE_DEVICES. CUDA stays initialized in this process.
    """
    if unseen := _why_unseen():
        raise UsageError(f"torch {unseen}.")
    import torch

    return str(torch.cuda.get_device_name())
