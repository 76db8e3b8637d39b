"""The chapter of a report on one family: findings, figures, and tables of cells."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.measuring.statements import Reading
from harness.model.cell import Cell
from reports.core import canvas
from reports.core.canvas import Drawing
from reports.core.columns import cell_table
from reports.core.formatting import interval, listing, quantity
from reports.core.page import CaptionedTable, Finding, Section
from reports.core.table import Entry, Table, code, numbers, outcome_entry, table_of, text
from reports.family.data import FamilyView
from reports.family.flames import flames_table
from reports.family.growth import draw_growth, growth_table
from reports.family.ladder import draw_ladder
from reports.family.quality import draw_fronts, draw_quality
from reports.family.ranks import draw_ranks

_COMPARISON = ("variant", "time", "ratio", "reach", "projected", "verdict", "qualities", "gap")
ALL = (
    *("cell", "size", "machine", "against", "cpu", "wall", "ratio", "reach", "projected"),
    *("verdict", "qualities", "gap", "peak", "grown", "fingerprint", "note"),
)
"""The columns of the table of all cells."""


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
        cell_table(others, "problem", *_COMPARISON),
        "Problems on which the others are compared with another variant than the reference.",
    )
    title = f"Compared with {listing([*dict.fromkeys(cell.against for cell in others)])}"
    yield section("against", title, (), [against])

    drawn = list(draw_quality(family))
    rated = [cell for cell in family.variants_on(family.quality_problem).values() if cell.quality]
    quality = CaptionedTable(
        cell_table(rated, *_COMPARISON), f"Every quality on `{family.quality_problem}`."
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
        cell_table([cell for cell in rungs if cell], *_COMPARISON),
        f"Shares of `{family.reference}`'s cost on `{family.ladder_problem}`; lower is better.",
    )
    yield section("ladder", "Step by step", drawn, [steps] * bool(drawn))

    flames = CaptionedTable(
        flames_table(pages),
        "Times in flame graphs are under the profiler, which slows small functions most. "
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
