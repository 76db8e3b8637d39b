"""The chapter of a report on one family: findings, figures, tables of cells, flame graphs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from glob import escape
from pathlib import Path

from harness.measuring.statements import Reading
from harness.model.cell import Cell
from harness.model.errors import UsageError
from harness.model.files import read_file
from harness.model.ids import CellId, ProblemId
from harness.model.statement import Pair
from reports.core import canvas
from reports.core.canvas import Drawing
from reports.core.columns import COMPARISON, cell_table
from reports.core.formatting import interval, listing, quantity
from reports.core.page import CaptionedTable, Finding, Section
from reports.core.table import Entry, Table, code, numbers, outcome_entry, table_of, text
from reports.family.data import FamilyView
from reports.family.growth import draw_growth, growth_table
from reports.family.ladder import draw_ladder, ladder
from reports.family.quality import draw_fronts, draw_quality, draw_ranks
from reports.statements import systems

ALL = (
    *("cell", "machine", "against", "cpu", "ratio", "reach", "projected", "verdict", "quality"),
    *("gap", "peak", "fingerprint", "note"),
)
"""The columns of the table of all cells; its CSV has the other figures too."""

_MARK = b'content="shardbench profile"'


def family_chapter(
    family: FamilyView,
    findings: Sequence[Finding],
    goals: Sequence[Reading],
    pages: Mapping[str, bytes],
) -> Section:
    """Return the chapter on a family, without empty sections; `pages` are of flame graphs.

    First ours against today's release, then the published changes; folded tables to check both
    follow.
    """
    with canvas.style():
        sections = [
            section
            for section in _sections(family, goals, pages)
            if section.drawings or section.tables
        ]
    lead = f"Variants are compared with `{family.reference}`, where nothing else is said."
    return Section(family.slug, family.name, lead, findings, sections=sections)


def _sections(
    family: FamilyView, goals: Sequence[Reading], pages: Mapping[str, bytes]
) -> Iterator[Section]:
    def section(
        name: str,
        title: str,
        drawings: Iterable[Drawing] = (),
        tables: Sequence[CaptionedTable] = (),
        is_folded: bool = False,
    ) -> Section:
        filled = [part for part in tables if part.table.rows]
        slug, drawn = f"{family.slug}-{name}", list(drawings)
        return Section(slug, title, drawings=drawn, tables=filled, is_folded=is_folded)

    others = [
        cell
        for problem, name in family.against.items()
        if name != family.reference
        for cell in family.variants_on(problem).values()
    ]
    against = CaptionedTable(
        cell_table(others, "problem", *COMPARISON),
        "Problems on which the others are compared with another variant than the reference.",
    )
    title = f"Compared with {listing([*dict.fromkeys(cell.against for cell in others)])}"
    yield section("against", title, (), [against])

    drawn = list(draw_quality(family))
    rated = [cell for cell in family.variants_on(family.quality_problem).values() if cell.quality]
    quality = CaptionedTable(
        cell_table(rated, "variant", "time", "qualities", "gap"),
        f"Every quality on `{family.quality_problem}`.",
    )
    yield section("quality", "Time against quality", drawn, [quality] * bool(drawn))

    yield section("ranks", "The load of each rank", draw_ranks(family))
    yield section("front", "Quality against moved weights", draw_fronts(family))

    growth = CaptionedTable(
        growth_table(family), "Time grows as size^exponent; in brackets the 95 % interval."
    )
    yield section("sizes", "Time against size", draw_growth(family), [growth])

    drawn = list(draw_ladder(family))
    rungs = [family.variants_on(family.ladder_problem).get(name) for name in family.rungs]
    steps = CaptionedTable(
        cell_table([cell for cell in rungs if cell], *COMPARISON),
        f"Shares of `{family.reference}`'s cost on `{family.ladder_problem}`; lower is better.",
    )
    yield section("ladder", "Step by step", drawn, [steps] * bool(drawn))

    flames = CaptionedTable(
        flames_table(pages),
        "The profiler slows small functions most. "
        "`shardbench report --flames` adds a page for each step.",
    )
    yield section("flames", "Flame graphs", (), [flames])

    problems = CaptionedTable(problems_table(family), "The planned problems, and their purpose.")
    yield section("problems", "Problems", (), [problems], is_folded=True)
    outcomes = CaptionedTable(goals_table(goals), "Every goal, and whether it is met.")
    yield section("goals", "Goals", (), [outcomes], is_folded=True)
    counted = [c for c in family.variants_on(family.ladder_problem).values() if c.counters]
    counters = CaptionedTable(
        cell_table(counted, "variant", "counters"),
        f"Work done in one call on `{family.ladder_problem}`, counted while nothing is timed.",
        f"{family.slug}-counters",
        family.counters,
    )
    yield section("counters", "Counters", (), [counters], is_folded=True)
    cells = CaptionedTable(
        cell_table(family.records, *ALL),
        "Every variant on every problem.",
        f"{family.slug}-cells",
        family.cells,
    )
    yield section("cells", "All cells", (), [cells], is_folded=True)


def problems_table(family: FamilyView) -> Table:
    """Return a row per problem: its purpose, its facts, and its machine if there are several."""
    first: dict[str, Cell] = {}
    for cell in sorted(family.records, key=lambda cell: not cell.facts):
        first.setdefault(str(cell.problem), cell)
    cells = [first[problem] for problem in family.against]
    return cell_table(cells, "problem", "machine", "purpose", "facts")


def goals_table(goals: Sequence[Reading]) -> Table:
    """Return a row per goal, whose name says its limit: the measurement, and whether it is met."""
    return table_of(
        goals,
        text("goal", lambda row: row.statement.name),
        numbers("measured", lambda row: Entry(row.measured(quantity), row.value)),
        numbers("interval", lambda row: Entry(interval(*row.interval), row.interval[0])),
        text("outcome", lambda row: outcome_entry(row.outcome)),
        code("problem", lambda row: row.pair.problem),
    )


def main_pair(family: FamilyView) -> list[Pair]:
    """Return today's release and ours of the first system with times of both, if any."""
    rows = systems(family.statements, {cell.id: cell for cell in family.records})
    pairs = [row.times.pair for row in rows if row.times.figure and not row.times.figure.sign]
    return pairs[:1]


