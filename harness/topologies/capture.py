"""Build the topology file for a host, with the origin of each figure."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.model.errors import UsageError
from harness.topologies.csv_files import COLUMNS
from harness.topologies.devices import GpuDevice, NetworkDevice
from harness.topologies.gpu_kinds import GB, GpuKind, find_gpu_kind, pcie_bw
from harness.topologies.link_matrix import LinkMatrix, nvlinks_of
from harness.topologies.link_shape import LinkShape, all_to_all_bw, near_nics, shape_of

QUERIED, SHEET, ASSUMED, GIVEN, UNKNOWN = "queried", "data sheet", "assumed", "given", "not known"


@dataclass(frozen=True, slots=True)
class Host:
    """The known hardware of one host.

    `nic_gbits` maps the name of a network device in the matrix to its speed in Gbit/s; a device
    without an entry has no link. `memory` is in bytes. `source` is the origin of this information,
    and `remarks` are further comments for the file.
    """

    gpus: tuple[GpuDevice, ...]
    matrix: LinkMatrix
    source: str
    nic_gbits: Mapping[str, float] = field(default_factory=dict)
    memory: int | None = None
    remarks: tuple[str, ...] = ()


class SourcedFigure(NamedTuple):
    """A figure of a topology: its value (None leaves it blank), its origin and explanation."""

    value: float | None
    basis: str
    why: str


@dataclass(frozen=True, slots=True)
class HostTopology:
    """A row for a topology file, with `figures` by column and a description of the GPU `links`."""

    name: str
    gpu: str
    figures: Mapping[str, SourcedFigure]
    links: str
    source: str
    remarks: tuple[str, ...]

    @property
    def confidence(self) -> str:
        """`low` with an assumed figure, `medium` with a given or data sheet figure, else `high`."""
        bases = {figure.basis for figure in self.figures.values()}
        return "low" if ASSUMED in bases else "medium" if {SHEET, GIVEN} & bases else "high"

    def as_csv(self) -> str:
        """Return the text of the CSV file: comments on each figure, the header, and the row."""
        comments = (
            f"A topology of shardbench, from: {self.source}.",
            "Bytes are per GPU; *_bw are bytes per millisecond, one way (GB/s x 1,000,000).",
            *(f"{column}: {basis}: {why}" for column, (_, basis, why) in self.figures.items()),
            *self.remarks,
        )
        text = io.StringIO()
        text.writelines(f"# {' '.join(comment.split())}\n" for comment in comments)
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        row: dict[str, object] = {
            "name": self.name,
            "gpu": self.gpu,
            "hbm_basis": self.figures["hbm_bytes"].why,
            "confidence": self.confidence,
            "source": f"shardbench topology capture, {self.source}",
        }
        row |= {column: value and round(value) for column, (value, *_) in self.figures.items()}
        writer.writerow(row)
        return text.getvalue()


def usable_gbits(nics: Sequence[NetworkDevice]) -> dict[str, float]:
    """Return the speed in Gbit/s of each network device that a job would use, by matrix name.

    A job uses the InfiniBand or RoCE devices with a link, or if there are none, Ethernet cards.
    """
    has_rdma = any(nic.is_rdma for nic in nics if nic.gbits is not None)
    return {
        f"NIC{position}": nic.gbits
        for position, nic in enumerate(nics)
        if nic.gbits is not None and nic.is_rdma == has_rdma
    }


def capture(
    host: Host,
    name: str,
    hosts_per_domain: int | None = None,
    nic_gbits: float | None = None,
    memory_gib: float | None = None,
) -> HostTopology:
    """Determine the topology of a host; the optional arguments replace detected figures.

    Raise UsageError if there is no GPU, if the GPUs are of several kinds, or if a required figure
    cannot be determined.
    """
    if not host.gpus:
        raise UsageError("There is no GPU to write a topology for.")
    names = sorted({gpu.name for gpu in host.gpus})
    if len(names) > 1:
        raise UsageError(
            f"A topology has GPUs of one kind, and this machine has {' and '.join(names)}."
        )
    kind = find_gpu_kind(names[0])
    gpu_links = len(host.gpus[0].links) or (kind.nvlinks if kind else None)
    shape = shape_of(host.matrix, gpu_links)
    link = _host_link(host.gpus, kind)
    to_host = f"half of {link.bw / GB:.4g} GB/s one way ({link.what}), as the network shares it"
    figures = {
        "gpus_per_host": SourcedFigure(len(host.gpus), QUERIED, "the GPUs that the matrix joins"),
        "hosts_per_nvlink_domain": _hosts(host, kind, hosts_per_domain),
        "hbm_bytes": _gpu_memory(host.gpus, kind),
        "ddr_bytes": _host_memory(host, memory_gib),
        "intra_host_bw": _intra(host, kind, gpu_links, shape, link),
        "intra_host_bw_nccl": _nccl(kind, shape),
        "inter_host_bw": _inter(host, nic_gbits),
        "hbm_bw": _hbm(host.gpus[0], kind),
        "hbm_to_ddr_bw": SourcedFigure(link.bw / 2, link.basis, to_host),
    }
    return HostTopology(name, names[0], figures, shape.how, host.source, host.remarks)


def _missing(column: str, gpu: GpuDevice, how: str) -> UsageError:
    return UsageError(
        f"{column} of the GPU '{gpu.name}' cannot be found: no data sheet is known for it, and "
        f"{how}; write the row by hand from its data sheet."
    )


def _hosts(host: Host, kind: GpuKind | None, given: int | None) -> SourcedFigure:
    if given is not None:
        return SourcedFigure(given, GIVEN, "by --hosts-per-domain")
    if kind and kind.domain:
        why = (
            f"a domain of {kind.name} may join {kind.domain} GPUs, which one host cannot see: "
            f"give --hosts-per-domain, {kind.domain // len(host.gpus)} for a whole rack"
        )
        return SourcedFigure(1, ASSUMED, why)
    if any(gpu.has_fabric for gpu in host.gpus):
        why = "the GPUs are registered in an NVLink fabric, whose size one host cannot see"
        return SourcedFigure(1, ASSUMED, f"{why}: give --hosts-per-domain if it has more")
    basis = QUERIED if host.gpus[0].address or kind is None else SHEET
    return SourcedFigure(1, basis, "NVLink does not leave the host")


def _gpu_memory(gpus: Sequence[GpuDevice], kind: GpuKind | None) -> SourcedFigure:
    known = [gpu.memory_bytes for gpu in gpus if gpu.memory_bytes]
    if len(known) == len(gpus):
        is_of_torch = gpus[0].memory_from == "torch"
        why = "torch observed" if is_of_torch else "NVML's total, up to 1 % more than torch sees"
        return SourcedFigure(min(known), QUERIED, why)
    if kind and kind.memory_bytes:
        return SourcedFigure(kind.memory_bytes, SHEET, f"{kind.name}, {kind.memory_basis}")
    raise _missing("hbm_bytes", gpus[0], "neither torch nor NVML tells its memory")


def _host_memory(host: Host, given_gib: float | None) -> SourcedFigure:
    memory, basis, by = host.memory, QUERIED, "psutil's total"
    if given_gib is not None:
        memory, basis, by = int(given_gib * 2**30), GIVEN, "by --host-memory-gib"
    if memory is None:
        why = "the planner's own default applies; --host-memory-gib gives it"
        return SourcedFigure(None, UNKNOWN, why)
    share = memory // len(host.gpus)
    if share < 2**30:
        return SourcedFigure(None, UNKNOWN, "less than 1 GiB of host memory for a GPU")
    return SourcedFigure(share, basis, f"{by}, {memory} bytes, shared by {len(host.gpus)} GPUs")


class _Link(NamedTuple):
    """A link: its bandwidth in bytes per millisecond one way, the origin and a description."""

    bw: float
    basis: str
    what: str


def _host_link(gpus: Sequence[GpuDevice], kind: GpuKind | None) -> _Link:
    """Return the link from a GPU to the host's CPU, the slowest one if the GPUs differ."""
    if kind and kind.has_own_host_link:
        return _Link(kind.host_link_bw, SHEET, f"NVLink-C2C of {kind.name} to its CPU")
    known = [
        (pcie_bw(gpu.pcie_generation, gpu.pcie_width), gpu.pcie_generation, gpu.pcie_width)
        for gpu in gpus
        if gpu.pcie_generation and gpu.pcie_width
    ]
    if len(known) == len(gpus):
        bw, generation, width = min(known)
        what = f"PCIe generation {generation} x{width}, the most that NVML allows the GPU"
        return _Link(bw, QUERIED, what)
    if kind:
        return _Link(kind.host_link_bw, SHEET, f"PCIe of {kind.name} in a full slot")
    raise _missing("hbm_to_ddr_bw", gpus[0], "NVML does not tell its PCIe link")


