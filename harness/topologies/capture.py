"""From what is known of a host to the row of a topology file, each figure with its origin."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness.errors import UsageError
from harness.topologies.csv_files import COLUMNS
from harness.topologies.devices import GpuDevice, NetworkDevice
from harness.topologies.gpu_kinds import GB, GpuKind, find_gpu_kind, pcie_bw
from harness.topologies.link_matrix import LinkMatrix, nvlinks_of
from harness.topologies.link_shape import LinkShape, all_to_all_bw, serving_nics, shape_of

QUERIED, SHEET, ASSUMED, GIVEN, UNKNOWN = "queried", "data sheet", "assumed", "given", "not known"


@dataclass(frozen=True, slots=True)
class Host:
    """One host, as far as it is known, and where that is from.

    `nic_gbits` is the speed of each network device by the matrix's name, Gbit/s; one that is
    missing has no link. `host_memory` is bytes. `source` says where all this was found, `remarks`
    what else the file should tell.
    """

    gpus: tuple[GpuDevice, ...]
    matrix: LinkMatrix
    nic_gbits: dict[str, float]
    host_memory: int | None
    source: str
    nic_basis: str = QUERIED
    memory_basis: str = QUERIED
    remarks: tuple[str, ...] = ()


class SourcedFigure(NamedTuple):
    """A cell of the row: its value, None for a blank, where it is from and what it is."""

    column: str
    value: float | None
    basis: str
    why: str


@dataclass(frozen=True, slots=True)
class HostTopology:
    """A row for a topology file, with its figures explained."""

    name: str
    gpu: str
    figures: tuple[SourcedFigure, ...]
    shape: LinkShape
    source: str
    remarks: tuple[str, ...]

    def value(self, column: str) -> float | None:
        """Return a figure by its column."""
        return next(figure.value for figure in self.figures if figure.column == column)

    @property
    def confidence(self) -> str:
        """`low` with an assumed figure, `medium` with one from a data sheet, else `high`."""
        bases = {figure.basis for figure in self.figures}
        return "low" if ASSUMED in bases else "medium" if {SHEET, GIVEN} & bases else "high"

    def as_csv(self) -> str:
        """Return the file: comments on each figure, the columns, the row."""
        comments = (
            f"A topology of shardbench, from: {self.source}.",
            "Bytes are per GPU; *_bw are bytes per millisecond, one way (GB/s x 1,000,000).",
            *(f"{column}: {basis}: {why}" for column, _, basis, why in self.figures),
            *self.remarks,
        )
        text = io.StringIO()
        text.writelines(f"# {' '.join(comment.split())}\n" for comment in comments)
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        row: dict[str, object] = {
            figure.column: None if figure.value is None else round(figure.value)
            for figure in self.figures
        }
        writer.writerow(
            row
            | {
                "name": self.name,
                "gpu": self.gpu,
                "hbm_basis": next(f.why for f in self.figures if f.column == "hbm_bytes"),
                "confidence": self.confidence,
                "source": f"shardbench topology capture, {self.source}",
            }
        )
        return text.getvalue()


def usable_gbits(nics: Sequence[NetworkDevice]) -> dict[str, float]:
    """Return the speed of each network device that a job would use, by the matrix's names.

    Those are the ports of InfiniBand or RoCE with a link; without any, the Ethernet cards.
    """
    has_rdma = any(nic.is_rdma for nic in nics if nic.gbits is not None)
    return {
        f"NIC{position}": nic.gbits
        for position, nic in enumerate(nics)
        if nic.gbits is not None and nic.is_rdma == has_rdma
    }


def capture(host: Host, name: str, hosts_per_domain: int | None = None) -> HostTopology:
    """Decide the row of a host.

    Raises:
        UsageError: there is no GPU, GPUs of several kinds, or a figure that a row must have cannot
            be found; says what would give it.
    """
    if not host.gpus:
        raise UsageError("There is no GPU to write a topology for.")
    names = sorted({gpu.name for gpu in host.gpus})
    if len(names) > 1:
        raise UsageError(
            f"A topology has GPUs of one kind, and this machine has {' and '.join(names)}."
        )
    gpu = host.gpus[0]
    kind = find_gpu_kind(gpu.name)
    gpu_links = len(gpu.links) or (kind.nvlinks if kind else None)
    shape = shape_of(host.matrix, gpu_links)
    pcie = _host_link(host.gpus, kind)
    figures = (
        SourcedFigure("gpus_per_host", len(host.gpus), QUERIED, "the GPUs that the matrix joins"),
        _hosts(host, kind, hosts_per_domain),
        _gpu_memory(host.gpus, kind),
        _host_memory(host),
        _intra(host, kind, gpu_links, shape, pcie),
        _nccl(kind, shape),
        _inter(host),
        _hbm(gpu, kind),
        SourcedFigure(
            "hbm_to_ddr_bw",
            pcie.bw / 2,
            pcie.basis,
            f"half of {pcie.bw / GB:.4g} GB/s one way ({pcie.what}), as the network shares it",
        ),
    )
    return HostTopology(name, gpu.name, figures, shape, host.source, host.remarks)


def _missing(column: str, gpu: str, how: str) -> UsageError:
    return UsageError(
        f"{column} of the GPU '{gpu}' cannot be found: no data sheet is known for it, and {how}; "
        "write the row by hand from its data sheet."
    )


def _hosts(host: Host, kind: GpuKind | None, given: int | None) -> SourcedFigure:
    count, basis = 1, ASSUMED
    if given is not None:
        count, basis, why = given, GIVEN, "by --hosts-per-domain"
    elif kind and kind.domain:
        why = (
            f"a domain of {kind.name} may join {kind.domain} GPUs, which one host cannot see: "
            f"give --hosts-per-domain, {kind.domain // len(host.gpus)} for a whole rack"
        )
    elif any(gpu.has_fabric for gpu in host.gpus):
        why = (
            "the GPUs are registered in an NVLink fabric, whose size one host cannot see: give "
            "--hosts-per-domain if it has more"
        )
    else:
        basis = QUERIED if host.gpus[0].address or kind is None else SHEET
        why = "NVLink does not leave the host"
    return SourcedFigure("hosts_per_nvlink_domain", count, basis, why)


def _gpu_memory(gpus: Sequence[GpuDevice], kind: GpuKind | None) -> SourcedFigure:
    told = [gpu.memory_bytes for gpu in gpus if gpu.memory_bytes]
    if len(told) == len(gpus):
        why = "NVML's total, of which torch sees up to 1 % less"
        if gpus[0].memory_from == "torch":
            why = "torch observed"
        return SourcedFigure("hbm_bytes", min(told), QUERIED, why)
    if kind and kind.memory_bytes:
        why = f"{kind.name}, {kind.memory_basis}"
        return SourcedFigure("hbm_bytes", kind.memory_bytes, SHEET, why)
    raise _missing("hbm_bytes", gpus[0].name, "neither torch nor NVML tells its memory")


def _host_memory(host: Host) -> SourcedFigure:
    value, basis, count = None, UNKNOWN, len(host.gpus)
    if host.host_memory is None:
        why = "the planner's own default applies; --host-memory-gib gives it"
    elif host.host_memory < 2**30 * count:
        why = "less than 1 GiB of host memory for a GPU"
    else:
        value, basis = host.host_memory // count, host.memory_basis
        by = "psutil's total" if basis == QUERIED else "by --host-memory-gib"
        why = f"{by}, {host.host_memory} bytes, shared by {count} GPUs"
    return SourcedFigure("ddr_bytes", value, basis, why)


class _Link(NamedTuple):
    """A link's bandwidth, bytes per millisecond one way; None is not known."""

    bw: float
    basis: str
    what: str


