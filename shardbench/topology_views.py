"""What `shardbench topology` shows: machines, links and findings, for a terminal of 80 columns."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from harness.model.errors import printable
from harness.model.topology import Topology
from harness.topologies.capture import Captured
from harness.topologies.cells import Finding
from harness.topologies.csv_files import Written
from harness.topologies.devices import SeenGpu, SeenNic
from harness.topologies.gpu_kinds import GB, GpuKind, find_gpu_kind
from harness.topologies.link_matrix import Matrix, nvlinks_of
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


def bandwidth(value: float | None) -> str:
    """Write bytes per millisecond as GB/s."""
    return "not known" if value is None else f"{value / GB:,.4g} GB/s"


def seen(
    gpus: Sequence[SeenGpu], nics: Sequence[SeenNic], memory: int, unseen: Sequence[str]
) -> RenderableType:
    """Say line by line what can be seen of the machine at hand, and what not."""
    lines = [f"Seen: host memory, {memory / 2**30:,.1f} GiB"]
    for nic in nics:
        speed = f"{nic.gbits:g} Gbit/s" if nic.gbits else "no speed told, or no link"
        kind = "InfiniBand or RoCE" if nic.is_rdma else "Ethernet"
        lines.append(f"Seen: network device {nic.name} ({kind}), {speed}")
    for position, gpu in enumerate(gpus):
        lines.append(f"Seen: GPU{position}, {gpu.name}, {plural(len(gpu.links), 'active NVLink')}")
    if not nics:
        lines.append("Not seen: no network device")
    lines += [f"Not seen: {line}" for line in unseen]
    return Text("\n".join(lines))


def captured(row: Captured) -> RenderableType:
    """Show each figure of a captured row with its origin."""
    table = new_table("", "figure", "", "from", "how", right=[""])
    for figure in row.figures:
        value = _for_people(figure.column, figure.value)
        style = _STYLES.get(figure.basis, "dim")
        table.add_row(figure.column, value, Text(figure.basis, style=style), Text(figure.why))
    table.columns[0].overflow = "fold"
    title = Text(f"{row.name}: {row.gpu}", style="bold")
    note = [Text(remark, style="yellow") for remark in row.remarks]
    return Group(title, Text(f"{row.shape.how}; confidence {row.confidence}"), "", table, *note)


def _for_people(column: str, value: float | None) -> str:
    if value is None:
        return "-"
    if column.endswith("_bytes"):
        return f"{value / 2**30:,.1f} GiB"
    return bandwidth(value) if "_bw" in column else f"{value:,.0f}"


def topology(found: Topology) -> RenderableType:
    """Draw a topology: domains, the hosts in each, their GPUs, and what joins them."""
    domains = found.domains
    gpu = printable(found.gpu) or "GPU not named"
    head = f"{printable(found.name)}: {gpu}, {plural(found.gpus, 'GPU')}"
    parts: list[RenderableType] = [Text(f"{head} in {plural(domains, 'domain')}", style="bold"), ""]
    for domain in range(min(domains, _MOST_DOMAINS)):
        if domain:
            parts.append(_between(found))
        parts.append(_domain(found, domain))
    if domains > _MOST_DOMAINS:
        parts += [_between(found), Text(f"    … {plural(domains - _MOST_DOMAINS, 'more domain')}")]
    return Group(*parts, "", _figures(found), "", *_origins(found))


def _between(found: Topology) -> RenderableType:
    speed = bandwidth(found.inter_host_bw)
    told = f"{speed} for each GPU" if found.inter_host_bw else "not told: the planner's default"
    return Text(f"    ║ network, {told}", style="yellow")


def _domain(found: Topology, domain: int) -> RenderableType:
    size = found.gpus_in_domain
    first = domain * size
    per_host = min(found.gpus_per_host, size)
    hosts = -(-size // per_host)
    table = Table.grid(padding=(0, 2))
    for host in range(min(hosts, _MOST_HOSTS)):
        start = first + host * per_host
        count = min(per_host, first + size - start)
        table.add_row(f"host {domain * hosts + host}", _gpus(start, count))
    if hosts > _MOST_HOSTS:
        last = first + size - 1
        table.add_row("…", f"{hosts - _MOST_HOSTS} more hosts, up to GPU {last}")
    title = f"domain {domain}: {plural(size, 'GPU')} of {plural(hosts, 'host')}"
    inside = f"{bandwidth(found.intra_host_bw)} inside, one way" if size > 1 else "alone"
    return Panel(
        table,
        title=f"{title}, {inside}",
        title_align="left",
        box=box.ROUNDED,
        width=_WIDTH,
        border_style="green",
    )


def _gpus(start: int, count: int) -> str:
    if count <= _MOST_GPUS:
        return "─".join(f"[{number}]" for number in range(start, start + count))
    return f"[{start}]─[{start + 1}]─ … ─[{start + count - 1}]"


def _figures(found: Topology) -> RenderableType:
    table = new_table("", "for each GPU", "", "stored", right=["", "stored"])
    for column, said in (
        ("hbm_bytes", "bytes"),
        ("ddr_bytes", "bytes"),
        ("intra_host_bw", "bytes/ms"),
        ("intra_host_bw_nccl", "bytes/ms"),
        ("inter_host_bw", "bytes/ms"),
        ("hbm_bw", "bytes/ms"),
        ("hbm_to_ddr_bw", "bytes/ms"),
    ):
        value = getattr(found, column)
        stored = "blank" if value is None else f"{value:.0f} {said}"
        table.add_row(column, _for_people(column, value), stored)
    return table


def _origins(found: Topology) -> Iterator[RenderableType]:
    told = f"Confidence: {found.confidence}. HBM: {found.hbm_basis or 'not stated'}."
    yield Text(printable(told))
    yield Text(printable(f"Source: {found.source}"), style="dim")


def matrix(name: str, links: Matrix, kind: GpuKind | None) -> RenderableType:
    """Draw a saved matrix: what joins each pair of GPUs, what is near them, and what follows."""
    shape = shape_of(links, kind.nvlinks if kind else None)
    title = Text(f"{printable(name)}: {plural(len(links.gpus), 'GPU')}, {shape.how}", style="bold")
    parts: list[RenderableType] = [title, "", _pairs(links), ""]
    kinds = {links.link(a, b) for a in links.gpus for b in links.gpus if a != b}
    used = [each for each in _MEANINGS if each in kinds]
    says = [f"{each} {_MEANINGS[each]}" for each in used]
    if any(nvlinks_of(each) for each in kinds):
        says.insert(0, "NV# so many NVLinks")
    parts.append(Text(f"Joined by: {'; '.join(says)}." if says else "A single GPU.", style="dim"))
    if len(shape.islands) > 1 and any(len(island) > 1 for island in shape.islands):
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


def _pairs(links: Matrix) -> RenderableType:
    is_wide = 6 * len(links.gpus) + 6 > _WIDTH
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("")
    for gpu in links.gpus:
        table.add_column(gpu.removeprefix("GPU"), justify="center", no_wrap=True)
    for one in links.gpus:
        table.add_row(one.removeprefix("GPU") if is_wide else one, *_cells(links, one, is_wide))
    return table


def _cells(links: Matrix, one: str, is_wide: bool) -> Iterator[Text]:
    for other in links.gpus:
        kind = links.link(one, other)
        if one == other:
            yield Text("·", style="dim")
        elif nvlinks_of(kind):
            yield Text(kind[2:] if is_wide else kind, style="bold green")
        else:
            yield Text(kind[:3] if is_wide else kind, style=_LINK_STYLES.get(kind, ""))


def _nics(links: Matrix) -> Iterator[RenderableType]:
    near: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for each in near_nics(links):
        near.setdefault((each.nics, each.kind), []).append(each.gpu)
    if not near:
        yield Text("Network devices: none in the matrix.")
        return
    table = new_table("Nearest network devices", "of", "are", "through")
    for (nics, kind), gpus in near.items():
        table.add_row(", ".join(gpus), ", ".join(map(links.name_of, nics)), kind)
    yield from ("", table, "")


def findings(found: Sequence[tuple[Written, Sequence[Finding]]]) -> RenderableType:
    """Show the findings of each topology, or that there are none and what was compared."""
    parts: list[RenderableType] = []
    clean = []
    for row, wrong in found:
        gpu = printable(row.cells.get("gpu", "").strip()[:60])
        sheet = find_gpu_kind(gpu)
        compared = (
            f"compared with the data sheet of {sheet.name}"
            if sheet
            else (
                f"no data sheet is known for '{gpu}', so its figures were not compared"
                if gpu
                else "no GPU is named, so its figures were not compared with a data sheet"
            )
        )
        if not wrong:
            clean.append(Text(f"{row.where}: nothing found; {compared}."))
            continue
        count = plural(len(wrong), "finding")
        parts.append(Text(f"{row.where}: {count}; {compared}", style="bold"))
        for finding in wrong:
            head = Text.assemble((finding.column, "bold red"), f": {printable(finding.wrong)}")
            parts.append(Padding(head, (0, 0, 0, 2)))
            write = Text.assemble(("write ", "green"), (finding.write, "green"))
            parts.append(Padding(write, (0, 0, 0, 6)))
        parts.append("")
    return Group(*parts, *clean)