def _nvlink(gpu: GpuDevice, kind: GpuKind | None) -> _Link:
    """Return the bandwidth of one NVLink of a GPU.

    NVML reports the raw rate. Its encoding may cost a 17th (raw 26.56, usable 25 GB/s) or nothing
    (A100). If the data sheet's rate differs by no more than that, use it, else NVML's rate.
    """
    sheet, raw = kind.nvlink_bw if kind else None, gpu.link_raw_bw
    if raw and (not sheet or not 0.93 <= sheet / raw <= 1.01):
        return _Link(raw, QUERIED, f"{raw / GB:.4g} GB/s a link by NVML")
    if sheet and kind:
        also = f", NVML tells {raw / GB:.4g} raw" if raw else ""
        return _Link(sheet, SHEET, f"{sheet / GB:.4g} GB/s a link of {kind.name}{also}")
    raise _missing("intra_host_bw", gpu, "NVML does not tell the speed of its NVLinks")


def _intra(
    host: Host, kind: GpuKind | None, gpu_links: int | None, shape: LinkShape, link: _Link
) -> SourcedFigure:
    gpu, why, used = host.gpus[0], shape.how, []
    if any(map(nvlinks_of, host.matrix.gpu_links())):
        used.append(_nvlink(gpu, kind))
        why += f"; {used[0].what}"
    nvlink_bw = used[0].bw if used else 0
    if not shape.is_whole:
        used.append(link)
        why += f"; {link.bw / GB:.4g} GB/s {link.what}"
    value = all_to_all_bw(host.matrix, nvlink_bw, gpu_links, link.bw)
    whole = "what a GPU sends one way when all send equal shares to all others of the host"
    together = (len(gpu.links) or shape.links_per_gpu) * nvlink_bw
    if value < 0.9 * together:
        whole += f" (its NVLinks together carry {together / GB:.4g} GB/s)"
    basis = SHEET if SHEET in (link.basis for link in used) else QUERIED
    return SourcedFigure(value, basis, f"{whole}: {why}")


