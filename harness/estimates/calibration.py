"""Calibrate a machine: time the computations of a design, fit parameters, write a topology file."""

import csv
import io
from dataclasses import fields

from harness.contract.abilities.estimates import Design, FittedMachine
from harness.estimates.kept_times import Stopwatch
from harness.measuring.timing.turns import long_lived_objects_left_alone
from harness.model.cell import Environment
from harness.model.topology import Topology

_PAIRS = 3
_ROUNDS = 2


@long_lived_objects_left_alone()
def calibrate(design: Design, stopwatch: Stopwatch) -> FittedMachine:
    """Measure the computations of a design in rounds, and fit a machine's parameters to them."""
    for turn in range(1, _ROUNDS + 1):
        for number, work in enumerate(design.works):
            stopwatch.on_progress(f"kernels, round {turn} of {_ROUNDS}", number, len(design.works))
            stopwatch.time(work, turn * _PAIRS)
    times, scale = stopwatch.times, stopwatch.times.reference_ms
    milliseconds = {
        work.key: {call: ratio.value * scale for call, ratio in times.ratios(work.key).items()}
        for work in design.works
    }
    return design.fit(milliseconds, scale)


def topology_file(
    name: str, base: Topology, machine: FittedMachine, device: str, environment: Environment
) -> str:
    """Return a topology file as CSV text: the measured columns, and the other columns of `base`."""
    date = (environment.started or "")[:10]
    packages = ", ".join(
        f"{package} {version}" for package, version in environment.packages.items()
    )
    measured = f"measured {date} on {device} ({environment.cpu}) with {packages}"
    columns = {
        field.name: str(value)
        for field in fields(Topology)
        if field.name != "gpus" and (value := getattr(base, field.name)) not in (None, "")
    }
    columns |= {"name": name, "confidence": "measured", **machine.columns}
    kept = "capacities and links"
    columns["source"] = f"shardbench calibrate: {measured}; {kept} of {base.name}: {base.source}"
    lines = [
        f"# Written by `shardbench calibrate`: {measured}.",
        f"# Not measured: {kept}, which are those of {base.name}.",
    ]
    for found in machine.figures:
        span = f", 95 % interval {found.low:.4g} to {found.high:.4g}" * (found.low < found.high)
        unit = f" {found.unit}" if found.unit else ""
        lines.append(f"# {found.name}: {found.value:.4g}{unit}, measured{span}")
    for error in machine.errors:
        lines.append(
            f"# {error.form} on {error.purpose} ({error.points} points): "
            f"geometric mean error {error.error:.1%}"
        )
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    writer.writerow(columns)
    writer.writerow(columns.values())
    return "\n".join(lines) + "\n" + rows.getvalue()
