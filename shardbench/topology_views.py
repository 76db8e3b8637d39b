"""What `shardbench topology` shows: machines, links and findings, for a terminal of 80 columns."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import asdict
from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from harness.contract.topology import TopologyRow, TopologyTrap
from harness.model.errors import printable
from harness.model.topology import Topology
from harness.topologies.capture import HostTopology
from harness.topologies.devices import GpuDevice, NetworkDevice
from harness.topologies.gpu_kinds import GB, GpuKind, find_gpu_kind
from harness.topologies.link_matrix import SELF, LinkMatrix, nvlinks_of
from harness.topologies.link_shape import all_to_all_bw, near_nics, shape_of
from reports.formatting import plural
from reports.tables.terminal import new_table

_WIDTH = 78
_MOST_DOMAINS, _MOST_HOSTS, _MOST_GPUS = 2, 4, 16
_STYLES = {"queried": "green", "data sheet": "cyan", "given": "cyan", "assumed": "yellow"}
_LINK_STYLES = {"PIX": "cyan", "PXB": "cyan", "PHB": "yellow", "NODE": "yellow", "SYS": "red"}
_MEANINGS = {
    "PIX": "a PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the PCIe host bridge",
    "NODE": "host bridges of a socket",
    "SYS": "the sockets' own link",
}


def bandwidth(value: float) -> str:
    """Write bytes per millisecond as GB/s."""
    return f"{value / GB:,.4g} GB/s"


def probed(
    gpus: Sequence[GpuDevice],
    nics: Sequence[NetworkDevice],
    memory: int,
    failures: Mapping[str, str],
) -> RenderableType:
    """Say line by line what can be seen of the machine at hand, and what not and why."""
    lines = [f"Seen: host memory, {memory / 2**30:,.1f} GiB"]
    for nic in nics:
        speed = f"{nic.gbits:g} Gbit/s" if nic.gbits else "no speed told, or no link"
        kind = "InfiniBand or RoCE" if nic.is_rdma else "Ethernet"
        lines.append(f"Seen: network device {nic.name} ({kind}), {speed}")
    for position, gpu in enumerate(gpus):
        lines.append(f"Seen: GPU{position}, {gpu.name}, {plural(len(gpu.links), 'active NVLink')}")
    if not nics:
        lines.append("Not seen: no network device")
    lines += [f"Not seen: {source}: {reason}" for source, reason in failures.items() if reason]
    return Text("\n".join(lines))


def captured(row: HostTopology) -> RenderableType:
    """Show each figure of a captured row with its origin."""
    table = new_table("", "figure", "", "from", "how", right=[""])
    for column, (value, basis, why) in row.figures.items():
        origin = Text(basis, style=_STYLES.get(basis, "dim"))
        table.add_row(column, _for_people(column, value), origin, Text(why))
    table.columns[0].overflow = "fold"
    title = Text(f"{row.name}: {row.gpu}", style="bold")
    note = [Text(remark, style="yellow") for remark in row.remarks]
    return Group(title, Text(f"{row.links}; confidence {row.confidence}"), "", table, *note)


def _for_people(column: str, value: float | None) -> str:
    if value is None:
        return "-"
    if column.endswith("_bytes"):
        return f"{value / 2**30:,.1f} GiB"
    return bandwidth(value) if "_bw" in column else f"{value:,.0f}"


def topology(found: Topology) -> RenderableType:
    """Draw a topology: domains, the hosts in each, their GPUs, and what joins them."""
    gpu = printable(found.gpu) or "GPU not named"
    head = f"{printable(found.name)}: {gpu}, {plural(found.gpus, 'GPU')}"
    told = "not told: the planner's default"
    if found.inter_host_bw:
        told = f"{bandwidth(found.inter_host_bw)} for each GPU"
    between = Text(f"    ║ network, {told}", style="yellow")
    parts: list[RenderableType] = [
        Text(f"{head} in {plural(found.domains, 'domain')}", style="bold"),
        "",
        _domain(found, 0),
    ]
    for domain in range(1, min(found.domains, _MOST_DOMAINS)):
        parts += [between, _domain(found, domain)]
    if found.domains > _MOST_DOMAINS:
        parts += [between, f"    … {plural(found.domains - _MOST_DOMAINS, 'more domain')}"]
    figures = new_table("", "for each GPU", "", "stored", right=["", "stored"])
    for column, value in asdict(found).items():
        if column.endswith("_bytes") or "_bw" in column:
            unit = "bytes/ms" if "_bw" in column else "bytes"
            stored = "blank" if value is None else f"{value:.0f} {unit}"
            figures.add_row(column, _for_people(column, value), stored)
    basis = f"Confidence: {found.confidence}. HBM: {found.hbm_basis or 'not stated'}."
    source = Text(printable(f"Source: {found.source}"), style="dim")
    return Group(*parts, "", figures, "", Text(printable(basis)), source)


def _domain(found: Topology, domain: int) -> RenderableType:
    size, per_host, hosts = found.gpus_in_domain, found.gpus_per_host, found.hosts_in_domain
    first = domain * size
    table = Table.grid(padding=(0, 2))
    for host in range(min(hosts, _MOST_HOSTS)):
        gpus = range(first + host * per_host, first + min(size, (host + 1) * per_host))
        boxes = [f"[{gpu}]" for gpu in gpus]
        if len(boxes) > _MOST_GPUS:
            boxes[2:-1] = [" … "]
        table.add_row(f"host {domain * hosts + host}", "─".join(boxes))
    if hosts > _MOST_HOSTS:
        table.add_row("…", f"{hosts - _MOST_HOSTS} more hosts, up to GPU {first + size - 1}")
    title = f"domain {domain}: {plural(size, 'GPU')} of {plural(hosts, 'host')}"
    inside = f"{bandwidth(found.intra_host_bw)} inside, one way" if size > 1 else "alone"
    title = f"{title}, {inside}"
    return Panel(
        table, box.ROUNDED, title=title, title_align="left", width=_WIDTH, border_style="green"
    )


def matrix(name: str, links: LinkMatrix, kind: GpuKind | None) -> RenderableType:
    """Draw a saved matrix: what joins each pair of GPUs, what is near them, and what follows."""
    shape = shape_of(links, kind.nvlinks if kind else None)
    title = Text(f"{printable(name)}: {plural(len(links.gpus), 'GPU')}, {shape.how}", style="bold")
    parts: list[RenderableType] = [title, "", _pairs(links), ""]
    kinds = set(links.gpu_links())
    says = ["NV# so many NVLinks"] if any(map(nvlinks_of, kinds)) else []
    says += [f"{kind} {meaning}" for kind, meaning in _MEANINGS.items() if kind in kinds]
    parts.append(Text(f"Joined by: {'; '.join(says)}." if says else "A single GPU.", style="dim"))
    if 1 < len(shape.islands) < len(links.gpus):
        groups = (", ".join(island) for island in shape.islands)
        parts.append(Text("NVLink joins: " + "; ".join(groups) + "."))
    parts += _nics(links)
    if kind is None:
        parts.append(Text("Name the GPU with --gpu to see how fast.", style="dim"))
    else:
        total = all_to_all_bw(links, kind.nvlink_bw, kind.nvlinks, kind.host_link_bw)
        words = f"{kind.name}: {bandwidth(total)} one way when each GPU sends to all others alike"
        parts.append(Text(f"{words} (stored {total:.0f})"))
    return Group(*parts)


def _pairs(links: LinkMatrix) -> RenderableType:
    is_wide = 6 * len(links.gpus) + 6 > _WIDTH
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("")
    for gpu in links.gpus:
        table.add_column(gpu.removeprefix("GPU"), justify="center", no_wrap=True)
    for one in links.gpus:
        cells = []
        for kind in (links.link(one, other) for other in links.gpus):
            if kind == SELF:
                cells.append(Text("·", style="dim"))
            elif nvlinks_of(kind):
                cells.append(Text(kind[2:] if is_wide else kind, style="bold green"))
            else:
                cells.append(Text(kind[:3] if is_wide else kind, style=_LINK_STYLES[kind]))
        table.add_row(one.removeprefix("GPU") if is_wide else one, *cells)
    return table


def _nics(links: LinkMatrix) -> Iterator[RenderableType]:
    near: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for gpu, nearest in near_nics(links).items():
        near.setdefault(nearest, []).append(gpu)
    if not near:
        yield Text("Network devices: none in the matrix.")
        return
    table = new_table("Nearest network devices", "of", "are", "through")
    for (nics, kind), gpus in near.items():
        table.add_row(", ".join(gpus), ", ".join(map(links.name_of, nics)), kind)
    yield from ("", table, "")


def traps(found: Sequence[tuple[TopologyRow, Sequence[TopologyTrap]]]) -> RenderableType:
    """Show the traps of each topology, or that there are none and what was compared."""
    parts: list[RenderableType] = []
    clean = []
    for row, wrong in found:
        gpu = printable(row.cells.get("gpu", "")[:60])
        sheet = find_gpu_kind(gpu)
        if sheet:
            compared = f"compared with the data sheet of {sheet.name}"
        elif gpu:
            compared = f"no data sheet is known for '{gpu}', so its figures were not compared"
        else:
            compared = "no GPU is named, so its figures were not compared with a data sheet"
        if not wrong:
            clean.append(Text(f"{row.where}: nothing found; {compared}."))
            continue
        count = plural(len(wrong), "finding")
        parts.append(Text(f"{row.where}: {count}; {compared}", style="bold"))
        for trap in wrong:
            head = Text.assemble((trap.column, "bold red"), f": {printable(trap.wrong)}")
            parts.append(Padding(head, (0, 0, 0, 2)))
            parts.append(Padding(Text(f"write {trap.write}", style="green"), (0, 0, 0, 6)))
        parts.append("")
    return Group(*parts, *clean)