def ladder_pairs(family: FamilyView) -> list[Pair]:
    """Return the ladder's measured variants, each with its predecessor; [] for fewer than two."""
    names = [rung.variant for rung in ladder(family) if rung.cell and rung.cell.cpu_s]
    pairs = zip(names, ["", *names[:-1]], strict=True) if len(names) > 1 else ()
    return [Pair(family.ladder_problem, before, variant) for variant, before in pairs]


def page_name(family: str, pair: Pair) -> str:
    """Return the file name of `shardbench profile` for a variant, or for a comparison of two."""
    names = "-against-".join(filter(None, (pair.after, pair.before)))
    return f"{CellId(family, names, ProblemId.parse(pair.problem)).file_stem}.flames.html"


def flame_pages(family: FamilyView, folders: Iterable[Path]) -> dict[str, bytes]:
    """Return the pages of a family in some folders by file name; other files are left out."""
    pages = {}
    for path in (
        path for folder in folders for path in folder.glob(f"{escape(family.name)}-*.html")
    ):
        try:
            content = read_file(path)
        except UsageError:  # it is no file
            continue
        if _MARK in content[:1000]:
            pages[path.name] = content
    return dict(sorted(pages.items()))


def flames_table(pages: Mapping[str, bytes]) -> Table:
    """Return a row per page, with a link to its place in the folder of the report."""

    def link(name: str) -> Entry:
        return Entry(name.removesuffix(".html").removesuffix(".flames"), link=f"flames/{name}")

    return table_of(pages, text("flame graphs of", link))
