"""`shardbench calibrate`: a topology file with the coefficients of this machine."""

from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins

from harness.estimates.calibration import calibrate, topology_file
from harness.estimates.times import Timing
from harness.measuring.environment import environment
from harness.measuring.timing.clock import SystemClock
from harness.model.errors import UsageError
from harness.store.lock import hold
from harness.topologies.csv_files import read_topologies
from harness.topologies.lookup import find_topology
from shardbench import completion
from shardbench.display.validation import calibration_shown
from shardbench.measuring_here import (
    FOLDER,
    DeviceOption,
    Fresh,
    IndicesOption,
    bench_of,
    measurable,
    settings_of,
    told,
)
from shardbench.options import (
    Json,
    Seed,
    check_writable,
    file_named,
    found_registry,
    messages,
    show_or_write,
    write,
)
from shardbench.problem_options import able_family


def calibrate_command(
    topology: Annotated[
        str,
        typer.Option(
            "--topology",
            "-t",
            help="What capacities and links are taken from, which are not measured.",
            autocompletion=completion.topologies,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The topology file, .csv.")] = Path(
        "machine.csv"
    ),
    device: DeviceOption = "cpu",
    indices: IndicesOption = "uniform",
    share: Annotated[
        float, typer.Option(help="Part of the sweep to measure, above 0 and up to 4.")
    ] = 1.0,
    family: Annotated[
        str,
        typer.Option(help="The family, if several can.", autocompletion=completion.families),
    ] = "",
    fresh: Fresh = False,
    seed: Seed = 0,
    json: Json = "",
) -> None:
    """Fit the estimate to this machine, as a topology file.

    Measures a sweep of kernels, fits coefficients, and judges them by kernels of other sizes.
    """
    if out.suffix.lower() != ".csv":
        raise UsageError(f"{out} must end in .csv.")
    check_writable(out)
    check_writable(file_named(json))
    if not 0 < share <= 4:
        raise UsageError(f"--share must be above 0 and at most 4, not {share:g}.")
    base = find_topology(topology, 1)
    found = able_family(found_registry(), family, "measuring", "measure")
    bench = bench_of(device, indices, None, seed)
    path = FOLDER / f"{out.stem}.times.jsonl"
    with hold(path), told(path, fresh) as tell:
        sweep = measurable(found).sweep(bench, share)
        settings = settings_of(bench, sweep.device)
        machine = calibrate(sweep, Timing(path, settings, SystemClock(), tell, fresh))
    text = topology_file(out.stem, base, machine, sweep.device, environment(seed))
    read_topologies(text, str(out))
    write(out, text)
    show_or_write(json, to_builtins(machine), calibration_shown(machine))
    messages.print(f"Wrote {out}")
