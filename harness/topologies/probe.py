"""Read this machine's hardware from `nvidia-smi`, torch, `/sys` and psutil."""

import csv
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from harness.model.errors import ShardbenchError, UsageError, printable
from harness.topologies.links import LinkMatrix, parse_matrix

_SYS = Path("/sys")
_SECONDS = 60
_QUERY = "name,memory.total,pcie.link.gen.max,pcie.link.width.max"


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """A GPU as `nvidia-smi` and torch describe it; unknown fields are None.

    `memory_clock` is in kHz, `bus_width` in bits.
    """

    name: str
    memory_bytes: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    memory_clock: int | None = None
    bus_width: int | None = None


@dataclass(frozen=True, slots=True)
class NetworkDevice:
    """A network device; `gbits` is its speed in Gbit/s, None without a link or if unknown."""

    name: str
    gbits: float | None
    is_rdma: bool


@dataclass(frozen=True, slots=True)
class Host:
    """The known hardware of one host: GPUs, their links (None without GPUs) and network devices.

    `source` is the origin of this information. `memory` is the host's memory in bytes; in a
    container, the memory of the whole host. `failures` has reasons by source.
    """

    gpus: Sequence[GpuDevice]
    matrix: LinkMatrix | None
    source: str
    nics: Sequence[NetworkDevice] = ()
    memory: int | None = None
    failures: Mapping[str, str] = field(default_factory=dict)


def read_host() -> Host:
    """Return this machine's devices that can be seen, and why others cannot."""
    gpus, no_gpu = read_gpus()
    failures = {"nvidia-smi": no_gpu} if no_gpu else {}
    matrix = parse_matrix(_nvidia_smi("topo", "-m"), "nvidia-smi topo -m") if gpus else None
    try:
        gpus = with_torch(gpus)
    except ShardbenchError as error:
        failures["torch"] = str(error)
    memory = int(psutil.virtual_memory().total)
    return Host(gpus, matrix, "the machine it ran on", read_nics(), memory, failures)


def read_gpus() -> tuple[list[GpuDevice], str]:
    """Return the GPUs that the driver sees; without any, the second value is the reason."""
    try:
        text = _nvidia_smi(f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits")
    except ShardbenchError as error:
        return [], str(error)
    gpus = []
    for name, *texts in csv.reader(text.splitlines(), skipinitialspace=True):
        mib, *pcie = (int(text) if text.isdecimal() else None for text in texts)  # else "[N/A]"
        gpus.append(GpuDevice(printable(name), mib and mib * 2**20, *pcie))
    return gpus, "" if gpus else "It sees no GPU."


def _nvidia_smi(*words: str) -> str:
    """Return what `nvidia-smi` prints; raises ShardbenchError with the reason if it fails."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *words], capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except OSError:
        raise ShardbenchError("The driver's program nvidia-smi is not installed.") from None
    except subprocess.TimeoutExpired:
        raise ShardbenchError(f"It does not answer within {_SECONDS} s.") from None
    if done.returncode:
        raise ShardbenchError(" ".join(f"{done.stdout} {done.stderr}".split()))
    return done.stdout


def with_torch(gpus: Sequence[GpuDevice]) -> list[GpuDevice]:
    """Return the GPUs with the memory size, memory clock and bus width that torch reports.

    Raise ShardbenchError with the reason if torch reports nothing usable.
    """
    used_gpu()
    import torch

    count = torch.cuda.device_count()
    if count != len(gpus):
        raise ShardbenchError(f"It sees {count} GPUs, nvidia-smi {len(gpus)}.")
    devices = map(torch.cuda.get_device_properties, range(count))
    return [
        replace(
            gpu,
            memory_bytes=int(device.total_memory),
            memory_clock=getattr(device, "memory_clock_rate", None),
            bus_width=getattr(device, "memory_bus_width", None),
        )
        for gpu, device in zip(gpus, devices, strict=True)
    ]


def used_gpu() -> str:
    """Return the name of the GPU that torch uses; raises UsageError if torch sees none.

    Unlike `nvidia-smi`, torch follows CUDA_VISIBLE_DEVICES. CUDA stays initialized in this process.
    """
    try:
        import torch
    except ImportError:
        raise UsageError("torch is not installed.") from None
    if not torch.cuda.is_available():
        built = "sees no CUDA device" if torch.version.cuda else "is built without CUDA"
        raise UsageError(f"torch {torch.__version__} {built}.")
    return str(torch.cuda.get_device_name())


def read_nics(system: Path = _SYS) -> list[NetworkDevice]:
    """Return the InfiniBand and RoCE devices, and then the other Ethernet cards.

    Skip virtual interfaces (`lo`, bridges, a container's veth). Ports of a device add up.
    """
    nics: dict[Path, NetworkDevice] = {}
    for card in sorted(system.glob("class/infiniband/*")):
        gbits = 0.0
        for port in card.glob("ports/*"):
            rate = re.match(r"\s*(\d+(?:\.\d+)?)\s*Gb/sec", _text(port / "rate"))
            if rate and "ACTIVE" in _text(port / "state"):  # "400 Gb/sec (4X NDR)"
                gbits += float(rate[1])
        nics[(card / "device").resolve()] = NetworkDevice(card.name, gbits or None, True)
    for card in sorted(system.glob("class/net/*")):
        device = (card / "device").resolve()
        if (card / "device").exists() and device not in nics:
            speed = _text(card / "speed").strip()  # Mbit/s; -1 or an error without a link
            gbits = int(speed) / 1000 if re.fullmatch(r"[1-9]\d*", speed) else 0
            nics[device] = NetworkDevice(card.name, gbits or None, False)
    return list(nics.values())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
