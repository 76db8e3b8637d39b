"""The report of a results file, which may still grow, beside the record."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from harness.contract.registry import installed_statements
from harness.measuring.selftest import last_selftests
from harness.measuring.statements import Reading
from harness.model.cell import Cell, Environment
from harness.model.errors import printable
from harness.model.statement import Statement
from reports.core.columns import cell_table
from reports.core.formatting import listing, names, plural
from reports.core.frames import Results, read_results
from reports.core.page import CaptionedTable, Page, Section, write_page
from reports.core.table import Table, TableColumn, numbers, table_of, text
from reports.estimates import read_validations, validation_chapter
from reports.family.data import families
from reports.family.page import family_chapter, flame_pages
from reports.report.findings import certainty, family_findings
from reports.report.systems import (
    claims_table,
    draw_gains,
    draw_published,
    numbers_table,
    shown_systems,
    system_lines,
    systems_table,
)
from reports.statements import gpus, provenance, read_record, readings, systems

_LEAD = (
    "Planners decide how a model is spread over GPUs. This page says how much faster they can be. "
    "Planning runs on a CPU; no model was trained."
)
_OWN = (
    "In CI, a gate fails if a decision changes, work is repeated, or a ratio gets worse. "
    "Write what holds today into `expectations.toml` with `shardbench gate --init`. "
    "Judge every later change with `shardbench gate expectations.toml`.",
)
_VERSIONS = 3
Declared = Mapping[str, Sequence[Statement]]


class Written(NamedTuple):
    """A report's page, and a line for each system on its first screen, for a terminal."""

    page: Path
    lines: list[str]


def write_report(
    results: Path,
    out: Path,
    profiles: Path | None = None,
    validations: Path | None = None,
    record: Path | None = None,
    title: str = "",
    declared: Declared | None = None,
    suite: bool = False,
) -> Written:
    """Write the report of a results file into the folder `out`.

    The file may be incomplete or not exist yet: what it lacks is shown from the record in the
    folder `record`, marked as recorded, or left out. The report links the flame graphs in the
    folder `profiles`, and has a chapter on the files in the folder `validations`. `title` replaces
    the page's heading. `declared` has the statements of families, by default of the installed ones;
    with `suite`, systems of families without any cell are shown from the record, too.
    Raises UsageError if the results are unreadable, or `out` cannot be written, see `write_page`.
    """
    # 1. What cells say of the statements of each family, here and in the record.
    is_empty = not results.exists() or not results.stat().st_size
    measured = Results(()) if is_empty else read_results(results)
    records = measured.records
    declared = installed_statements() if declared is None else declared
    views = families(measured, declared)
    known = read_record(record)
    cells, recorded = {cell.id: cell for cell in records}, known.cells() if known else {}
    groups = dict(declared) if suite or not records else {}
    groups |= {view.name: view.statements for view in views}
    statements = [statement for group in groups.values() for statement in group]
    here = systems(statements, cells)
    shown = shown_systems(here, systems(statements, recorded))
    # 2. A chapter for each family, with the flame graphs of the user and of the record.
    folders = [profiles] if profiles else []
    folders += [known.folder / "profiles"] if known else []
    chapters: list[Section] = []
    files: dict[str, bytes] = {}
    goals: list[Reading] = []
    for view in views:
        of_family = [row for row in here if row.statement.family == view.name]
        reached = [goal for goal in readings("goal", view.statements, cells) if goal.after]
        pages = flame_pages(view, folders)
        findings = family_findings(view, of_family, reached)
        chapters.append(family_chapter(view, findings, reached, pages))
        goals += reached
        files |= {f"flames/{name}": content for name, content in pages.items()}
    # 3. The other chapters.
    if any(statement.use == "claim" for statement in statements):
        table = claims_table(statements, cells, recorded)
        about = provenance(known) if known else ""
        chapters.append(
            Section(
                "published",
                "Published changes",
                "What was published about each system, and what became of it.",
                drawings=list(draw_published(here)),
                tables=[CaptionedTable(table, about)],
            )
        )
    validated = read_validations(validations) if validations else []
    chapters += [validation_chapter(validated)] * bool(validated)
    chapters += [_provenance(measured, results.name)] * bool(records)
    # 4. The first screen, in the order of README: gain, use and what stays; a gate; the figure.
    notes = list(measured.notes)
    if len(by_environment(records)) > 1:
        notes.append("The cells are of several environments; compare only times of one run.")
    trust = " ".join([*certainty(records, goals), *notes])
    answers = [Section("own", "A planner of your own", remarks=_OWN)]
    answers += [Section("trust", "How certain is it?", remarks=[trust])] * bool(trust)
    if shown:
        drawings = list(draw_gains(shown))
        details = CaptionedTable(numbers_table(shown))
        answers.append(Section("gains", "Speed-ups", drawings=drawings, tables=[details]))
    gains = [CaptionedTable(systems_table(shown))] * bool(shown)
    nothing = "" if shown else "No variant could be compared with another one."
    opening = Section("overview", "Overview", nothing, tables=gains, sections=answers)
    lead = [" ".join(filter(None, (_LEAD, gpus(known.folder) if known else "")))]
    if records:
        made = records[-1].environment
        cores = plural(made.cores, "core") if made.cores else ""
        parts = (made.cpu, cores, f"python {made.python}", *_versions(made)[:_VERSIONS])
        lead.append(" · ".join(filter(None, parts)))
    frames = ("cells", "qualities", "counters", "phases") if records else ()
    page = Page(
        name=printable(results.name),
        heading=printable(title) or "shardbench report",
        lead=lead,
        opening=opening,
        sections=chapters,
        data={frame: getattr(measured, frame) for frame in frames},
        files=files,
    )
    return Written(write_page(out, page), system_lines(shown))


