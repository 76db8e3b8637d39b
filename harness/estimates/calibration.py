"""A machine calibrated: the times of a sweep, and the topology file that comes of them."""

import csv
import io
from collections.abc import Mapping
from dataclasses import fields

from harness.contract.abilities.validation import FittedMachine, SweepOnBench
from harness.estimates.times import Stopwatch, TimesFile, Timing
from harness.measuring.garbage import long_lived_objects_left_alone
from harness.model.cell import Environment
from harness.model.topology import Topology

_PAIRS = 3
_ROUNDS = 2


@long_lived_objects_left_alone()
def calibrate(
    sweep: SweepOnBench,
    timing: Timing,
) -> FittedMachine:
    """Measure a sweep, each point right behind the reference, and fit."""
    file = timing.file()
    stopwatch = Stopwatch(sweep, timing.clock, file)
    for visit in range(1, _ROUNDS + 1):
        for number, work in enumerate(sweep.works):
            pairs = visit * _PAIRS
            timing.told(f"kernels, round {visit} of {_ROUNDS}", number, len(sweep.works))
            if file.least(work.key) < pairs:
                stopwatch.time(work.key, stopwatch.prepare(work), pairs)
    assert sweep.fit is not None
    return sweep.fit(_times(sweep, file), file.reference_ms)


def _times(sweep: SweepOnBench, file: TimesFile) -> Mapping[str, Mapping[str, float]]:
    """Return milliseconds by work and pass: ratios to the reference, times its median."""
    scale = file.reference_ms
    return {
        work.key: {call: file.ratio(work.key, call).value * scale for call in file.calls(work.key)}
        for work in sweep.works
    }


def topology_file(
    name: str, base: Topology, found: FittedMachine, device: str, environment: Environment
) -> str:
    """Write a topology as CSV: the machine that was measured, and of `base` what was not."""
    date = (environment.started or "")[:10]
    packages = ", ".join(f"{each} {version}" for each, version in environment.packages.items())
    measured = f"measured {date} on {device} ({environment.cpu}) with {packages}"
    texts = {
        each.name: str(value)
        for each in fields(Topology)
        if each.name != "gpus" and (value := getattr(base, each.name)) not in (None, "")
    }
    texts |= {"name": name, "confidence": "measured", **found.columns}
    kept = "capacities and links"
    texts["source"] = f"shardbench calibrate: {measured}; {kept} of {base.name}: {base.source}"
    lines = [
        f"# Written by `shardbench calibrate`: {measured}.",
        f"# Not measured: {kept}, which are those of {base.name}.",
    ]
    for each in found.figures:
        span = f", 95 % interval {each.low:.4g} to {each.high:.4g}" if each.low < each.high else ""
        unit = f" {each.unit}" if each.unit else ""
        lines.append(f"# {each.name}: {each.value:.4g}{unit}, measured{span}")
    for error in found.errors:
        lines.append(
            f"# {error.form} on {error.purpose} ({error.points} points): "
            f"geometric mean error {error.error:.1%}"
        )
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    writer.writerow(texts)
    writer.writerow(texts.values())
    return "\n".join(lines) + "\n" + rows.getvalue()
