"""`shardbench topology`: capture, show and check topologies."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from harness.contract.abilities import LibraryTopology, TopologyRow, TopologyTrap, load
from harness.model.errors import ShardbenchError, UsageError, printable
from harness.model.files import read_file
from harness.model.topology import MOST_GPUS, Topology
from harness.topologies.capture import ASSUMED, HostTopology, capture
from harness.topologies.links import (
    LinkMatrix,
    all_to_all_bw,
    near_nics,
    parse_matrix,
    shape_of,
    usual_links,
)
from harness.topologies.lookup import (
    GpuKind,
    find_gpu_kind,
    find_rows,
    find_topology,
    presets,
    require_gpu_kind,
)
from harness.topologies.probe import GpuDevice, Host, read_host
from harness.topologies.traps import find_traps
from reports.core.formatting import bandwidth, plural
from reports.core.table import Entry, numbers, table_of, text
from reports.core.terminal import as_terminal
from shardbench import completion, display, options
from shardbench.command import command, examples

gpu_name = click.option(
    "--gpu", default="", help="The GPU's name, e.g. 'H100 SXM': its data sheet is looked up."
)
job_gpus = click.option(
    "-n", "--gpus", type=click.IntRange(1, MOST_GPUS), help="How many GPUs a job uses."
)


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


@click.group(no_args_is_help=True, epilog=examples("shardbench topology show dgx_h100 -n 16"))
def topology() -> None:
    """Capture a topology, show its links, or find its traps."""


@command(
    "shardbench topology capture -o machine.csv",
    "shardbench topology capture -o machine.csv --from-topo topo.txt \\",
    "    --gpu 'H100 SXM'",
)
@click.option(
    "--out",
    "-o",
    type=options.OutFile(".csv"),
    required=True,
    help="The topology file to write (.csv).",
)
@click.option("--name", default="", help="The topology's name; the file's by default.")
@click.option(
    "--from-topo",
    type=options.PATH,
    help="Output of `nvidia-smi topo -m`, saved on the machine that is meant.",
)
@gpu_name
@click.option(
    "--nic-gbits", type=options.POSITIVE, help="Gbit/s of each network device near a GPU."
)
@click.option("--host-memory-gib", type=options.POSITIVE, help="GiB of the host's memory.")
@click.option(
    "--hosts-per-domain",
    type=click.IntRange(min=1),
    help="Hosts that one NVLink domain joins: 18 of an NVL72.",
)
def capture_command(
    out: Path,
    name: str,
    from_topo: Path | None,
    gpu: str,
    nic_gbits: float | None,
    host_memory_gib: float | None,
    hosts_per_domain: int | None,
) -> None:
    """Write the topology of this machine, or of a saved link matrix."""
    name = name or out.stem
    if not re.fullmatch(r"[\w.+-]+", name):
        raise UsageError(f"A topology's name must be of letters, digits and '_.+-', not '{name}'.")
    if gpu and not from_topo:
        raise UsageError("--gpu goes with --from-topo; on this machine the GPUs name themselves.")
    host = _saved_host(from_topo, gpu) if from_topo else _this_host()
    captured = capture(host, name, hosts_per_domain, nic_gbits, host_memory_gib)
    options.write(out, captured.as_csv())
    display.show(_captured_shown(captured))
    options.messages.print(f"Wrote {out}")


def _saved_host(file: Path, gpu: str) -> Host:
    """Return the host of a saved link matrix, without reading anything from this machine."""
    if not gpu:
        raise UsageError(f"{file} does not tell which GPUs it joins: name them with --gpu.")
    matrix = _read_matrix(file)
    return Host(
        gpus=(GpuDevice(require_gpu_kind(gpu).name),) * len(matrix.gpus),
        matrix=matrix,
        source=f"the saved matrix {file.name} of `nvidia-smi topo -m` and the GPU's data sheet",
    )


def _this_host() -> Host:
    """Return this machine as a host, and print a line per detected device and failed source."""
    host = read_host()
    lines = [f"Seen: host memory, {(host.memory or 0) / 2**30:,.1f} GiB"]
    for nic in host.nics:
        speed = f"{nic.gbits:g} Gbit/s" if nic.gbits else "speed unknown, or no link"
        kind = "InfiniBand or RoCE" if nic.is_rdma else "Ethernet"
        lines.append(f"Seen: network device {nic.name} ({kind}), {speed}")
    lines += [f"Seen: GPU{position}, {gpu.name}" for position, gpu in enumerate(host.gpus)]
    lines += [f"Not seen: {source}: {reason}" for source, reason in host.failures.items()]
    options.messages.print("\n".join(lines))
    if host.matrix is None:
        raise ShardbenchError(
            "No GPU can be seen here: run this on the machine with the GPUs, or save "
            "`nvidia-smi topo -m` there and give it with --from-topo FILE --gpu NAME."
        )
    return host


def _captured_shown(row: HostTopology) -> RenderableType:
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


def _read_matrix(file: Path) -> LinkMatrix:
    text = read_file(file).decode("utf-8", errors="replace")
    return parse_matrix(text, str(file))


@command("shardbench topology show dgx_h100 -n 16")
@click.argument(
    "topology",
    help="A preset, FILE.csv, FILE.csv#NAME, or a saved `nvidia-smi topo -m` (FILE.txt).",
    shell_complete=completion.topologies,
)
@job_gpus
@gpu_name
def show(topology: str, gpus: int | None, gpu: str) -> None:
    """Show the links between a topology's GPUs and their speed."""
    path = Path(topology)
    is_matrix = path.suffix == ".txt" or (path.suffix != ".csv" and path.is_file())
    if is_matrix and topology not in presets():
        if gpus is not None:
            raise UsageError("--gpus goes with a topology; a matrix has the GPUs that it has.")
        kind = require_gpu_kind(gpu) if gpu else None
        display.show(_matrix_shown(path.name, _read_matrix(path), kind))
        return
    if gpu:
        raise UsageError("--gpu goes with a saved matrix; a topology names its GPU.")
    domain = find_topology(topology, 1).domain_size
    display.show(_topology_shown(find_topology(topology, gpus or 2 * domain)))


