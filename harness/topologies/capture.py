"""Build the topology file for a host, with the origin of each figure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from harness.model.errors import UsageError
from harness.topologies.links import LinkMatrix, all_to_all_bw, near_nics, nvlinks_of, shape_of
from harness.topologies.lookup import GB, GpuKind, find_gpu_kind, topology_file
from harness.topologies.probe import GpuDevice, Host

QUERIED, SHEET, ASSUMED, GIVEN, UNKNOWN = "queried", "data sheet", "assumed", "given", "not known"

# Usable Gbit/s of a lane by PCIe generation, after the encoding: 8b/10b (1, 2), 128b/130b (3 to 5),
# and 242 of each 256 bytes in the flits of generation 6 (PCI-SIG's base specifications).
_PCIE = {1: 2.0, 2: 4.0, **{n: 2**n * (128 / 130) for n in (3, 4, 5)}, 6: 64 * (242 / 256)}


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
        """Return the text of the CSV file: comments on each figure, the header, and the row.

        Raise UsageError if a figure is beyond the limits of topology files.
        """
        comments = (
            f"A topology of shardbench, from: {self.source}.",
            "Bytes are per GPU; *_bw are bytes per millisecond, one way (GB/s x 1,000,000).",
            *(f"{column}: {basis}: {why}" for column, (_, basis, why) in self.figures.items()),
        )
        columns: dict[str, object] = {"name": self.name, "gpu": self.gpu}
        columns |= {column: value and round(value) for column, (value, *_) in self.figures.items()}
        columns["hbm_basis"] = self.figures["hbm_bytes"].why
        columns["confidence"] = self.confidence
        columns["source"] = f"shardbench topology capture, {self.source}"
        return topology_file("\n".join(comments), columns)


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
    names, matrix, count = sorted({gpu.name for gpu in host.gpus}), host.matrix, len(host.gpus)
    if len(names) != 1 or matrix is None:
        raise UsageError(f"A topology has GPUs of one kind, not {' and '.join(names) or 'none'}.")
    gpu, kind = names[0], find_gpu_kind(names[0])

    def known(column: str, *sources: SourcedFigure) -> SourcedFigure:
        for figure in sources:
            if figure.value:
                return figure
        raise UsageError(
            f"{column} of the GPU '{gpu}' is not known: no data sheet is known for it, and this "
            "machine does not tell; write the row by hand from its data sheet."
        )

    def of_sheet(field: str, what: str) -> SourcedFigure:
        return SourcedFigure(getattr(kind, field, None), SHEET, f"{what} of {kind and kind.name}")

    own = [of_sheet("host_link_bw", "NVLink-C2C")] if kind and kind.has_own_host_link else []
    link = known("hbm_to_ddr_bw", *own, _pcie(host), of_sheet("host_link_bw", "PCIe"))
    nvlink = of_sheet("nvlink_bw", "a link")
    if any(map(nvlinks_of, matrix.gpu_links())):
        nvlink = known("intra_host_bw", nvlink)
    memory = min(device.memory_bytes or 0 for device in host.gpus)
    basis = kind.memory_basis if kind else ""
    figures = {
        "gpus_per_host": SourcedFigure(count, QUERIED, "the GPUs that the matrix joins"),
        "hosts_per_nvlink_domain": _hosts(count, kind, hosts_per_domain),
        "hbm_bytes": known(
            "hbm_bytes",
            SourcedFigure(memory, QUERIED, "torch's total, or nvidia-smi's, up to 1 % more"),
            of_sheet("memory_bytes", f"{basis},"),
        ),
        "ddr_bytes": _host_memory(host, memory_gib),
        "intra_host_bw": _inside(matrix, kind, nvlink, link),
        "inter_host_bw": _network(host, matrix, nic_gbits),
        "hbm_bw": known("hbm_bw", _memory_bw(host.gpus[0]), of_sheet("hbm_bw", "bandwidth")),
        "hbm_to_ddr_bw": SourcedFigure(
            (link.value or 0) / 2, link.basis, f"half of {_one_way(link)}; the network shares it"
        ),
    }
    return HostTopology(name, gpu, figures, shape_of(matrix, kind).how, host.source)


def _one_way(figure: SourcedFigure) -> str:
    return f"{(figure.value or 0) / GB:.4g} GB/s one way by {figure.why}"


def _hosts(count: int, kind: GpuKind | None, given: int | None) -> SourcedFigure:
    if given is not None:
        return SourcedFigure(given, GIVEN, "by --hosts-per-domain")
    if kind is None or not kind.domain:
        return SourcedFigure(1, SHEET if kind else ASSUMED, "NVLink does not leave the host")
    why = (
        f"a domain of {kind.name} may join {kind.domain} GPUs, which one host cannot see: give "
        f"--hosts-per-domain, {kind.domain // count} for a whole rack"
    )
    return SourcedFigure(1, ASSUMED, why)


def _inside(
    matrix: LinkMatrix, kind: GpuKind | None, nvlink: SourcedFigure, link: SourcedFigure
) -> SourcedFigure:
    """Return the rate of an all-to-all inside the host, by its NVLinks and links to the CPU."""
    shape, bases = shape_of(matrix, kind), set[str]()
    counts = list(map(nvlinks_of, matrix.gpu_links()))
    why = f"what a GPU sends one way when all send equal shares to all others: {shape.how}"
    for figure, is_used in ((nvlink, any(counts)), (link, not counts or 0 in counts)):
        if is_used:
            bases.add(figure.basis)
            why += f"; {_one_way(figure)}"
    if kind and kind.all_links_bw and shape.by == "mesh":
        why += f" (its NVLinks together carry {kind.all_links_bw / GB:.4g} GB/s)"
    value = all_to_all_bw(matrix, kind, link.value or 0)
    return SourcedFigure(value, SHEET if SHEET in bases else QUERIED, why)


def _host_memory(host: Host, given_gib: float | None) -> SourcedFigure:
    memory, basis, by = host.memory, QUERIED, "psutil's total"
    if given_gib is not None:
        memory, basis, by = int(given_gib * 2**30), GIVEN, "by --host-memory-gib"
    share = (memory or 0) // len(host.gpus)
    if share < 2**30:
        why = "the planner's own default applies; --host-memory-gib gives it, 1 GiB a GPU at least"
        return SourcedFigure(None, UNKNOWN, why)
    return SourcedFigure(share, basis, f"{by}, {memory} bytes, shared by {len(host.gpus)} GPUs")


def _pcie(host: Host) -> SourcedFigure:
    """Return the bandwidth of the slowest GPU's PCIe link, before packet overhead."""
    links = [(gpu.pcie_generation or 0, gpu.pcie_width or 0) for gpu in host.gpus]
    bw, generation, width = min((_PCIE.get(n, 0) / 8 * wide * GB, n, wide) for n, wide in links)
    return SourcedFigure(bw, QUERIED, f"PCIe generation {generation} x{width}, by nvidia-smi")