def _nccl(kind: GpuKind | None, shape: LinkShape) -> SourcedFigure:
    if kind and kind.nccl_link_bw and shape.is_whole and shape.by != "mesh":
        why = f"{shape.links_per_gpu} links at {kind.nccl_link_bw / GB:.4g} GB/s in NCCL's model"
        return SourcedFigure(shape.links_per_gpu * kind.nccl_link_bw, SHEET, why)
    return SourcedFigure(None, UNKNOWN, "NCCL's model has no single figure for this machine")


def _inter(host: Host, given_gbits: float | None) -> SourcedFigure:
    matrix, speeds, basis = host.matrix, host.nic_gbits, QUERIED
    if given_gbits is not None:
        speeds, basis = dict.fromkeys(matrix.nics, given_gbits), GIVEN
    near = {nic for nics, _ in near_nics(matrix, list(speeds)).values() for nic in nics}
    # The other network devices, far from all GPUs, serve storage and management.
    serving = [nic for nic in matrix.nics if nic in near]
    if not serving:
        why = "no network device with a known speed is seen; the planner's own default applies"
        why += "; --nic-gbits gives the speed of each" if matrix.nics else ""
        return SourcedFigure(None, UNKNOWN, why)
    total, count = sum(speeds[nic] for nic in serving), len(host.gpus)
    names = ", ".join(map(matrix.name_of, serving))
    why = f"{total:.6g} Gbit/s of the network devices nearest to the GPUs ({names}), shared by "
    return SourcedFigure(total / 8 * GB / count, basis, f"{why}{count} GPUs")


def _hbm(gpu: GpuDevice, kind: GpuKind | None) -> SourcedFigure:
    if gpu.memory_clock and gpu.bus_width:
        # Two transfers per clock, as in the formula of CUDA's deviceQuery sample.
        bandwidth = gpu.memory_clock * 1e3 * gpu.bus_width / 8 * 2 / 1e3
        why = (
            f"memory clock {gpu.memory_clock / 1000:g} MHz x {gpu.bus_width} bits x 2 = "
            f"{bandwidth / GB:,.0f} GB/s"
        )
        why += f"; the data sheet of {kind.name} says {kind.hbm_bw / GB:,.0f}" if kind else ""
        return SourcedFigure(bandwidth, QUERIED, why)
    if kind:
        return SourcedFigure(kind.hbm_bw, SHEET, f"{kind.hbm_bw / GB:,.0f} GB/s of {kind.name}")
    raise _missing("hbm_bw", gpu, "neither torch nor NVML tells memory clock and bus width")
