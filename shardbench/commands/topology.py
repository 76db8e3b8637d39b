"""`shardbench topology`: capture, show and check topologies."""

import re
from pathlib import Path

import click

from harness.contract.abilities import LibraryTopology, TopologyRow, load
from harness.model.errors import ShardbenchError, UsageError
from harness.model.files import read_file
from harness.model.topology import MOST_GPUS
from harness.topologies import probe
from harness.topologies.capture import capture
from harness.topologies.gpu_kinds import require_gpu_kind
from harness.topologies.links import LinkMatrix, parse_matrix
from harness.topologies.lookup import find_rows, find_topology, presets, read_topologies
from harness.topologies.probe import GpuDevice, Host
from harness.topologies.traps import find_traps
from shardbench import completion, display, options
from shardbench.command import command, examples
from shardbench.display import topology as topology_views

gpu_name = click.option(
    "--gpu", default="", help="The GPU's name, e.g. 'H100 SXM': its data sheet is looked up."
)
job_gpus = click.option(
    "-n", "--gpus", type=click.IntRange(1, MOST_GPUS), help="How many GPUs a job uses."
)


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
    text = captured.as_csv()
    read_topologies(text, str(out))
    options.write(out, text)
    display.show(topology_views.captured(captured))
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
    """Return this machine as a host, and print the detected devices and the errors."""
    host = probe.read_host()
    options.messages.print(topology_views.probed(host))
    if host.matrix is None:
        raise ShardbenchError(
            "No GPU can be seen here: run this on the machine with the GPUs, or save "
            "`nvidia-smi topo -m` there and give it with --from-topo FILE --gpu NAME."
        )
    return host


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
        display.show(topology_views.matrix(path.name, _read_matrix(path), kind))
        return
    if gpu:
        raise UsageError("--gpu goes with a saved matrix; a topology names its GPU.")
    domain = find_topology(topology, 1).domain_size
    display.show(topology_views.topology(find_topology(topology, gpus or 2 * domain)))


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
    display.show(topology_views.traps(checked))
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


topology.add_command(capture_command)
topology.add_command(show)
topology.add_command(check)
