"""`shardbench topology`: topologies captured from machines, drawn, and checked for traps."""

import math
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from harness.model.errors import ShardbenchError, UsageError
from harness.model.files import read_file
from harness.model.topology import MOST_GPUS
from harness.topologies import probe
from harness.topologies.capture import GIVEN, Machine, capture, usable_gbits
from harness.topologies.csv_files import (
    Written,
    read_rows,
    read_topologies,
    read_torchrec_arguments,
)
from harness.topologies.devices import SeenGpu, matrix_of
from harness.topologies.gpu_kinds import require_gpu_kind
from harness.topologies.link_matrix import Matrix, parse_matrix
from harness.topologies.lookup import find_topology, presets
from harness.topologies.traps import check as check_topology
from shardbench import display, topology_views
from shardbench.options import check_writable, messages, write

_DRAWN = (".svg", ".png")
_NO_GPU = (
    "No GPU can be seen here: run this on the machine with the GPUs, or save `nvidia-smi topo -m` "
    "there and give it with --from-topo FILE --gpu NAME."
)

GpuName = Annotated[
    str, typer.Option("--gpu", help="The GPU's name, e.g. 'H100 SXM': its data sheet is looked up.")
]
Gpus = Annotated[
    int | None, typer.Option("--gpus", "-n", min=1, max=MOST_GPUS, help="How many GPUs a job uses.")
]

topology_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Capture a topology from a machine, draw its links, or find its traps.",
)


@topology_app.command("capture")
def capture_command(
    out: Annotated[Path, typer.Option("--out", "-o", help="The topology file to write (.csv).")],
    name: Annotated[str, typer.Option(help="The topology's name; the file's by default.")] = "",
    from_topo: Annotated[
        Path | None,
        typer.Option(help="Output of `nvidia-smi topo -m`, saved on the machine that is meant."),
    ] = None,
    gpu: GpuName = "",
    nic_gbits: Annotated[
        float | None, typer.Option(help="Gbit/s of each network device near a GPU.")
    ] = None,
    host_memory_gib: Annotated[float | None, typer.Option(help="GiB of the host's memory.")] = None,
    hosts_per_domain: Annotated[
        int | None, typer.Option(min=1, help="Hosts that one NVLink domain joins: 18 of an NVL72.")
    ] = None,
) -> None:
    """Write the topology of this machine, or of one whose links were saved."""
    if out.suffix != ".csv":
        raise UsageError(f"{out} must end in .csv, as topology files do.")
    check_writable(out)
    for option, value in (("--nic-gbits", nic_gbits), ("--host-memory-gib", host_memory_gib)):
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"{option} must be a positive number, not {value:g}.")
    name = name or out.stem
    if not re.fullmatch(r"[\w.+-]+", name):
        raise UsageError(f"A topology's name must be of letters, digits and '_.+-', not '{name}'.")
    machine = _saved(from_topo, gpu) if from_topo else _seen(gpu)
    if nic_gbits is not None:
        speeds = dict.fromkeys(machine.matrix.nics, nic_gbits)
        machine = replace(machine, nic_gbits=speeds, nic_basis=GIVEN)
    if host_memory_gib is not None:
        memory = int(host_memory_gib * 2**30)
        machine = replace(machine, host_memory=memory, memory_basis=GIVEN)
    captured = capture(machine, name, hosts_per_domain)
    text = captured.as_csv()
    read_topologies(text, str(out))
    write(out, text)
    display.show(topology_views.captured(captured))
    messages.print(f"Wrote {out}", soft_wrap=True)


def _saved(file: Path, gpu: str) -> Machine:
    """Return the machine of a saved matrix: of the machine at hand nothing is taken."""
    matrix = _read_matrix(file)
    if not gpu:
        raise UsageError(f"{file} does not tell which GPUs it joins: name them with --gpu.")
    kind = require_gpu_kind(gpu)
    return Machine(
        gpus=tuple(SeenGpu(kind.name) for _ in matrix.gpus),
        matrix=matrix,
        nic_gbits={},
        host_memory=None,
        source=f"the saved matrix {file.name} of `nvidia-smi topo -m` and the GPU's data sheet",
    )


