"""From what is known of a machine to the row of a topology file, each figure with its origin."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.model.errors import UsageError
from harness.topologies.devices import SeenGpu, SeenNic
from harness.topologies.gpu_kinds import GB, GpuKind, find_gpu_kind, pcie_bw
from harness.topologies.link_matrix import Matrix
from harness.topologies.link_shape import Shape, all_to_all_bw, serving_nics, shape_of

QUERIED, SHEET, ASSUMED, GIVEN, UNKNOWN = "queried", "data sheet", "assumed", "given", "not known"
_COLUMNS = (
    "name",
    "gpu",
    "gpus_per_host",
    "hosts_per_nvlink_domain",
    "hbm_bytes",
    "hbm_basis",
    "ddr_bytes",
    "intra_host_bw",
    "intra_host_bw_nccl",
    "inter_host_bw",
    "hbm_bw",
    "hbm_to_ddr_bw",
    "confidence",
    "source",
)


@dataclass(frozen=True, slots=True)
class Machine:
    """One host, as far as it is known, and where that is from.

    `nic_gbits` is the speed of each network device by the matrix's name, Gbit/s; one that is
    missing has no link. `host_memory` is bytes. `source` says where all this was seen, `remarks`
    what else the file should tell.
    """

    gpus: tuple[SeenGpu, ...]
    matrix: Matrix
    nic_gbits: dict[str, float]
    host_memory: int | None
    source: str
    nic_basis: str = QUERIED
    memory_basis: str = QUERIED
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A cell of the row: its value, None for a blank, where it is from and what it is."""

    column: str
    value: int | float | None
    basis: str
    why: str


@dataclass(frozen=True, slots=True)
class Captured:
    """A row for a topology file, with its figures explained."""

    name: str
    gpu: str
    figures: tuple[Figure, ...]
    shape: Shape
    source: str
    remarks: tuple[str, ...] = field(default=())

    def value(self, column: str) -> int | float | None:
        """Return a figure by its column."""
        return next(figure.value for figure in self.figures if figure.column == column)

    @property
    def confidence(self) -> str:
        """`low` with an assumed figure, `medium` with one from a data sheet, else `high`."""
        bases = {figure.basis for figure in self.figures}
        return "low" if ASSUMED in bases else "medium" if {SHEET, GIVEN} & bases else "high"

    def as_csv(self) -> str:
        """Return the file: comments on each figure, the columns, the row."""
        said = [f"# {figure.column}: {figure.basis}: {figure.why}" for figure in self.figures]
        lines = [
            f"# A topology of shardbench, from: {self.source}.",
            "# Bytes are per GPU; *_bw are bytes per millisecond, one way (GB/s x 1,000,000).",
            *said,
            *(f"# {remark}" for remark in self.remarks),
        ]
        row = {
            "name": self.name,
            "gpu": self.gpu,
            "hbm_basis": next(f.why for f in self.figures if f.column == "hbm_bytes"),
            "confidence": self.confidence,
            "source": f"shardbench topology capture, {self.source}",
            **{figure.column: _written(figure.value) for figure in self.figures},
        }
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerow([row[column] for column in _COLUMNS])
        return "".join(f"{_one_line(line)}\n" for line in lines) + text.getvalue()


def usable_gbits(nics: Sequence[SeenNic]) -> dict[str, float]:
    """Return the speed of each network device that a job would use, by the matrix's names.

    Those are the ports of InfiniBand or RoCE with a link; without any, the Ethernet cards.
    """
    speeds = {
        f"NIC{position}": (nic.is_rdma, nic.gbits)
        for position, nic in enumerate(nics)
        if nic.gbits is not None
    }
    has_rdma = any(is_rdma for is_rdma, _ in speeds.values())
    return {nic: gbits for nic, (is_rdma, gbits) in speeds.items() if is_rdma == has_rdma}


def _written(value: int | float | None) -> str:
    return "" if value is None else f"{round(value)}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def capture(machine: Machine, name: str, hosts_per_domain: int | None = None) -> Captured:
    """Decide the row of a machine.

    Raises:
        UsageError: there is no GPU, GPUs of several kinds, or a figure that a row must have cannot
            be found; says what would give it.
    """
    if not machine.gpus:
        raise UsageError("There is no GPU to write a topology for.")
    names = sorted({gpu.name for gpu in machine.gpus})
    if len(names) > 1:
        raise UsageError(
            f"A topology has GPUs of one kind, and this machine has {' and '.join(names)}."
        )
    gpu = machine.gpus[0]
    kind = find_gpu_kind(gpu.name)
    shape = shape_of(machine.matrix, _links_of(gpu, kind))
    host_link = _host_link(machine.gpus, kind)
    figures = (
        Figure("gpus_per_host", len(machine.gpus), QUERIED, "the GPUs that the matrix joins"),
        _hosts(machine, kind, hosts_per_domain),
        _memory(machine.gpus, kind),
        _host_memory(machine),
        _intra(machine, kind, shape, host_link),
        _nccl(kind, shape),
        _inter(machine),
        _hbm(gpu, kind),
        _to_host(host_link),
    )
    return Captured(name, gpu.name, figures, shape, machine.source, machine.remarks)