def _host_link(gpus: Sequence[GpuDevice], kind: GpuKind | None) -> _Link:
    """Return what joins a GPU with its host."""
    if kind and kind.has_own_host_link:
        return _Link(kind.host_link_bw, SHEET, f"NVLink-C2C of {kind.name} to its CPU")
    told = [
        (pcie_bw(gpu.pcie_generation, gpu.pcie_width), gpu.pcie_generation, gpu.pcie_width)
        for gpu in gpus
        if gpu.pcie_generation and gpu.pcie_width
    ]
    if len(told) == len(gpus):
        bw, generation, width = min(told)
        what = f"PCIe generation {generation} x{width}, the most that NVML allows the GPU"
        return _Link(bw, QUERIED, what)
    if kind:
        return _Link(kind.host_link_bw, SHEET, f"PCIe of {kind.name} in a full slot")
    raise _missing("hbm_to_ddr_bw", gpus[0].name, "NVML does not tell its PCIe link")


def _nvlink(gpu: GpuDevice, kind: GpuKind | None) -> _Link | None:
    """Return one NVLink of a GPU, None if its bandwidth is not known.

    NVML tells the raw rate, of which coding leaves 16 of 17 parts (26.56 of 25 GB/s) or none away
    (A100): the data sheet's figure is taken where the two are so near, NVML's otherwise.
    """
    sheet, raw = kind.nvlink_bw if kind else None, gpu.link_raw_bw
    if raw and (not sheet or not 0.93 <= sheet / raw <= 1.01):
        return _Link(raw, QUERIED, f"{raw / GB:.4g} GB/s a link by NVML")
    if sheet and kind:
        told = f", NVML tells {raw / GB:.4g} raw" if raw else ""
        return _Link(sheet, SHEET, f"{sheet / GB:.4g} GB/s a link of {kind.name}{told}")
    return None