def _seen(gpu: str) -> Machine:
    """Return the machine at hand, and say line by line what can be seen of it and what not."""
    if gpu:
        raise UsageError("--gpu goes with --from-topo; on this machine the GPUs name themselves.")
    nvml = probe.read_gpus()
    gpus, without_torch = probe.with_torch(nvml.gpus)
    nics = probe.read_nics()
    memory = probe.host_memory_bytes()
    messages.print(topology_views.seen(gpus, nics, memory, [*nvml.unseen, *without_torch]))
    if not gpus:
        raise ShardbenchError(_NO_GPU)
    pairs = ", ".join(nvml.without_p2p[:4])
    more = "" if len(nvml.without_p2p) <= 4 else f" and {len(nvml.without_p2p) - 4} more pairs"
    remark = f"No peer-to-peer access between {pairs}{more}: what they send goes through the host."
    return Machine(
        gpus=tuple(gpus),
        matrix=matrix_of(gpus, nics, nvml.levels),
        nic_gbits=usable_gbits(nics),
        host_memory=memory,
        source="the machine it ran on",
        remarks=(remark,) if nvml.without_p2p else (),
    )


def _read_matrix(file: Path | str) -> Matrix:
    text = read_file(file).decode("utf-8", errors="replace")
    return parse_matrix(text, str(file))


@topology_app.command("show")
def show(
    topology: Annotated[
        str,
        typer.Argument(
            help="A preset, FILE.csv, FILE.csv#NAME, or a saved `nvidia-smi topo -m` (FILE.txt)."
        ),
    ],
    gpus: Gpus = None,
    gpu: GpuName = "",
    out: Annotated[
        Path | None, typer.Option("--out", help="Write a figure, too (.svg or .png).")
    ] = None,
) -> None:
    """Draw the links of a topology: hosts, domains, GPUs, and what joins them how fast."""
    if out is not None:
        if out.suffix.lower() not in _DRAWN:
            raise UsageError(f"{out} must end in {' or '.join(_DRAWN)}.")
        check_writable(out)
    saved = _read_matrix(topology) if _is_saved(topology) else None
    if saved is not None:
        if gpus is not None:
            raise UsageError("--gpus goes with a topology; a matrix has the GPUs that it has.")
        kind = require_gpu_kind(gpu) if gpu else None
        display.show(topology_views.matrix(Path(topology).name, saved, kind))
    else:
        if gpu:
            raise UsageError("--gpu goes with a saved matrix; a topology names its GPU.")
        found = find_topology(topology, 1)
        found = find_topology(topology, gpus or 2 * found.domain_size)
        display.show(topology_views.topology(found))
    if out is None:
        return
    from reports import topology_figures  # matplotlib takes a second to import

    drawing = (
        topology_figures.matrix_drawing(Path(topology).stem, saved)
        if saved is not None
        else topology_figures.topology_drawing(found)
    )
    write(out, drawing.svg if out.suffix.lower() == ".svg" else drawing.png)
    messages.print(f"Wrote {out}", soft_wrap=True)


def _is_saved(name: str) -> bool:
    """Whether a name means a file that holds a matrix, rather than a topology."""
    path = Path(name)
    if path.suffix == ".csv" or ".csv#" in name or name in presets():
        return False
    return path.suffix == ".txt" or path.exists()


@topology_app.command("check")
def check(
    topology: Annotated[
        str,
        typer.Argument(
            help="A preset, FILE.csv, FILE.csv#NAME, or torchrec's own arguments (FILE.json)."
        ),
    ],
    gpus: Gpus = None,
) -> None:
    """Find the traps of a topology, all of them, and say what to write instead.

    Exits with 0 where it is clean, with 1 where something was found, with 2 if it cannot be read.
    """
    rows = _written(topology)
    found = [(row, check_topology(row, gpus)) for row in rows]
    display.show(topology_views.findings(found))
    if any(findings for _, findings in found):
        raise typer.Exit(1)


def _written(name: str) -> list[Written]:
    path, _, wanted = name.partition("#")
    if path.endswith(".json"):
        return [read_torchrec_arguments(_text(path), path)]
    if path.endswith(".csv"):
        rows = read_rows(_text(path), path)
        chosen = [row for row in rows if row.cells["name"].strip() == wanted]
        if wanted and not chosen:
            raise UsageError(f"{path} lists no topology '{wanted}'.")
        return chosen or rows
    find_topology(name, 1)  # an unknown name is told as everywhere
    text = (
        resources.files("harness.topologies")
        .joinpath("data/topologies.csv")
        .read_text(encoding="utf-8")
    )
    rows = read_rows(text, "the preset")
    return [replace(row, where=name) for row in rows if row.cells["name"] == name]


def _text(path: str) -> str:
    try:
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} cannot be read: it must be UTF-8 text.") from None
