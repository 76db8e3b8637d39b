"""The report of a results file, which may still grow, beside the record."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from harness.contract.registry import installed_statements
from harness.estimates.validation import Validation
from harness.measuring.selftest import last_selftests
from harness.measuring.statements import Cells, gap_of
from harness.model.cell import Cell, Environment
from harness.model.errors import printable
from harness.model.statement import Statement
from harness.suites.record import Record
from reports.core.columns import cell_table
from reports.core.formatting import MISSING, gap, listing, names, plural
from reports.core.frames import Results, read_results
from reports.core.page import CaptionedTable, Page, Section, write_page
from reports.core.table import Entry, Table, TableColumn, code, numbers, table_of, text
from reports.estimates import read_validations, validation_chapter
from reports.family.data import FamilyView, families
from reports.family.page import FlamePage, family_sections, flame_pages
from reports.report.figure import draw_gains, draw_published
from reports.report.findings import agreement, answers, family_findings
from reports.statements import (
    System,
    claim_readings,
    factor_text,
    gpus,
    provenance,
    published_text,
    read_record,
    reading_text,
    systems,
    work_text,
)

_LEAD = (
    "Planners decide how a model is spread over GPUs. This page compares them: how long they take, "
    "and how good their decisions are by their own estimates. Planning runs on a CPU; no model was "
    "trained."
)
_VERSIONS = 4
Declared = Mapping[str, Sequence[Statement]]


def write_report(
    results: Path,
    out: Path,
    profiles: Path | None = None,
    validations: Path | None = None,
    record: Path | None = None,
    title: str = "",
    declared: Declared | None = None,
    suite: bool = False,
) -> Path:
    """Write the report of a results file into the folder `out`; return the path of its page.

    The file may be incomplete or not exist yet: what it lacks is shown from the record in the
    folder `record`, marked as recorded, or left out. The report links the flame graphs in the
    folder `profiles`, and has a chapter on the files in the folder `validations`. `title` replaces
    the page's heading. `declared` has the statements of families, by default of the installed ones;
    with `suite`, systems of families without any cell are shown from the record, too.
    Raises UsageError if the results are unreadable, or `out` cannot be written, see `write_page`.
    """
    is_empty = not results.exists() or not results.stat().st_size
    measured = None if is_empty else read_results(results)
    validated = read_validations(validations) if validations else []
    statements = installed_statements() if declared is None else declared

    def page() -> Page:
        more = statements if suite or not measured else {}
        known = read_record(record)
        return _page(measured, results.name, profiles, validated, known, title, statements, more)

    return write_page(out, page)


def _page(
    results: Results | None,
    name: str,
    profiles: Path | None,
    validated: Sequence[Validation],
    record: Record | None,
    title: str,
    declared: Declared,
    more: Declared,
) -> Page:
    views = families(results, declared) if results else []
    records = results.records if results else ()
    cells = {cell.id: cell for cell in records}
    recorded = record.cells() if record else {}
    shown = {**more, **{view.name: view.statements for view in views}}
    here = {family: systems(found, cells) for family, found in shown.items()}
    rows = [row for found in here.values() for row in found]
    known = {row.name: row for found in shown.values() for row in systems(found, recorded)}
    pages = {view.name: flame_pages(view, profiles, record) for view in views}
    notes = [agreement(records, recorded), *(results.notes if results else ())]
    if len(by_environment(records)) > 1:
        notes.append("The cells are of several environments; compare only times of one run.")
    goals = [goal for view in views for goal in view.goals]
    said = answers(rows, known, records, goals, filter(None, notes))
    chapters = []
    for view in views:
        findings = family_findings(view, here[view.name])
        sections = list(family_sections(view, pages[view.name]))
        chapters.append(
            Section(view.slug, view.name, view.compared_with, findings, sections=sections)
        )
    claims = [found for group in shown.values() for found in group if found.use == "claim"]
    chapters += _published(claims, rows, cells, recorded, provenance(record) if record else "")
    if validated:
        chapters.append(validation_chapter(validated))
    if results:
        chapters.append(_provenance(results, name, views))
    slugs = {view.name: view.slug for view in views}
    gains = CaptionedTable(gains_table(rows, known, _flame_links(rows, pages), slugs))
    lead = [" ".join(filter(None, (_LEAD, gpus(record.folder) if record else "")))]
    if records:
        made = records[-1].environment
        cores = plural(made.cores, "core") if made.cores else ""
        parts = (made.cpu, cores, f"python {made.python}", *_versions(made)[:_VERSIONS])
        lead.append(" · ".join(filter(None, parts)))
    frames = ("cells", "qualities", "counters", "phases") if results else ()
    return Page(
        name=printable(name),
        heading=printable(title) or "shardbench report",
        lead=lead,
        answers=said,
        opening=Section("overview", "Overview", drawings=list(draw_gains(rows)), tables=[gains]),
        sections=chapters,
        data={frame: getattr(results, frame) for frame in frames},
        files={page.link: page.content for group in pages.values() for page in group},
    )


def gains_table(
    rows: Sequence[System],
    recorded: Mapping[str, System],
    flames: Mapping[str, str],
    slugs: Mapping[str, str],
) -> Table:
    """Return a row per system: what it is compared with, the speed-up, and what explains it.

    What was not measured here is of the record, and marked as recorded. `flames` has the address
    of a page of flame graphs by system, and `slugs` the ids of chapters by family.
    """

    def known(row: System) -> System:
        return row if row.times.figure else recorded.get(row.name, row)

    def name(row: System) -> Entry:
        slug = slugs.get(row.statement.family)
        return Entry(row.name, link=f"#{slug}" if slug else "")

    def speedup(row: System) -> Entry:
        times = known(row).times
        decides = {"own": ", another decision", "different": ", different decision"}
        mark = "" if row.times.figure else " (recorded)"
        return Entry(
            f"{factor_text(times.figure)}{decides.get(times.decision, '')}{mark}", times.value
        )

    def gaps(row: System) -> Entry | None:
        for better, mark in ((row.better, ""), (known(row).better, " (recorded)")):
            if better and better.figure:
                shares = [gap_of(cell) for cell in (better.before, better.after)]
                return Entry(f"{' → '.join(map(gap, shares))}{mark}", shares[1])
        return None

    def flame_graphs(row: System) -> Entry | None:
        page = flames.get(row.name)
        return Entry("both", link=page) if page else None

    return table_of(
        (row for row in rows if known(row).times.figure),
        text("system", name),
        text("compared with", lambda row: row.statement.before_is or row.times.pair.before),
        numbers("times as fast", speedup),
        numbers("gap to the proven bound: of that, of the best", gaps),
        text("repeated work of that", lambda row: work_text(row if row.work else known(row))),
        *([text("flame graphs", flame_graphs)] if flames else []),
        code("problem", lambda row: known(row).times.pair.problem),
    )


def _published(
    claims: Sequence[Statement],
    rows: Sequence[System],
    cells: Cells,
    recorded: Cells,
    recorded_on: str,
) -> Iterator[Section]:
    """Yield a chapter on published changes, if there are any."""
    there = {reading.statement.name: reading for reading in claim_readings(claims, recorded)}
    table = table_of(
        claim_readings(claims, cells),
        text("claim", lambda row: row.statement.name),
        text("source", lambda row: row.statement.source),
        text("published", lambda row: published_text(row.statement)),
        *([
            text("recorded", lambda row: reading_text(there[row.statement.name])),
            text("verdict", lambda row: there[row.statement.name].outcome),
        ] if recorded else []),
        text("measured here", reading_text),
        code("measured on", lambda row: row.pair.problem if row.figure else MISSING),
    )  # fmt: skip
    if claims:
        yield Section(
            "published",
            "Published changes",
            "What was published about each system, and what became of it.",
            drawings=list(draw_published(rows)),
            tables=[CaptionedTable(table, recorded_on)],
        )


def _flame_links(
    rows: Sequence[System], pages: Mapping[str, Sequence[FlamePage]]
) -> dict[str, str]:
    """Return the link to the flame graphs of today's release and ours, by system."""
    links: dict[str, str] = {}
    for row in rows:
        pairs = {(pair.before, pair.after) for pair in row.statement.pairs}
        made = [
            page
            for page in pages.get(row.statement.family, ())
            if (page.pair.before, page.pair.after) in pairs
        ]
        if made:
            first = min(made, key=lambda page: page.pair.problem != row.times.pair.problem)
            links[row.name] = first.link
    return links


def _provenance(results: Results, name: str, views: Sequence[FamilyView]) -> Section:
    records = results.records
    machines = dict.fromkeys(cell.environment.machine for cell in records)
    selftests = [test.sentence() for name in machines if name for test in last_selftests(name)]
    environments = CaptionedTable(environment_table(records))
    sections = [
        Section(
            "environment",
            "Environment",
            tables=[environments],
            remarks=[*results.notes, *selftests],
        ),
        Section("sources", "Sources", tables=[CaptionedTable(sources_table(records))]),
    ]
    cells = plural(len(records), "cell")
    problems = plural(len({(cell.family, cell.problem) for cell in records}), "problem")
    lead = f"{printable(name)}: {cells}, {problems}, {names(view.name for view in views)}."
    return Section("provenance", "Provenance", lead, sections=sections)


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
