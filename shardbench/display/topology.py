"""The output of `shardbench topology`: machines, links and traps, in 80 columns."""

from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from harness.contract.abilities import TopologyRow, TopologyTrap
from harness.model.errors import printable
from harness.model.topology import Topology
from harness.topologies.capture import ASSUMED, HostTopology
from harness.topologies.gpu_kinds import GpuKind, find_gpu_kind
from harness.topologies.links import LinkMatrix, all_to_all_bw, near_nics, shape_of, usual_links
from harness.topologies.probe import Host
from reports.core.formatting import bandwidth, plural
from reports.core.table import Entry, numbers, table_of, text
from reports.core.terminal import as_terminal

_LINKS = {
    "switch": "NVSwitch",
    "mesh": "a hybrid cube mesh",
    "pairs": "direct links of each pair",
    "PCIe": "PCIe",
    None: "links that are not known",
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
    lines += [f"Not seen: {source}: {reason}" for source, reason in host.failures.items()]
    return Text("\n".join(lines))


def captured(row: HostTopology) -> RenderableType:
    """Render a captured topology, each figure with its origin."""
    table = table_of(
        ((name, *figure) for name, figure in row.figures.items()),
        text("figure", 0),
        numbers("", lambda figure: _written(figure[0], figure[1])),
        text("from", lambda figure: Entry(figure[2], tone="warn" if figure[2] == ASSUMED else "")),
        text("how", 3),
    )
    return Group(
        Text(f"{row.name}: {row.gpu}", style="bold"),
        Text(f"{row.links}; confidence {row.confidence}"),
        "",
        as_terminal(table),
    )


def _written(name: str, value: float | None) -> str | None:
    """Write a figure of a topology in GiB or GB/s, by its name."""
    if value is None:
        return None
    if name.endswith("_bytes"):
        return f"{value / 2**30:,.1f} GiB"
    return bandwidth(value) if name.endswith("_bw") else f"{value:,.0f}"


def topology(topology: Topology) -> RenderableType:
    """Render a topology: its domains, which are alike, the links between GPUs, and its figures."""
    gpus, hosts = plural(topology.gpus, "GPU"), plural(topology.hosts_in_domain, "host")
    size, domains = topology.gpus_in_domain, plural(topology.domains, "domain")
    by = usual_links(
        find_gpu_kind(topology.gpu),
        topology.gpus_per_host,
        topology.hosts_per_nvlink_domain,
        topology.intra_host_bw,
    )
    layout = [f"Domain: {plural(size, 'GPU')} of {hosts}."]
    if size > 1:
        speed = bandwidth(topology.intra_host_bw)
        layout.append(f"In a domain: {_LINKS[by]}, {speed} one way for each GPU.")
    if topology.domains > 1:
        network = "the planner's default, since none is stated"
        if topology.inter_host_bw:
            network = f"{bandwidth(topology.inter_host_bw)} one way for each GPU"
        layout.append(f"Between domains: {network}.")

    def stored(figure: tuple[str, float | None]) -> str | None:
        unit = "bytes/ms" if figure[0].endswith("_bw") else "bytes"
        return None if figure[1] is None else f"{figure[1]:.0f} {unit}"

    figures = table_of(
        (item for item in asdict(topology).items() if item[0].endswith(("_bytes", "_bw"))),
        text("for each GPU", 0),
        numbers("", lambda figure: _written(*figure)),
        numbers("stored", stored),
    )
    gpu = printable(topology.gpu) or "GPU not named"
    basis = f"Confidence: {topology.confidence}. HBM: {topology.hbm_basis or 'not stated'}."
    return Group(
        Text(f"{printable(topology.name)}: {gpu}, {gpus} in {domains}", style="bold"),
        *("", *layout, "", as_terminal(figures), "", Text(printable(basis))),
        Text(printable(f"Source: {topology.source}"), style="dim"),
    )


def matrix(name: str, links: LinkMatrix, kind: GpuKind | None) -> RenderableType:
    """Render what follows from a link matrix: groups of GPUs, nearest network devices, bandwidth.

    The links of all pairs are in the file itself.
    """
    shape = shape_of(links, kind)
    title = Text(f"{printable(name)}: {plural(len(links.gpus), 'GPU')}, {shape.how}", style="bold")
    parts: list[RenderableType] = [title]
    if 1 < len(shape.islands) < len(links.gpus):
        groups = (", ".join(island) for island in shape.islands)
        parts.append(Text(f"NVLink joins: {'; '.join(groups)}."))
    near: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for gpu, nearest in near_nics(links, links.nics).items():
        near.setdefault(nearest, []).append(gpu)
    for (nics, link), gpus in near.items():
        path = f"{link}, {_MEANINGS[link]}" if link in _MEANINGS else link
        parts.append(Text(f"Nearest to {', '.join(gpus)}: {', '.join(nics)} ({path})."))
    if not near:
        parts.append(Text("Network devices: none in the matrix."))
    if kind is None:
        parts.append(Text("Name the GPU with --gpu to see how fast.", style="dim"))
    else:
        total = all_to_all_bw(links, kind, kind.host_link_bw)
        speed = f"{bandwidth(total)} one way when each GPU sends to all others alike"
        parts.append(Text(f"{kind.name}: {speed} (stored {total:.0f})"))
    return Group(*parts)


def traps(rows: Sequence[tuple[TopologyRow, Sequence[TopologyTrap]]]) -> RenderableType:
    """Render the traps of each topology, and the data sheet that it was compared with."""
    parts: list[RenderableType] = []
    for row, traps in rows:
        gpu = printable(row.texts.get("gpu", "")[:60])
        compared = f"no data sheet is known for '{gpu}', so its figures were not compared"
        if sheet := find_gpu_kind(gpu):
            compared = f"compared with the data sheet of {sheet.name}"
        count = plural(len(traps), "finding") if traps else "nothing found"
        parts.append(Text(f"{row.where}: {count}; {compared}.", style="bold" if traps else ""))
        for trap in traps:
            wrong = Text.assemble((trap.column, "bold red"), f": {printable(trap.wrong)}")
            parts.append(Padding(wrong, (0, 0, 0, 2)))
            parts.append(Padding(Text(f"write {trap.write}", style="green"), (0, 0, 0, 6)))
    return Group(*parts)