def _topology_shown(topology: Topology) -> RenderableType:
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


def _matrix_shown(name: str, links: LinkMatrix, kind: GpuKind | None) -> RenderableType:
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


@command("shardbench topology check machine.csv -n 16")
@click.argument(
    "topology",
    help="A preset, FILE.csv, FILE.csv#NAME, or torchrec's own arguments (FILE.json).",
    shell_complete=completion.topologies,
)
@job_gpus
def check(topology: str, gpus: int | None) -> None:
    """Find misleading values (traps) in a topology, and suggest others.

    Exits with 0 if there are none, with 1 if there are some, and with 2 if it cannot be read.
    """
    is_json = topology.endswith(".json")
    rows = [_read_arguments(topology)] if is_json else find_rows(topology)
    checked = [(row, find_traps(row, gpus)) for row in rows]
    display.show(_traps_shown(checked))
    if any(traps for _, traps in checked):
        raise click.exceptions.Exit(1)


def _read_arguments(file: str) -> TopologyRow:
    """Read a library's own topology arguments, with the first library that accepts the file."""
    content = read_file(file)
    error = UsageError(f"{file} cannot be read: no family reads topologies from JSON.")
    for family in options.found_registry().families:
        library: LibraryTopology | None = load(family.abilities.topology)
        if library:
            try:
                return library.read(content, file)
            except UsageError as refused:
                error = refused
    raise error


def _traps_shown(rows: Sequence[tuple[TopologyRow, Sequence[TopologyTrap]]]) -> RenderableType:
    """Render the traps of each topology, and the data sheet that it was compared with."""
    parts: list[RenderableType] = []
    for row, traps in rows:
        gpu = printable(row.texts.get("gpu", "")[:60])
        compared = f"no data sheet is known for GPU '{gpu}', so its figures were not compared"
        if not gpu:
            compared = "no GPU is named, so its figures were not compared with a data sheet"
        if sheet := find_gpu_kind(gpu):
            compared = f"compared with the data sheet of {sheet.name}"
        count = plural(len(traps), "finding") if traps else "nothing found"
        parts.append(Text(f"{row.where}: {count}; {compared}.", style="bold" if traps else ""))
        for trap in traps:
            wrong = Text.assemble((trap.column, "bold red"), f": {printable(trap.wrong)}")
            parts.append(Padding(wrong, (0, 0, 0, 2)))
            parts.append(Padding(Text(f"write {trap.write}", style="green"), (0, 0, 0, 6)))
    return Group(*parts)


topology.add_command(capture_command)
topology.add_command(show)
topology.add_command(check)