def _missing(column: str, gpu: str, how: str) -> UsageError:
    return UsageError(
        f"{column} of the GPU '{gpu}' cannot be found: no data sheet is known for it, and {how}; "
        "write the row by hand from its data sheet."
    )


def _links_of(gpu: SeenGpu, kind: GpuKind | None) -> int | None:
    return len(gpu.links) or (kind.nvlinks if kind else None)


def _hosts(machine: Machine, kind: GpuKind | None, given: int | None) -> Figure:
    column = "hosts_per_nvlink_domain"
    if given is not None:
        return Figure(column, given, GIVEN, "by --hosts-per-domain")
    if kind and kind.domain:
        why = (
            f"a domain of {kind.name} may join {kind.domain} GPUs, which one host cannot see: "
            f"give --hosts-per-domain, {kind.domain // len(machine.gpus)} for a whole rack"
        )
        return Figure(column, 1, ASSUMED, why)
    if any(gpu.has_fabric for gpu in machine.gpus):
        why = "the GPUs are registered in an NVLink fabric, whose size one host cannot see"
        return Figure(column, 1, ASSUMED, f"{why}: give --hosts-per-domain if it has more")
    basis = QUERIED if machine.gpus[0].address or kind is None else SHEET
    return Figure(column, 1, basis, "NVLink does not leave the host")


def _memory(gpus: Sequence[SeenGpu], kind: GpuKind | None) -> Figure:
    seen = [gpu.memory_bytes for gpu in gpus if gpu.memory_bytes]
    if len(seen) == len(gpus):
        by = "torch observed" if gpus[0].memory_from == "torch" else "NVML's total"
        more = "" if by == "torch observed" else ", of which torch sees up to 1 % less"
        return Figure("hbm_bytes", min(seen), QUERIED, by + more)
    if kind and kind.memory_bytes:
        why = f"{kind.name}, {kind.memory_basis}"
        return Figure("hbm_bytes", kind.memory_bytes, SHEET, why)
    raise _missing("hbm_bytes", gpus[0].name, "neither torch nor NVML tells its memory")


def _host_memory(machine: Machine) -> Figure:
    if machine.host_memory is None:
        why = "the planner's own default applies; --host-memory-gib gives it"
        return Figure("ddr_bytes", None, UNKNOWN, why)
    by = "psutil's total" if machine.memory_basis == QUERIED else "by --host-memory-gib"
    share = machine.host_memory // len(machine.gpus)
    if share < 2**30:
        return Figure("ddr_bytes", None, UNKNOWN, "less than 1 GiB of host memory for a GPU")
    why = f"{by}, {machine.host_memory} bytes, shared by {len(machine.gpus)} GPUs"
    return Figure("ddr_bytes", share, machine.memory_basis, why)


@dataclass(frozen=True, slots=True)
class _HostLink:
    """What joins a GPU with its host, bytes per millisecond one way."""

    bw: float
    basis: str
    what: str


def _host_link(gpus: Sequence[SeenGpu], kind: GpuKind | None) -> _HostLink:
    if kind and kind.has_own_host_link:
        return _HostLink(kind.host_link_bw, SHEET, f"NVLink-C2C of {kind.name} to its CPU")
    seen = [
        (gpu.pcie_generation, gpu.pcie_width)
        for gpu in gpus
        if gpu.pcie_generation and gpu.pcie_width
    ]
    if len(seen) == len(gpus):
        generation, width = min(seen, key=lambda each: pcie_bw(*each))
        what = f"PCIe generation {generation} x{width}, the most that NVML allows the GPU"
        return _HostLink(pcie_bw(generation, width), QUERIED, what)
    if kind:
        return _HostLink(kind.host_link_bw, SHEET, f"PCIe of {kind.name} in a full slot")
    raise _missing("hbm_to_ddr_bw", gpus[0].name, "NVML does not tell its PCIe link")


def _to_host(link: _HostLink) -> Figure:
    why = f"half of {link.bw / GB:.4g} GB/s one way ({link.what}), as pytorch/torchrec#2589 plans"
    return Figure("hbm_to_ddr_bw", link.bw / 2, link.basis, why)


