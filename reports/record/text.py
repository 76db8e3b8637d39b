"""Recorded claims as texts, for tables and pages."""

import math
from itertools import islice
from pathlib import Path

from harness.model.cell import Cell
from harness.record.record import Record
from reports.core.formatting import (
    MISSING,
    factor,
    factor_with_interval,
    listing,
    names,
    number,
    seconds,
)
from reports.record.claims import ClaimResult, Factor


def factor_text(found: Factor | None) -> str:
    """Write a recorded speed-up with its interval; say if it is of one call."""
    if found is None:
        return MISSING
    written = factor_with_interval(found.value, found.low, found.high)
    return f"{written}, one call" if math.isnan(found.low) else written


def time_text(found: Cell | None) -> str:
    """Write the median CPU time of a cell."""
    return seconds(found.cpu_s.median) if found and found.cpu_s else MISSING


def published_text(found: ClaimResult) -> str:
    """Write the published factor and figures of a claim."""
    claim = found.claim.published
    if claim is None:
        return MISSING
    return f"{factor(found.published)} ({claim.before:g} → {claim.after:g} {claim.unit})"


def reproduced_text(found: ClaimResult) -> str:
    """Write the recorded factor and times of a claim."""
    if found.factor is None:
        return MISSING
    times = f"{time_text(found.before)} → {time_text(found.after)}"
    return f"{factor_text(found.factor)}; {times}"


def provenance_text(record: Record) -> str:
    """Return one sentence: machine, versions, commit of the code, days, and the whole duration."""
    runs = record.runs().values()
    environments = [run.environment for run in runs]
    last = max(environments, key=lambda found: found.started or "")
    days = sorted({(found.started or "")[:10] for found in environments})
    versions = [f"{name} {version}" for name, version in islice(last.packages.items(), 2)]
    known = list(dict.fromkeys(run.commit for run in runs if run.commit))
    commits = f", by shardbench {names(known)}" if known else ""
    hours = sum(run.seconds for run in runs) / 3600
    lanes = "; long ones run two at a time" if any(s.once for s in record.declared.study) else ""
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return (
        f"Recorded on {when}: {last.cpu}, {last.cores} cores, {number(last.memory_gib or 0.0)} "
        f"GiB, {', '.join([f'Python {last.python}', *versions])}. All parts together took "
        f"{number(hours, 2)} h{commits}{lanes}."
    )


def gpus_text(record: Path, command: str = "`make gpu`") -> str:
    """Return a sentence on the GPUs with results in a record's folder."""
    found = dict.fromkeys(one.gpu for one in Record.of_gpus(record / "gpu"))
    if not found:
        return f"Nothing was measured on a GPU so far; {command} does it."
    return f"On a GPU ({listing([*found])}), only the suite of {command} was measured."