def _intra(
    host: Host, kind: GpuKind | None, gpu_links: int | None, shape: LinkShape, pcie: _Link
) -> SourcedFigure:
    nvlink, basis = None, pcie.basis
    parts = [shape.how]
    if any(map(nvlinks_of, host.matrix.gpu_links())):
        nvlink = _nvlink(host.gpus[0], kind)
        if nvlink is None:
            how = "NVML does not tell the speed of its NVLinks"
            raise _missing("intra_host_bw", host.gpus[0].name, how)
        parts.append(nvlink.what)
        basis = nvlink.basis
    if not shape.is_whole:
        parts.append(f"{pcie.bw / GB:.4g} GB/s {pcie.what}")
        basis = SHEET if SHEET in (basis, pcie.basis) else pcie.basis
    value = all_to_all_bw(host.matrix, nvlink and nvlink.bw, gpu_links, pcie.bw)
    whole = "what a GPU sends one way when all send equal shares to all others of the host"
    together = (len(host.gpus[0].links) or shape.links_per_gpu) * (nvlink.bw if nvlink else 0)
    if value < 0.9 * together:
        whole += f" (its NVLinks together carry {together / GB:.4g} GB/s)"
    return SourcedFigure("intra_host_bw", value, basis, f"{whole}: {'; '.join(parts)}")


def _nccl(kind: GpuKind | None, shape: LinkShape) -> SourcedFigure:
    column = "intra_host_bw_nccl"
    if kind and kind.nccl_link_bw and shape.is_whole and shape.by != "mesh":
        why = f"{shape.links_per_gpu} links at {kind.nccl_link_bw / GB:.4g} GB/s in NCCL's model"
        return SourcedFigure(column, shape.links_per_gpu * kind.nccl_link_bw, SHEET, why)
    why = "NCCL's model has no single figure for this machine"
    return SourcedFigure(column, None, UNKNOWN, why)


def _inter(host: Host) -> SourcedFigure:
    serving = serving_nics(host.matrix, list(host.nic_gbits))
    if not serving:
        why = "no network device with a known speed is seen; the planner's own default applies"
        if host.matrix.nics:
            why += "; --nic-gbits gives the speed of each"
        return SourcedFigure("inter_host_bw", None, UNKNOWN, why)
    total = sum(host.nic_gbits[nic] for nic in serving)
    names = ", ".join(host.matrix.name_of(nic) for nic in serving)
    why = (
        f"{total:.6g} Gbit/s of the network devices nearest to the GPUs ({names}), "
        f"shared by {len(host.gpus)} GPUs"
    )
    return SourcedFigure("inter_host_bw", total / 8 * GB / len(host.gpus), host.nic_basis, why)


def _hbm(gpu: GpuDevice, kind: GpuKind | None) -> SourcedFigure:
    if gpu.memory_clock and gpu.bus_width:
        # Two transfers each clock: the formula of CUDA's own deviceQuery sample.
        bandwidth = gpu.memory_clock * 1e3 * gpu.bus_width / 8 * 2 / 1e3
        sheet = f"; the data sheet of {kind.name} says {kind.hbm_bw / GB:,.0f}" if kind else ""
        why = (
            f"memory clock {gpu.memory_clock / 1000:g} MHz x {gpu.bus_width} bits x 2 = "
            f"{bandwidth / GB:,.0f} GB/s{sheet}"
        )
        return SourcedFigure("hbm_bw", bandwidth, QUERIED, why)
    if kind:
        why = f"{kind.hbm_bw / GB:,.0f} GB/s of {kind.name}"
        return SourcedFigure("hbm_bw", kind.hbm_bw, SHEET, why)
    raise _missing("hbm_bw", gpu.name, "neither torch nor NVML tells memory clock and bus width")
