"""`shardbench calibrate`: a topology file with the coefficients of this machine."""

from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins

from harness.contract.abilities.estimates import Bench
from harness.estimates.calibration import calibrate, topology_file
from harness.measuring.environment import environment
from harness.model.errors import UsageError
from harness.topologies.csv_files import read_topologies
from harness.topologies.lookup import find_topology
from shardbench import completion
from shardbench.display.estimates import calibration_shown
from shardbench.measuring_here import (
    FOLDER,
    DeviceOption,
    FamilyOption,
    Fresh,
    IndicesOption,
    measuring,
    measuring_family,
)
from shardbench.options import (
    Json,
    Seed,
    check_writable,
    file_named,
    messages,
    show_or_write,
    write,
)


def calibrate_command(
    topology: Annotated[
        str,
        typer.Option(
            "--topology",
            "-t",
            help="Source of the capacities and links, which are not measured.",
            autocompletion=completion.topologies,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The topology file, .csv.")] = Path(
        "machine.csv"
    ),
    device: DeviceOption = "cpu",
    indices: IndicesOption = "uniform",
    share: Annotated[
        float, typer.Option(help="Part of the kernels to measure, above 0 and up to 4.")
    ] = 1.0,
    family: FamilyOption = "",
    fresh: Fresh = False,
    seed: Seed = 0,
    json: Json = "",
) -> None:
    """Fit the estimate to this machine, as a topology file.

    Measures kernels of many sizes, fits coefficients, and judges them by kernels of other sizes.
    """
    if out.suffix.lower() != ".csv":
        raise UsageError(f"{out} must end in .csv.")
    check_writable(out)
    check_writable(file_named(json))
    if not 0 < share <= 4:
        raise UsageError(f"--share must be above 0 and at most 4, not {share:g}.")
    base = find_topology(topology, 1)
    _, measurable = measuring_family(family)
    bench = Bench(device, indices, None, seed)
    with measuring(FOLDER / f"{out.stem}.times.jsonl", bench, fresh) as stopwatch:
        design = measurable.design(bench, share)
        machine = calibrate(design, stopwatch(design))
    text = topology_file(out.stem, base, machine, design.device, environment(seed))
    read_topologies(text, str(out))
    write(out, text)
    show_or_write(json, to_builtins(machine), calibration_shown(machine))
    messages.print(f"Wrote {out}")
