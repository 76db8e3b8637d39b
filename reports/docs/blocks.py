"""Blocks of Markdown drawn from the record; `make figures` writes them into README and docs.

Each function returns the text of a block. Problems are written `family@workload/topology:gpus`.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import nan
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from harness.contract.registry import installed_statements
from harness.measuring.statements import gap_of, speedup
from harness.model.cell import Cell
from harness.model.errors import UsageError
from harness.model.files import read_file
from harness.model.ids import CellId, ProblemId
from harness.model.statement import Statement
from harness.suites.record import Record
from reports.core.formatting import count, factor, gap, hundredths, names
from reports.core.frames import read_results
from reports.core.table import Entry, TableColumn, as_markdown, code, numbers, table_of, text
from reports.family.data import FamilyView, families
from reports.family.growth import growth_table
from reports.report.systems import claims_table
from reports.statements import (
    System,
    factor_text,
    gpus,
    provenance as provenance_of,
    published_text,
    reading_text,
    systems,
    time_text,
    work_text,
)

FOLDER = Path("record")


@cache
def record() -> Record:
    """Return the committed record."""
    return Record.read(FOLDER)


@cache
def _cells() -> dict[CellId, Cell]:
    return record().cells()


@cache
def family_views() -> dict[str, FamilyView]:
    """Return the families of the record by name, as reports show them."""
    return {family.name: family for family in families(read_results(record().cells_file))}


def cell(name: str) -> Cell:
    """Return a recorded cell by its id; raises UsageError if there is none."""
    cell_id = CellId.parse(name)
    if cell_id not in _cells():
        raise UsageError(f"The record has no cell '{name}'.")
    return _cells()[cell_id]


def on(problem: str, variants: Sequence[str] = ()) -> list[Cell]:
    """Return the recorded cells of a problem, all or those of some variants, in this order."""
    family, _, name = problem.partition("@")
    if variants:
        return [cell(f"{family}/{variant}@{name}") for variant in variants]
    wanted = ProblemId.parse(name)
    return [c for c in _cells().values() if c.family == family and c.problem == wanted]


def statements() -> list[Statement]:
    """Return the statements of all families, in the order of reports."""
    return [found for declared in installed_statements().values() for found in declared]


@cache
def recorded_systems() -> list[System]:
    """Return what the record says of each system."""
    return systems(statements(), _cells())


def _table(rows: Iterable[Any], *columns: TableColumn) -> str:
    return as_markdown(table_of(rows, *columns))


def overview() -> str:
    """Return a row for each system: published, reproduced, left today, and ours against today."""
    return _table(
        recorded_systems(),
        text("system", "name"),
        text("published", lambda row: published_text(row.claim.statement)),
        text("reproduced here", lambda row: reading_text(row.claim)),
        code("on", lambda row: row.claim.pair.problem),
        text("repeated today", work_text),
        text("ours against today's release", lambda row: reading_text(row.times)),
        code("on", lambda row: row.times.pair.problem),
    )


def claims() -> str:
    """Return the table of all claims with their verdicts."""
    return as_markdown(claims_table(statements(), _cells()))


def remarks() -> str:
    """Return the remarks on claims and systems as a list."""
    ordered = (s for use in ("claim", "headline") for s in statements() if s.use == use)
    return "\n".join(f"- **{s.name}.** {s.remark}" for s in ordered if s.remark)


def highlights() -> tuple[str, ...]:
    """Return the ids of the cells that the record declares to be shown first."""
    return record().declared.highlights


def gains(*names: str) -> str:
    """Return a row for each cell: its speed-up over the variant that it was compared with."""
    return _gains([cell(name) for name in names], _cells())


def since(version: str, factors: Mapping[str, float]) -> str:
    """Return a row for each cell: its speed-up in an earlier version's record, and in this one."""
    return _table(
        map(cell, factors),
        code("cell", lambda row: str(row.id)),
        code("against"),
        numbers(version, lambda row: factor(factors[str(row.id)])),
        numbers("now", lambda row: _faster(row, _cells())),
    )


def _faster(row: Cell, recorded: Mapping[CellId, Cell]) -> str:
    baseline = recorded.get(CellId(row.family, row.against, row.problem))
    return factor_text(speedup(baseline, row))


def _gains(rows: Sequence[Cell], recorded: Mapping[CellId, Cell]) -> str:
    decides = {"same": "the same", "own": "on its own", "different": "different"}
    return _table(
        rows,
        code("cell", lambda row: str(row.id)),
        code("against"),
        numbers("times as fast", lambda row: _faster(row, recorded)),
        text("decides", lambda row: decides.get(row.decision or "")),
    )


def cells(
    problem: str, *figures: str, variants: Sequence[str] = (), baseline: str | None = None
) -> str:
    """Return a problem, and a row for each variant on it: time, speed-up, and named figures.

    Figures are qualities or counters of the cells. The speed-up is over `baseline`, by default over
    the variant that the cells were compared with.
    """
    rows = on(problem, variants)
    base = baseline or rows[0].against
    (first,) = on(problem, [base])

    def column(name: str) -> TableColumn:
        if name == "gap":
            return numbers(name, gap_of, gap)
        return numbers(
            name.replace("_", " "), lambda row: {**row.counters, **row.quality}.get(name)
        )

    table = _table(
        rows,
        code("variant"),
        numbers("CPU time", lambda row: time_text(row) if row.cpu_s else row.status),
        numbers(
            f"times as fast as {base}",
            lambda row: None if row is first else factor_text(speedup(first, row)),
        ),
        *map(column, figures),
    )
    return f"`{problem}`:\n\n{table}"


