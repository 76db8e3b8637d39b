"""Build the topology file for a host, with the origin of each figure."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness.model.errors import UsageError
from harness.topologies.gpu_kinds import GB, GpuKind, find_gpu_kind, pcie_bw
from harness.topologies.links import LinkMatrix, all_to_all_bw, near_nics, nvlinks_of, shape_of
from harness.topologies.lookup import COLUMNS
from harness.topologies.probe import GpuDevice, Host

QUERIED, SHEET, ASSUMED, GIVEN, UNKNOWN = "queried", "data sheet", "assumed", "given", "not known"


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
        )
        row: dict[str, object] = {
            "name": self.name,
            "gpu": self.gpu,
            "hbm_basis": self.figures["hbm_bytes"].why,
            "confidence": self.confidence,
            "source": f"shardbench topology capture, {self.source}",
        }
        row |= {column: value and round(value) for column, (value, *_) in self.figures.items()}
        text = io.StringIO()
        text.writelines(f"# {' '.join(comment.split())}\n" for comment in comments)
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerow(row)
        return text.getvalue()


def capture(
    host: Host,
    name: str,
    hosts_per_domain: int | None = None,
    nic_gbits: float | None = None,
    memory_gib: float | None = None,
) -> HostTopology:
    """Determine the topology of a host; the optional arguments replace detected figures.

    Raise UsageError if there is no GPU, if the GPUs are of several kinds, or if a required figure
    is not known.
    """
    names, matrix = sorted({gpu.name for gpu in host.gpus}), host.matrix
    if len(names) != 1 or matrix is None:
        raise UsageError(f"A topology has GPUs of one kind, not {' and '.join(names) or 'none'}.")
    kind, count = find_gpu_kind(names[0]), len(host.gpus)
    gpu_links = kind.nvlinks if kind else None
    shape = shape_of(matrix, gpu_links)
    to_host = _host_link(host.gpus, kind)

    nccl = SourcedFigure(None, UNKNOWN, "NCCL's model has no single figure for this machine")
    if kind and kind.nccl_link_bw and shape.is_whole and shape.by != "mesh":
        why = f"{shape.links_per_gpu} links at {kind.nccl_link_bw / GB:.4g} GB/s in NCCL's model"
        nccl = SourcedFigure(shape.links_per_gpu * kind.nccl_link_bw, SHEET, why)
    figures = {
        "gpus_per_host": SourcedFigure(count, QUERIED, "the GPUs that the matrix joins"),
        "hosts_per_nvlink_domain": _hosts(count, kind, hosts_per_domain),
        "hbm_bytes": _gpu_memory(host.gpus, kind),
        "ddr_bytes": _host_memory(host, memory_gib),
        "intra_host_bw": _intra(matrix, names[0], kind, to_host),
        "intra_host_bw_nccl": nccl,
        "inter_host_bw": _inter(host, matrix, nic_gbits),
        "hbm_bw": _hbm_bw(host.gpus[0], kind),
        "hbm_to_ddr_bw": SourcedFigure(
            (to_host.value or 0) / 2, to_host.basis, f"half of {to_host.why}; the network shares it"
        ),
    }
    return HostTopology(name, names[0], figures, shape.how, host.source)


def _hosts(count: int, kind: GpuKind | None, given: int | None) -> SourcedFigure:
    if given is not None:
        return SourcedFigure(given, GIVEN, "by --hosts-per-domain")
    if kind and kind.domain:
        why = (
            f"a domain of {kind.name} may join {kind.domain} GPUs, which one host cannot see: "
            f"give --hosts-per-domain, {kind.domain // count} for a whole rack"
        )
        return SourcedFigure(1, ASSUMED, why)
    return SourcedFigure(1, SHEET if kind else ASSUMED, "NVLink does not leave the host")


def _unknown(column: str, gpu: str, how: str) -> UsageError:
    return UsageError(
        f"{column} of the GPU '{gpu}' is not known: it has no data sheet here, and {how}; write "
        "the row by hand from its data sheet."
    )


def _gpu_memory(gpus: Sequence[GpuDevice], kind: GpuKind | None) -> SourcedFigure:
    known = [gpu.memory_bytes for gpu in gpus if gpu.memory_bytes]
    if len(known) == len(gpus):
        is_torch = gpus[0].memory_from == "torch"
        why = "torch observed" if is_torch else "nvidia-smi's total, up to 1 % more than torch sees"
        return SourcedFigure(min(known), QUERIED, why)
    if kind and kind.memory_bytes:
        return SourcedFigure(kind.memory_bytes, SHEET, f"{kind.name}, {kind.memory_basis}")
    raise _unknown("hbm_bytes", gpus[0].name, "neither torch nor nvidia-smi tells its memory")


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


def _host_link(gpus: Sequence[GpuDevice], kind: GpuKind | None) -> SourcedFigure:
    """Return the bandwidth of the link from a GPU to the host's CPU, the slowest if they differ."""
    if kind and kind.has_own_host_link:
        what = f"{kind.host_link_bw / GB:.4g} GB/s one way of NVLink-C2C of {kind.name} to its CPU"
        return SourcedFigure(kind.host_link_bw, SHEET, what)
    known = [
        (pcie_bw(gpu.pcie_generation, gpu.pcie_width), gpu.pcie_generation, gpu.pcie_width)
        for gpu in gpus
        if gpu.pcie_generation and gpu.pcie_width
    ]
    if len(known) == len(gpus):
        bw, generation, width = min(known)
        what = f"{bw / GB:.4g} GB/s one way of PCIe generation {generation} x{width}, by nvidia-smi"
        return SourcedFigure(bw, QUERIED, what)
    if kind:
        what = f"{kind.host_link_bw / GB:.4g} GB/s one way of PCIe of {kind.name} in a full slot"
        return SourcedFigure(kind.host_link_bw, SHEET, what)
    raise _unknown("hbm_to_ddr_bw", gpus[0].name, "nvidia-smi does not tell its PCIe link")


