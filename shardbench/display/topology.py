"""The output of `shardbench topology`: machines, links and traps, in 80 columns."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from harness.contract.abilities import TopologyRow, TopologyTrap
from harness.model.errors import printable
from harness.model.topology import Topology
from harness.topologies.capture import HostTopology
from harness.topologies.gpu_kinds import GpuKind, find_gpu_kind
from harness.topologies.links import (
    SELF,
    LinkMatrix,
    all_to_all_bw,
    near_nics,
    nvlinks_of,
    shape_of,
    usual_links,
)
from harness.topologies.probe import Host
from reports.core.formatting import bandwidth, plural
from reports.core.table import Entry, Tone, numbers, table_of, text
from reports.core.terminal import as_terminal

_WIDTH = 78
_MOST_DOMAINS = 8
_LINKS = {
    "switch": "NVSwitch",
    "mesh": "hybrid cube mesh",
    "pairs": "direct links of each pair",
    "PCIe": "PCIe",
}
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


def probed(host: Host) -> RenderableType:
    """Render a line per detected device, and per source (such as torch) that failed."""
    lines = [f"Seen: host memory, {(host.memory or 0) / 2**30:,.1f} GiB"]
    for nic in host.nics:
        speed = f"{nic.gbits:g} Gbit/s" if nic.gbits else "speed unknown, or no link"
        kind = "InfiniBand or RoCE" if nic.is_rdma else "Ethernet"
        lines.append(f"Seen: network device {nic.name} ({kind}), {speed}")
    lines += [f"Seen: GPU{position}, {gpu.name}" for position, gpu in enumerate(host.gpus)]
    if not host.nics:
        lines.append("Not seen: no network device")
    failures = host.failures.items()
    lines += [f"Not seen: {source}: {reason}" for source, reason in failures if reason]
    return Text("\n".join(lines))


def captured(row: HostTopology) -> RenderableType:
    """Render a captured topology, each figure with its origin."""
    table = table_of(
        ((name, *figure) for name, figure in row.figures.items()),
        text("figure", 0),
        numbers("", lambda figure: _written(figure[0], figure[1])),
        text("from", lambda figure: Entry(figure[2], tone=_tone(figure[2]))),
        text("how", 3),
    )
    return Group(
        Text(f"{row.name}: {row.gpu}", style="bold"),
        Text(f"{row.links}; confidence {row.confidence}"),
        "",
        as_terminal(table),
    )


def _tone(name: str) -> Tone:
    return _TONES.get(name, "soft")


def _written(name: str, value: float | None) -> str | None:
    """Write a figure of a topology in GiB or GB/s, by its name."""
    if value is None:
        return None
    if name.endswith("_bytes"):
        return f"{value / 2**30:,.1f} GiB"
    return bandwidth(value) if "_bw" in name else f"{value:,.0f}"


def topology(topology: Topology) -> RenderableType:
    """Render a topology: its NVLink domains, the links between GPUs, and its figures."""
    size, hosts = topology.gpus_in_domain, topology.hosts_in_domain
    by = usual_links(topology)
    joined = "alone" if size == 1 else _LINKS[by] if by else "not known"

    def span(domain: int, amount: int) -> str:
        first = domain * amount
        return f"{first}" if amount == 1 else f"{first} to {first + amount - 1}"

    domains = table_of(
        range(min(topology.domains, _MOST_DOMAINS)),
        numbers("domain", str),
        text("hosts", lambda domain: span(domain, hosts)),
        text("GPUs", lambda domain: span(domain, size)),
        text("joined by", lambda _: joined),
        numbers("one way", lambda _: bandwidth(topology.intra_host_bw) if size > 1 else None),
    )
    more = topology.domains - _MOST_DOMAINS
    network = "the planner's default, since none is stated"
    if topology.inter_host_bw:
        network = f"{bandwidth(topology.inter_host_bw)} for each GPU"
    notes = [f"{plural(more, 'more domain')} like these."] if more > 0 else []
    notes += [f"Network between domains: {network}."] if topology.domains > 1 else []

    def stored(figure: tuple[str, float | None]) -> str | None:
        unit = "bytes/ms" if "_bw" in figure[0] else "bytes"
        return None if figure[1] is None else f"{figure[1]:.0f} {unit}"

    figures = table_of(
        (item for item in asdict(topology).items() if re.search("_bytes$|_bw", item[0])),
        text("for each GPU", 0),
        numbers("", lambda figure: _written(*figure)),
        numbers("stored", stored),
    )
    gpu = printable(topology.gpu) or "GPU not named"
    head = f"{printable(topology.name)}: {gpu}, {plural(topology.gpus, 'GPU')}"
    basis = f"Confidence: {topology.confidence}. HBM: {topology.hbm_basis or 'not stated'}."
    return Group(
        Text(f"{head} in {plural(topology.domains, 'domain')}", style="bold"),
        *("", as_terminal(domains), *notes, "", as_terminal(figures), "", Text(printable(basis))),
        Text(printable(f"Source: {topology.source}"), style="dim"),
    )


def matrix(name: str, links: LinkMatrix, kind: GpuKind | None) -> RenderableType:
    """Render a link matrix: link kinds of GPU pairs, nearest network devices, and bandwidth."""
    shape = shape_of(links, kind.nvlinks if kind else None)
    title = Text(f"{printable(name)}: {plural(len(links.gpus), 'GPU')}, {shape.how}", style="bold")
    parts: list[RenderableType] = [title, "", _pair_table(links), ""]
    kinds = set(links.gpu_links())
    meanings = ["NV# that number of NVLinks"] if any(map(nvlinks_of, kinds)) else []
    meanings += [f"{kind} {meaning}" for kind, meaning in _MEANINGS.items() if kind in kinds]
    joined = f"Joined by: {'; '.join(meanings)}." if meanings else "A single GPU."
    parts.append(Text(joined, style="dim"))
    if 1 < len(shape.islands) < len(links.gpus):
        groups = (", ".join(island) for island in shape.islands)
        parts.append(Text("NVLink joins: " + "; ".join(groups) + "."))
    parts += _nics(links)
    if kind is None:
        parts.append(Text("Name the GPU with --gpu to see how fast.", style="dim"))
    else:
        total = all_to_all_bw(links, kind.nvlink_bw, kind.nvlinks, kind.host_link_bw)
        speed = f"{bandwidth(total)} one way when each GPU sends to all others alike"
        parts.append(Text(f"{kind.name}: {speed} (stored {total:.0f})"))
    return Group(*parts)


def _pair_table(links: LinkMatrix) -> RenderableType:
    """Render a table of the link kinds of all GPU pairs, abbreviated to fit 78 columns."""
    is_wide = 6 * len(links.gpus) + 6 > _WIDTH

    def link(gpu: str, other: str) -> Entry:
        kind = links.link(gpu, other)
        if nvlinks_of(kind):
            return Entry(kind[2:] if is_wide else kind, tone="good")
        return Entry("·" if kind == SELF else kind[:3] if is_wide else kind, tone=_tone(kind))

    columns = (
        numbers(other.removeprefix("GPU"), partial(link, other=other)) for other in links.gpus
    )
    first = text("", lambda gpu: gpu.removeprefix("GPU") if is_wide else gpu)
    return as_terminal(table_of(links.gpus, first, *columns))


def _nics(links: LinkMatrix) -> Iterator[RenderableType]:
    near: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for gpu, nearest in near_nics(links).items():
        near.setdefault(nearest, []).append(gpu)
    if not near:
        yield Text("Network devices: none in the matrix.")
        return
    rows = [(gpus, map(links.name_of, nics), kind) for (nics, kind), gpus in near.items()]
    table = table_of(
        rows,
        text("of", lambda row: ", ".join(row[0])),
        text("are", lambda row: ", ".join(row[1])),
        text("through", 2),
    )
    yield from ("", as_terminal(table, "Nearest network devices"), "")


def traps(rows: Sequence[tuple[TopologyRow, Sequence[TopologyTrap]]]) -> RenderableType:
    """Render the traps of each topology, and the data sheet that it was compared with."""
    parts: list[RenderableType] = []
    clean = []
    for row, found in rows:
        gpu = printable(row.texts.get("gpu", "")[:60])
        compared = "no GPU is named, so its figures were not compared with a data sheet"
        if sheet := find_gpu_kind(gpu):
            compared = f"compared with the data sheet of {sheet.name}"
        elif gpu:
            compared = f"no data sheet is known for '{gpu}', so its figures were not compared"
        if not found:
            clean.append(Text(f"{row.where}: nothing found; {compared}."))
            continue
        parts.append(
            Text(f"{row.where}: {plural(len(found), 'finding')}; {compared}", style="bold")
        )
        for trap in found:
            wrong = Text.assemble((trap.column, "bold red"), f": {printable(trap.wrong)}")
            parts.append(Padding(wrong, (0, 0, 0, 2)))
            parts.append(Padding(Text(f"write {trap.write}", style="green"), (0, 0, 0, 6)))
        parts.append("")
    return Group(*parts, *clean)