def time(name: str) -> str:
    """Return the CPU time of a recorded cell."""
    return time_text(cell(name))


def span(least: str, most: str) -> str:
    """Return the speed-ups of two recorded cells over their baselines, as `FACTOR to FACTOR`."""
    ends = []
    for row in (cell(least), cell(most)):
        figure = speedup(_cells().get(CellId(row.family, row.against, row.problem)), row)
        ends.append(factor(figure.value if figure else nan))
    return " to ".join(ends)


def _commits(problem: str) -> dict[str, Cell]:
    """Return the cells of recorded commits on a problem, `library@problem`, by label."""
    library, _, name = problem.partition("@")
    wanted = ProblemId.parse(name)
    return {
        label: _cells()[CellId(library, commit, wanted)]
        for declared in record().declared.commits
        if declared.library == library and ProblemId.parse(declared.problem) == wanted
        for label, commit in declared.commits.items()
    }


def releases(problem: str) -> str:
    """Return a row per release of a library: calls of each part, with growth, and CPU time."""
    commits = _commits(problem)
    first = next(iter(commits.values()))

    def calls(title: str, counter: str) -> TableColumn:
        def entry(label: str) -> str:
            made = commits[label].counters[counter]
            return f"{count(made)} ({factor(made / first.counters[counter])})"

        return numbers(f"calls of {title} (to the first)", entry)

    return _table(
        commits,
        code("release", str),
        text("date", lambda label: str(commits[label].facts["date"])),
        calls("enumerate", "enumerate_calls"),
        calls("the search", "search_calls"),
        numbers("objects copied", lambda label: commits[label].counters["objects_copied"], count),
        numbers("CPU time of a plan", lambda label: time_text(commits[label])),
    )


def steps(problem: str, pull_requests: str) -> str:
    """Return a row per pair of commits labelled "before X" and "X": factors of calls, decision.

    `pull_requests` is the address of a pull request, with `{number}` in it.
    """
    commits = _commits(problem)
    pairs = [
        (commits[b], commits[label]) for label in commits if (b := f"before {label}") in commits
    ]
    pairs.sort(key=lambda pair: str(pair[1].facts["date"]))

    def calls(part: str) -> TableColumn:
        name = f"{part}_calls"
        return numbers(part, lambda row: row[1].counters[name] / row[0].counters[name], hundredths)

    def title(row: tuple[Cell, Cell]) -> Entry:
        number, name = str(row[1].facts["pull_request"]), str(row[1].facts["title"])
        return Entry(name, link=pull_requests.format(number=number) if number else "")

    def decides(row: tuple[Cell, Cell]) -> str:
        before, after = row
        if before.fingerprint != after.fingerprint:
            return "another plan"
        return "the same" if before.quality == after.quality else "another estimate"

    return _table(
        pairs,
        code("commit", lambda row: row[1].variant[:9]),
        text("date", lambda row: str(row[1].facts["date"])),
        calls("enumerate"),
        calls("search"),
        text("decides", decides),
        text("title", title),
    )


def growth(family: str) -> str:
    """Return the growth of planning time with size: sizes, times, and exponents."""
    return as_markdown(growth_table(family_views()[family]))


def gaps() -> str:
    """Return the distribution of gaps over the random problems of the record, as sentences."""
    mixtures = [c for c in _cells().values() if c.problem.workload.name == "mixture"]
    planned = sorted(c.quality["gap"] for c in mixtures if "gap" in c.quality)
    middle, tenth = gap(median(planned)), gap(quantiles(planned, n=10)[-1])
    return (
        f"Of {len(mixtures)} random problems, {len(planned)} have a plan and "
        f"{len(mixtures) - len(planned)} have none. The median gap is {middle}, nine in ten are "
        f"below {tenth}, and the worst is {gap(planned[-1])}."
    )


def table(name: str, machine: Record | None = None) -> str:
    """Return a table that a script of the record printed; raises UsageError if there is none."""
    return read_file((machine or record()).table_of(name)).decode().rstrip("\n")


def provenance() -> str:
    """Return sentences on the machines, the versions, the days and the duration."""
    return provenance_of(record())


def gpu_sentence(page: str = "record.md") -> str:
    """Return a sentence on the GPUs with results; `page` explains the command."""
    return gpus(FOLDER, f"[`make gpu`]({page}#on-a-gpu)")


def gpu_tables() -> str:
    """Return the tables that scripts printed on each GPU; `gpu_sentence()` if there is none."""
    parts = []
    for machine in Record.of_gpus(FOLDER / "gpu"):
        parts.append(f"**{machine.gpu}.** {provenance_of(machine)}")
        declared = machine.declared.table
        missing = [t for t in declared if not machine.table_of(t.name).exists()]
        for printed in (t for t in declared if t not in missing):
            parts += [f"`{printed.script}`:", table(printed.name, machine)]
        parts += _not_measured([t.script for t in missing])
    return "\n\n".join(parts) or gpu_sentence()


def gpu_gains() -> str:
    """Return the speed-ups on each GPU; `gpu_sentence()` if there is none."""
    parts = []
    for machine in Record.of_gpus(FOLDER / "gpu"):
        cells = machine.cells()
        rows = [cell for cell in cells.values() if cell.variant != cell.against]
        measured = {str(cell.problem.workload) for cell in cells}
        wanted = [workload for study in machine.declared.study for workload in study.workloads]
        parts += [f"**{machine.gpu}**:", _gains(rows, cells)]
        parts += _not_measured([workload for workload in wanted if workload not in measured])
    return "\n\n".join(parts) or gpu_sentence()


def _not_measured(missing: Sequence[str]) -> list[str]:
    return [f"Not measured there: {names(missing, len(missing))}."] if missing else []