def _network(host: Host, matrix: LinkMatrix, given_gbits: float | None) -> SourcedFigure:
    """Return a GPU's share of the network devices that a job would use.

    They are the InfiniBand or RoCE devices with a link, or if there are none, the fastest Ethernet
    cards. Devices that are far from all GPUs serve storage and management.
    """
    count, basis = len(host.gpus), QUERIED
    if given_gbits is not None:
        speeds, basis = dict.fromkeys(matrix.nics, given_gbits), GIVEN
    else:
        speeds = {nic.name: nic.gbits for nic in host.nics if nic.is_rdma and nic.gbits}
        if not speeds:
            ethernet = {nic.name: nic.gbits for nic in host.nics if nic.gbits}
            fastest = max(ethernet.values(), default=0)
            speeds = {name: gbits for name, gbits in ethernet.items() if gbits == fastest}
    known = [nic for nic in matrix.nics if nic in speeds]
    near = {nic for nics, _ in near_nics(matrix, known).values() for nic in nics}
    used = [name for name in speeds if not near or name in near]
    if not used:
        why = "no network device with a known speed is seen; the planner's own default applies"
        why += "; --nic-gbits gives the speed of each" if matrix.nics else ""
        return SourcedFigure(None, UNKNOWN, why)
    total = sum(speeds[name] for name in used)
    where = "nearest to the GPUs" if near else "of the host"
    why = f"{total:.6g} Gbit/s of the network devices {where} ({', '.join(used)}), shared by "
    return SourcedFigure(total / 8 * GB / count, basis, f"{why}{count} GPUs")


def _memory_bw(gpu: GpuDevice) -> SourcedFigure:
    """Return the bandwidth of a GPU's memory by its clock, with two transfers in each cycle.

    That is the formula of CUDA's deviceQuery sample.
    """
    clock, bits = gpu.memory_clock or 0, gpu.bus_width or 0
    return SourcedFigure(
        clock * bits / 8 * 2, QUERIED, f"memory clock {clock / 1000:g} MHz x {bits} bits x 2"
    )
