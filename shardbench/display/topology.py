"""The output of `shardbench topology`: machines, links and traps, in 80 columns."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from harness.contract.abilities.topology import TopologyRow, TopologyTrap
from harness.model.errors import printable
from harness.model.topology import Topology
from harness.topologies.capture import HostTopology
from harness.topologies.gpu_kinds import GpuKind, find_gpu_kind
from harness.topologies.links import (
    SELF,
    LinkMatrix,
    all_to_all_bw,
    linked_pairs,
    near_nics,
    nvlinks_of,
    shape_of,
    usual_links,
)
from harness.topologies.probe import Machine
from reports.core.formatting import bandwidth, plural
from reports.core.table import Entry, Tone, numbers, table_of, text
from reports.core.terminal import as_terminal
from shardbench.display import links as pictures

_WIDTH = 78
_MOST_DOMAINS = 2
_HALF = 33  # columns for each of two hosts
# Keys are origins of figures and kinds of links between GPUs.
_TONES: dict[str, Tone] = {
    "queried": "good",
    "SYS": "bad",
    **dict.fromkeys(("data sheet", "given", "PIX", "PXB"), "plain"),
    **dict.fromkeys(("assumed", "PHB", "NODE"), "warn"),
}
_MEANINGS = {
    "PIX": "a PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the PCIe host bridge",
    "NODE": "host bridges of a socket",
    "SYS": "the sockets' own link",
}


def probed(machine: Machine) -> RenderableType:
    """Render a line per detected device, and per source (such as torch) that failed."""
    lines = [f"Seen: host memory, {machine.memory / 2**30:,.1f} GiB"]
    for nic in machine.nics:
        speed = f"{nic.gbits:g} Gbit/s" if nic.gbits else "speed unknown, or no link"
        kind = "InfiniBand or RoCE" if nic.is_rdma else "Ethernet"
        lines.append(f"Seen: network device {nic.name} ({kind}), {speed}")
    lines += [f"Seen: GPU{position}, {gpu.name}" for position, gpu in enumerate(machine.gpus)]
    if not machine.nics:
        lines.append("Not seen: no network device")
    failures = machine.failures.items()
    lines += [f"Not seen: {source}: {reason}" for source, reason in failures if reason]
    return Text("\n".join(lines))


def captured(row: HostTopology) -> RenderableType:
    """Render a captured topology, each figure with its origin."""
    table = table_of(
        ((column, *figure) for column, figure in row.figures.items()),
        text("figure", 0),
        numbers("", lambda each: _for_people(each[0], each[1])),
        text("from", lambda each: Entry(each[2], tone=_tone(each[2]))),
        text("how", 3),
    )
    title = Text(f"{row.name}: {row.gpu}", style="bold")
    return Group(title, Text(f"{row.links}; confidence {row.confidence}"), "", as_terminal(table))


def _tone(name: str) -> Tone:
    return _TONES.get(name, "soft")


def _for_people(column: str, value: float | None) -> str | None:
    if value is None:
        return None
    if column.endswith("_bytes"):
        return f"{value / 2**30:,.1f} GiB"
    return bandwidth(value) if "_bw" in column else f"{value:,.0f}"


def topology(found: Topology) -> RenderableType:
    """Draw a topology: NVLink domains, their hosts and GPUs, and the links between."""
    gpu = printable(found.gpu) or "GPU not named"
    head = f"{printable(found.name)}: {gpu}, {plural(found.gpus, 'GPU')}"
    speed = "unknown: the planner's default"
    if found.inter_host_bw:
        speed = f"{bandwidth(found.inter_host_bw)} for each GPU"
    title = Text(f"{head} in {plural(found.domains, 'domain')}", style="bold")
    drawn = [_domain(found, domain) for domain in range(min(found.domains, _MOST_DOMAINS))]
    if found.domains > _MOST_DOMAINS:
        drawn.append(f"    … {plural(found.domains - _MOST_DOMAINS, 'more domain')}")
    between = Text(f"    ║ network, {speed}", style="yellow")
    drawn[1:] = (part for host in drawn[1:] for part in (between, host))
    figures = table_of(
        (item for item in asdict(found).items() if item[0].endswith("_bytes") or "_bw" in item[0]),
        text("for each GPU", 0),
        numbers("", lambda each: _for_people(*each)),
        numbers("stored", lambda each: _stored(*each)),
    )
    links = f"as usual for {found.gpu}" if usual_links(found) else "not known"
    basis = (
        f"Links: {links}. Confidence: {found.confidence}. HBM: {found.hbm_basis or 'not stated'}."
    )
    source = Text(printable(f"Source: {found.source}"), style="dim")
    return Group(title, "", *drawn, "", as_terminal(figures), "", Text(printable(basis)), source)


def _stored(column: str, value: float | None) -> str:
    unit = "bytes/ms" if "_bw" in column else "bytes"
    return "blank" if value is None else f"{value:.0f} {unit}"


def _domain(found: Topology, domain: int) -> RenderableType:
    size, per_host, hosts = found.gpus_in_domain, found.gpus_per_host, found.hosts_in_domain
    columns = []
    for host in sorted({0, hosts - 1}):
        held = range(host * per_host, min(size, (host + 1) * per_host))
        gpus = [str(domain * size + gpu) for gpu in held]
        row = pictures.boxes(gpus, pictures.ROOM if hosts == 1 else _HALF)
        columns.append((f"host {domain * hosts + host}", row))
    if hosts > 2:
        columns.insert(1, ("…", "…"))
    widths = [max(map(len, column)) for column in columns]
    names, row = (
        "  ".join(each.ljust(width) for each, width in zip(line, widths, strict=True)).rstrip()
        for line in zip(*columns, strict=True)
    )
    picture = Text("\n".join(filter(None, (names, row, _links(found, row)))), no_wrap=True)
    inside = f"{bandwidth(found.intra_host_bw)} inside, one way" if size > 1 else "alone"
    title = f"domain {domain}: {plural(size, 'GPU')} of {plural(hosts, 'host')}, {inside}"
    return Panel(
        picture, box.ROUNDED, title=title, title_align="left", width=_WIDTH, border_style="green"
    )


def _links(found: Topology, row: str) -> str:
    """Draw the usual links below a domain's GPUs; "" if there are none, or they are not known."""
    by = usual_links(found)
    if by is None or found.gpus_in_domain == 1:
        return ""
    if by == "PCIe":
        return pictures.pcie(row)
    if by == "switch":
        return pictures.switch(row, "NVSwitch")
    drawn = pictures.pairs(row, linked_pairs(by, found.gpus_in_domain))
    return f"{drawn}\n{'hybrid cube mesh' if by == 'mesh' else 'each pair joined directly'}"