def _link_bw(gpu: SeenGpu, kind: GpuKind | None) -> tuple[float | None, str, str]:
    """Return one NVLink's bandwidth and its origin.

    NVML tells the raw rate, of which coding leaves 16 of 17 parts (26.56 of 25 GB/s) or none away
    (A100): the data sheet's figure is taken where the two are so near, NVML's otherwise.
    """
    sheet = kind.nvlink_bw if kind else None
    raw = gpu.link_raw_bw
    if raw and (not sheet or not 0.93 <= sheet / raw <= 1.01):
        return raw, QUERIED, f"{raw / GB:.4g} GB/s a link by NVML"
    if sheet and kind:
        seen = f", NVML tells {raw / GB:.4g} raw" if raw else ""
        return sheet, SHEET, f"{sheet / GB:.4g} GB/s a link of {kind.name}{seen}"
    return None, UNKNOWN, ""


def _intra(machine: Machine, kind: GpuKind | None, shape: Shape, host: _HostLink) -> Figure:
    gpu = machine.gpus[0]
    link_bw, basis, link_why = _link_bw(gpu, kind)
    has_nvlink = any(
        machine.matrix.nvlinks(a, b) for a in machine.matrix.gpus for b in machine.matrix.gpus
    )
    if has_nvlink and link_bw is None:
        raise _missing("intra_host_bw", gpu.name, "NVML does not tell the speed of its NVLinks")
    value = all_to_all_bw(machine.matrix, link_bw, _links_of(gpu, kind), host.bw)
    why = shape.how
    if has_nvlink:
        why += f"; {link_why}"
    if not has_nvlink or not shape.is_whole or not shape.links_per_gpu:
        basis = SHEET if SHEET in (basis, host.basis) else host.basis
        why += f"; {host.bw / GB:.4g} GB/s {host.what}"
    whole = "what a GPU sends one way when all send equal shares to all others of the host"
    links = len(gpu.links) or shape.links_per_gpu
    if has_nvlink and link_bw and links and value < 0.9 * links * link_bw:
        whole += f" (its NVLinks together carry {links * link_bw / GB:.4g} GB/s)"
    return Figure("intra_host_bw", value, basis, f"{whole}: {why}")


def _nccl(kind: GpuKind | None, shape: Shape) -> Figure:
    column = "intra_host_bw_nccl"
    if kind and kind.nccl_link_bw and shape.is_whole and "mesh" not in shape.how:
        why = f"{shape.links_per_gpu} links at {kind.nccl_link_bw / GB:.4g} GB/s in NCCL's model"
        return Figure(column, shape.links_per_gpu * kind.nccl_link_bw, SHEET, why)
    return Figure(column, None, UNKNOWN, "NCCL's model has no single figure for this machine")


def _inter(machine: Machine) -> Figure:
    column = "inter_host_bw"
    serving = serving_nics(machine.matrix, list(machine.nic_gbits))
    if not serving:
        why = "no network device with a known speed is seen; the planner's own default applies"
        if machine.matrix.nics:
            why += "; --nic-gbits gives the speed of each"
        return Figure(column, None, UNKNOWN, why)
    total = sum(machine.nic_gbits[nic] for nic in serving)
    names = ", ".join(machine.matrix.name_of(nic) for nic in serving)
    why = (
        f"{total:.6g} Gbit/s of the network devices nearest to the GPUs ({names}), "
        f"shared by {len(machine.gpus)} GPUs"
    )
    return Figure(column, total / 8 * GB / len(machine.gpus), machine.nic_basis, why)


def _hbm(gpu: SeenGpu, kind: GpuKind | None) -> Figure:
    if gpu.memory_clock and gpu.bus_width:
        # Two transfers each clock: the formula of CUDA's own deviceQuery sample.
        bandwidth = gpu.memory_clock * 1e3 * gpu.bus_width / 8 * 2 / 1e3
        sheet = f"; the data sheet of {kind.name} says {kind.hbm_bw / GB:,.0f}" if kind else ""
        why = (
            f"memory clock {gpu.memory_clock / 1000:g} MHz x {gpu.bus_width} bits x 2 = "
            f"{bandwidth / GB:,.0f} GB/s{sheet}"
        )
        return Figure("hbm_bw", bandwidth, QUERIED, why)
    if kind:
        why = f"{kind.hbm_bw / GB:,.0f} GB/s of {kind.name}"
        return Figure("hbm_bw", kind.hbm_bw, SHEET, why)
    raise _missing("hbm_bw", gpu.name, "neither torch nor NVML tells memory clock and bus width")
