"""Systems and claims as rows of tables: what cells say of them, their texts, and the record."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from harness.measuring.statements import Cells, Counts, Figure, Reading, counts, evaluate
from harness.model.cell import Cell
from harness.model.statement import TIMES_FASTER, Statement, Use
from harness.suites.record import MeasuredPart, Record
from reports.core.formatting import (
    MISSING,
    count,
    factor,
    listing,
    names,
    number,
    seconds,
)


@dataclass(frozen=True, slots=True)
class System:
    """A system, e.g. a library: our variant against today's release, and its main claim.

    `better` compares the qualities of the best decision and of today's, and `work` counts what
    today's release repeats. Both are None if they are not declared or unknown. `is_recorded`: it
    was not measured here, so these are figures of the record.
    """

    times: Reading
    better: Reading | None
    claim: Reading | None
    work: Counts | None
    is_recorded: bool = False

    @property
    def statement(self) -> Statement:
        """The headline of times."""
        return self.times.statement

    @property
    def name(self) -> str:
        """The name of the system."""
        return self.statement.name


def readings(use: Use, statements: Iterable[Statement], cells: Cells) -> list[Reading]:
    """Return what the cells say of each statement of this use, in declared order."""
    return [evaluate(statement, cells) for statement in statements if statement.use == use]


def systems(statements: Sequence[Statement], cells: Cells) -> list[System]:
    """Return what the cells say of each system with a headline of times, in declared order."""
    claims = {row.statement.name: row for row in readings("claim", statements, cells)}
    headlines = readings("headline", statements, cells)
    better = {row.statement.name: row for row in headlines if row.statement.measure != TIMES_FASTER}
    return [
        System(
            row,
            better.get(row.statement.name),
            claims.get(row.statement.claim),
            counts(row.statement, cells),
        )
        for row in headlines
        if row.statement.measure == TIMES_FASTER
    ]


def published_text(claim: Statement) -> str:
    """Write the published factor and figures of a claim."""
    if (figures := claim.published) is None:
        return MISSING
    return f"{factor(1 / figures.ratio)} ({figures.before:g} → {figures.after:g} {figures.unit})"


def factor_text(figure: Figure | None) -> str:
    """Write a speed-up with its interval; say if it is of one call, or only a bound."""
    if figure is None:
        return MISSING
    if figure.sign:
        return f"{figure.sign} {factor(figure.value)} ({figure.basis})"
    high = figure.high if math.isfinite(figure.high) else math.nan
    text = factor(figure.value, figure.low, high)
    return f"{text}, one call" if math.isnan(figure.low) else text


def time_text(cell: Cell | None) -> str:
    """Write the median time of a cell's call: of its CPU, or on the wall as its family says."""
    return seconds(cell.compared_s.median) if cell and cell.compared_s else MISSING


def reading_text(reading: Reading | None) -> str:
    """Write the measured factor and the times before and after."""
    if reading is None or reading.figure is None:
        return MISSING
    times = [time_text(cell) for cell in (reading.before, reading.after)]
    return "; ".join([factor_text(reading.figure), *[" → ".join(times)] * (MISSING not in times)])


def work_text(system: System) -> str:
    """Write the work that today's release repeats, and the count that is enough."""
    work = system.work
    if work is None or work.enough is None or not work.before > work.enough:
        return MISSING
    name = system.statement.counter.replace("_", " ")
    return f"{count(work.before)} {name}; {count(work.enough)} suffice"


def read_record(folder: Path | None) -> Record | None:
    """Read the record in a folder; None if it has no results. Raises UsageError."""
    if folder is None or not (folder / "suite.toml").exists():
        return None
    record = Record.read(folder)
    return record if record.runs() else None


def provenance(record: Record) -> str:
    """Return sentences: each machine with its days and versions, all durations, the code.

    The machine of most parts comes first; for each other machine, the first of its parts are named.
    """
    runs = record.runs()
    machines: dict[str | None, list[str]] = {}
    for part, run in runs.items():
        machines.setdefault(run.environment.machine, []).append(part)
    main = max(machines, key=lambda machine: len(machines[machine]))
    sentences = [f"Recorded on {_recorded([runs[part] for part in machines.pop(main)])}."]
    sentences += [
        f"On machine {machine}: {names(parts)}, on {_recorded([runs[part] for part in parts])}."
        for machine, parts in machines.items()
    ]
    hours = sum(run.seconds for run in runs.values()) / 3600
    lanes = "; long ones run two at a time" if any(s.once for s in record.declared.study) else ""
    sentences.append(f"All parts together took {number(hours, 2)} h{lanes}.")
    known = dict.fromkeys(filter(None, (r.commit or r.environment.commit for r in runs.values())))
    if known:
        sentences.append(f"The code was shardbench {names(known)}.")
    return " ".join(sentences)


def _recorded(runs: Sequence[MeasuredPart]) -> str:
    """Return the days of one machine's runs, and its processor, memory and versions."""
    environments = [run.environment for run in runs]
    last = max(environments, key=lambda environment: environment.started or "")
    days = sorted({(environment.started or "")[:10] for environment in environments})
    versions = [f"{name} {version}" for name, version in islice(last.packages.items(), 2)]
    return (
        f"{' to '.join(dict.fromkeys((days[0], days[-1])))}: {last.cpu}, {last.cores} cores, "
        f"{number(last.memory_gib or 0.0)} GiB, {', '.join([f'Python {last.python}', *versions])}"
    )


def gpus(folder: Path, command: str = "`make gpu`") -> str:
    """Return a sentence on the GPUs with results in a record's folder."""
    measured = dict.fromkeys(record.gpu for record in Record.of_gpus(folder / "gpu"))
    if not measured:
        return f"Nothing was measured on a GPU so far; {command} does it."
    return f"On a GPU ({listing([*measured])}), only the suite of {command} was measured."