def matrix(name: str, links: LinkMatrix, kind: GpuKind | None) -> RenderableType:
    """Draw a link matrix: link kinds of GPU pairs, nearest network devices, and bandwidth."""
    shape = shape_of(links, kind.nvlinks if kind else None)
    title = Text(f"{printable(name)}: {plural(len(links.gpus), 'GPU')}, {shape.how}", style="bold")
    parts: list[RenderableType] = [title, ""]
    if shape.by == "switch":
        for island in shape.islands:
            row = pictures.boxes([gpu.removeprefix("GPU") for gpu in island])
            if len(island) > 1:
                row += f"\n{pictures.switch(row, 'switch')}"
            parts += [Text(row, no_wrap=True), ""]
    parts += [_pairs(links), ""]
    kinds = set(links.gpu_links())
    meanings = ["NV# that number of NVLinks"] if any(map(nvlinks_of, kinds)) else []
    meanings += [f"{kind} {meaning}" for kind, meaning in _MEANINGS.items() if kind in kinds]
    parts.append(
        Text(f"Joined by: {'; '.join(meanings)}." if meanings else "A single GPU.", style="dim")
    )
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
    """Render a table of the link kinds of all GPU pairs, abbreviated to fit 78 columns."""
    is_wide = 6 * len(links.gpus) + 6 > _WIDTH

    def link(one: str, other: str) -> Entry:
        kind = links.link(one, other)
        if nvlinks_of(kind):
            return Entry(kind[2:] if is_wide else kind, tone="good")
        return Entry("·" if kind == SELF else kind[:3] if is_wide else kind, tone=_tone(kind))

    columns = (
        numbers(other.removeprefix("GPU"), partial(link, other=other)) for other in links.gpus
    )
    first = text("", lambda one: one.removeprefix("GPU") if is_wide else one)
    return as_terminal(table_of(links.gpus, first, *columns))


def _nics(links: LinkMatrix) -> Iterator[RenderableType]:
    near: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for gpu, nearest in near_nics(links).items():
        near.setdefault(nearest, []).append(gpu)
    if not near:
        yield Text("Network devices: none in the matrix.")
        return
    table = table_of(
        near.items(),
        text("of", lambda each: ", ".join(each[1])),
        text("are", lambda each: ", ".join(map(links.name_of, each[0][0]))),
        text("through", lambda each: each[0][1]),
    )
    yield from ("", as_terminal(table, "Nearest network devices"), "")


def traps(found: Sequence[tuple[TopologyRow, Sequence[TopologyTrap]]]) -> RenderableType:
    """Render the traps of each topology, and the data sheet that it was compared with."""
    parts: list[RenderableType] = []
    clean = []
    for row, wrong in found:
        gpu = printable(row.texts.get("gpu", "")[:60])
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