def _intra(
    matrix: LinkMatrix, gpu: str, kind: GpuKind | None, to_host: SourcedFigure
) -> SourcedFigure:
    gpu_links = kind.nvlinks if kind else None
    shape, bases = shape_of(matrix, gpu_links), set[str]()
    why = f"what a GPU sends one way when all send equal shares to all others: {shape.how}"
    link_bw = None
    if any(map(nvlinks_of, matrix.gpu_links())):
        if not kind or not kind.nvlink_bw:
            raise _unknown("intra_host_bw", gpu, "nvidia-smi does not tell the speed of NVLinks")
        link_bw = kind.nvlink_bw
        bases.add(SHEET)
        why += f"; {link_bw / GB:.4g} GB/s a link of {kind.name}"
    if not shape.is_whole:
        bases.add(to_host.basis)
        why += f"; {to_host.why}"
    value = all_to_all_bw(matrix, link_bw, gpu_links, to_host.value or 0)
    together = shape.links_per_gpu * (link_bw or 0)
    if value < 0.9 * together:
        why += f" (its NVLinks together carry {together / GB:.4g} GB/s)"
    return SourcedFigure(value, SHEET if SHEET in bases else QUERIED, why)


def _inter(host: Host, matrix: LinkMatrix, given_gbits: float | None) -> SourcedFigure:
    """Return a GPU's share of the network devices that a job would use.

    They are the InfiniBand or RoCE devices with a link, or if there are none, the fastest Ethernet
    cards. Devices that are far from all GPUs serve storage and management.
    """
    count, basis = len(host.gpus), QUERIED
    if given_gbits is not None:
        speeds, basis = dict.fromkeys(map(matrix.name_of, matrix.nics), given_gbits), GIVEN
    else:
        speeds = {nic.name: nic.gbits for nic in host.nics if nic.is_rdma and nic.gbits}
        if not speeds:
            ethernet = {nic.name: nic.gbits for nic in host.nics if nic.gbits}
            fastest = max(ethernet.values(), default=0)
            speeds = {name: gbits for name, gbits in ethernet.items() if gbits == fastest}
    known = [nic for nic in matrix.nics if matrix.name_of(nic) in speeds]
    near = {matrix.name_of(nic) for nics, _ in near_nics(matrix, known).values() for nic in nics}
    used = [name for name in speeds if not near or name in near]
    if not used:
        why = "no network device with a known speed is seen; the planner's own default applies"
        why += "; --nic-gbits gives the speed of each" if matrix.nics else ""
        return SourcedFigure(None, UNKNOWN, why)
    total = sum(speeds[name] for name in used)
    where = "nearest to the GPUs" if near else "of the host"
    why = f"{total:.6g} Gbit/s of the network devices {where} ({', '.join(used)}), shared by "
    return SourcedFigure(total / 8 * GB / count, basis, f"{why}{count} GPUs")


def _hbm_bw(gpu: GpuDevice, kind: GpuKind | None) -> SourcedFigure:
    if gpu.memory_clock and gpu.bus_width:
        # Two transfers per clock, as in the formula of CUDA's deviceQuery sample.
        bandwidth = float(gpu.memory_clock * gpu.bus_width / 8 * 2)
        why = (
            f"memory clock {gpu.memory_clock / 1000:g} MHz x {gpu.bus_width} bits x 2 = "
            f"{bandwidth / GB:,.0f} GB/s"
        )
        why += f"; the data sheet of {kind.name} says {kind.hbm_bw / GB:,.0f}" if kind else ""
        return SourcedFigure(bandwidth, QUERIED, why)
    if kind:
        return SourcedFigure(kind.hbm_bw, SHEET, f"{kind.hbm_bw / GB:,.0f} GB/s of {kind.name}")
    raise _unknown("hbm_bw", gpu.name, "torch does not tell its memory clock and bus width")