def _provenance(results: Results, name: str) -> Section:
    records = results.records
    machines = dict.fromkeys(cell.environment.machine for cell in records)
    selftests = [test.sentence() for name in machines if name for test in last_selftests(name)]
    cells = plural(len(records), "cell")
    problems = plural(len({(cell.family, cell.problem) for cell in records}), "problem")
    family_names = names(dict.fromkeys(cell.family for cell in records))
    return Section(
        "provenance",
        "Provenance",
        f"{printable(name)}: {cells}, {problems}, {family_names}.",
        tables=[
            CaptionedTable(environment_table(records), "Environments."),
            CaptionedTable(sources_table(records), "Sources."),
        ],
        remarks=[*results.notes, *selftests],
    )


def by_environment(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Return the cells by environment; load, start and code make no difference."""
    ignored = dict.fromkeys(("code", "family_code", "commit", "load", "started"))
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(repr(replace(cell.environment, **ignored)), []).append(cell)
    return list(groups.values())


def environment_table(cells: Iterable[Cell]) -> Table:
    """Return a row per environment: machine, versions, seed, and when it was used."""

    def column(name: str) -> TableColumn:
        return TableColumn(name, "text", lambda group: getattr(group[0].environment, name), str)

    def used(group: Sequence[Cell]) -> str:
        starts = sorted(filter(None, (cell.environment.started for cell in group)))
        return " to ".join(dict.fromkeys(starts[:1] + starts[-1:]))

    return table_of(
        by_environment(cells),
        *map(column, ("machine", "cpu", "cores", "python", "shardbench")),
        text("versions", lambda group: listing(_versions(group[0].environment), most=99)),
        column("seed"),
        numbers("cells", len),
        text("measured", used),
    )


def _versions(environment: Environment) -> list[str]:
    return [f"{name} {version}" for name, version in environment.packages.items()]


def sources_table(cells: Iterable[Cell]) -> Table:
    """Return a row per variant: its summary, the decision that it must reproduce, its source."""

    def must(cell: Cell) -> str:
        if cell.variant == cell.reference:
            return "it is the reference"
        return f"the same as {cell.same_as}" if cell.same_as else "on its own"

    last = {(cell.family, cell.variant): cell for cell in cells}
    columns = ("variant", "summary", text("must decide", must), "source")
    return cell_table([*last.values()], text("family"), *columns)
