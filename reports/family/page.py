"""The sections of a report on one family: figures, tables of cells, and links to flame graphs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import escape

from harness.measuring.statements import Reading
from harness.model.cell import Cell
from harness.model.errors import UsageError
from harness.model.files import read_file
from harness.model.ids import CellId, ProblemId
from harness.model.statement import Pair
from harness.suites.record import Record, profile_name
from reports.core.columns import cell_table
from reports.core.formatting import (
    change,
    count,
    hundredths,
    interval,
    listing,
    quantity,
)
from reports.core.page import CaptionedTable, Section
from reports.core.table import Entry, Table, code, numbers, outcome_entry, table_of, text
from reports.family.data import FamilyView
from reports.family.figures import figures
from reports.family.growth import Series
from reports.family.ranks import loads_table, rank_view, ranks_caption, ranks_table
from reports.statements import systems

_COMPARISON = ("variant", "time", "ratio", "reach", "projected", "verdict", "qualities", "gap")
ALL = (
    *("cell", "size", "machine", "against", "cpu", "wall", "ratio", "reach", "projected"),
    *("verdict", "qualities", "gap", "peak", "grown", "fingerprint", "note"),
)
"""The columns of the table of all cells."""

_MARK = b'content="shardbench profile"'


@dataclass(frozen=True, slots=True)
class FlamePage:
    """The HTML page of a pair's flame graphs, its file's `name`, and when it was `made`."""

    pair: Pair
    name: str
    content: bytes
    made: str = "with this report"

    @property
    def link(self) -> str:
        """The page's place in the folder of the report."""
        return f"flames/{self.name}"


def main_pair(family: FamilyView) -> list[Pair]:
    """Return today's release and ours of the first system with times of both, if any."""
    rows = systems(family.statements, {cell.id: cell for cell in family.records})
    pairs = [row.times.pair for row in rows if row.times.figure and not row.times.figure.sign]
    return pairs[:1]


def ladder_pairs(family: FamilyView) -> list[Pair]:
    """Return the ladder's measured variants, each with its predecessor; [] for fewer than two."""
    found = [rung.variant for rung in family.ladder if rung.cell and rung.cell.cpu_s]
    pairs = zip(found, ["", *found[:-1]], strict=True) if len(found) > 1 else ()
    return [Pair(family.ladder_problem, before, variant) for variant, before in pairs]


def page_name(family: str, pair: Pair) -> str:
    """Return the file name of `shardbench profile` for a variant, or for a comparison of two."""
    names = "-against-".join(filter(None, (pair.after, pair.before)))
    return f"{CellId(family, names, ProblemId.parse(pair.problem)).file_stem}.flames.html"


def flame_pages(
    family: FamilyView, profiles: Path | None, record: Record | None = None
) -> list[FlamePage]:
    """Return the pages of a family: of its main pair and ladder in `profiles`, then recorded ones.

    A recorded page shows one variant, or the one before a change and the one after it.
    """
    pages = []
    for pair in dict.fromkeys((*main_pair(family), *ladder_pairs(family))):
        name = page_name(family.name, pair)
        try:
            content = read_file(profiles / name) if profiles else b""
        except UsageError:  # there is no such page, or it is no file
            continue
        # Two ids may have the same file name, because some characters are replaced there.
        if _MARK in content[:1000] and str(escape(pair.problem)).encode() in content:
            pages.append(FlamePage(pair, name, content))
    runs = record.runs() if record else {}
    for profile in record.declared.profile if record else ():
        path = record.page_of(profile) if record else Path()
        run = runs.get(profile_name(path))
        if profile.family == family.name and run and path.exists():
            *before, variant = profile.variants
            made = f"recorded {(run.environment.started or '')[:10]}"
            pair = Pair(profile.problem, "".join(before), variant)
            pages.append(FlamePage(pair, path.name, read_file(path), made))
    return pages


def flames_table(pages: Sequence[FlamePage]) -> Table:
    """Return a row per page, with a link to it."""

    def shows(page: FlamePage) -> Entry:
        before = f" and {page.pair.before}" if page.pair.before else ""
        return Entry(f"{page.pair.after}{before}", link=page.link)

    columns = (code("problem", lambda page: page.pair.problem), text("made", "made"))
    return table_of(pages, text("flame graphs of", shows), *columns)


def family_sections(family: FamilyView, pages: Sequence[FlamePage] = ()) -> Iterator[Section]:
    """Yield the sections on a family, without empty ones; `pages` are of flame graphs.

    First ours against today's release, then the published changes; folded tables to check both
    follow.
    """
    drawn = figures(family)

    def section(name: str, title: str, *tables: CaptionedTable, **options: Any) -> Section:
        filled = [one for one in tables if one.table.rows and len(one.table.columns) > 1]
        slug = f"{family.slug}-{name}"
        return Section(slug, title, drawings=drawn.get(name, ()), tables=filled, **options)

    others = {p: name for p, name in family.against.items() if name != family.reference}
    against = [
        CaptionedTable(
            cell_table([*family.variants_on(problem).values()], *_COMPARISON),
            f"`{problem}`, compared with `{name}`.",
        )
        for problem, name in others.items()
    ]
    rated = [cell for cell in family.variants_on(family.quality_problem).values() if cell.quality]
    quality = CaptionedTable(
        cell_table(rated, *_COMPARISON), f"Every quality on `{family.quality_problem}`."
    )
    view = rank_view(family)
    loads = (
        [
            CaptionedTable(loads_table(view), "The heaviest rank, the mean, and the capacity."),
            CaptionedTable(ranks_table(view), ranks_caption(view)),
        ]
        if view
        else []
    )
    growth = CaptionedTable(
        growth_table(family.series), "Fitted exponents: time grows as size^exponent."
    )
    links = {p.pair.after: p.link for p in pages if p.pair.problem == family.ladder_problem}
    ladder = CaptionedTable(
        ladder_table(family, links),
        f"Shares of `{family.reference}`'s cost on `{family.ladder_problem}`; lower is better.",
    )
    flames = CaptionedTable(
        flames_table(pages),
        "Times in flame graphs are under the profiler, which slows small functions most. "
        "`shardbench report --flames` adds a page for each step.",
    )
    counted = [c for c in family.variants_on(family.ladder_problem).values() if c.counters]
    counters = CaptionedTable(
        cell_table(counted, "variant", "counters"),
        f"Work done in one call on `{family.ladder_problem}`, counted while nothing is timed.",
        f"{family.slug}-counters",
        family.counters,
    )
    cells = CaptionedTable(
        cell_table(family.records, *ALL),
        "Every variant on every problem.",
        f"{family.slug}-cells",
        family.cells,
    )
    problems = CaptionedTable(problems_table(family), "The planned problems, and their purpose.")
    goals = CaptionedTable(goals_table(family.goals), "Every goal, and whether it is met.")
    title = f"Compared with {listing([*dict.fromkeys(others.values())])}"
    claimed = any(rung.claim for rung in family.ladder)
    steps = "The published changes, step by step" if claimed else "Step by step"
    sections = [
        section("against", title, *against),
        section("quality", "Time against quality", *[quality] * bool(drawn["quality"])),
        section("ranks", "The load of each rank", *loads),
        section("front", "Quality against moved weights"),
        section("sizes", "Time against size", growth),
        section("ladder", steps, *[ladder] * bool(drawn["ladder"])),
        section("flames", "Flame graphs", flames),
        section("problems", "Problems", problems, is_folded=True),
        section("goals", "Goals", goals, is_folded=True),
        section("counters", "Counters", counters, is_folded=True),
        section("cells", "All cells", cells, is_folded=True),
    ]
    yield from (one for one in sections if one.drawings or one.tables)


def problems_table(family: FamilyView) -> Table:
    """Return a row per problem: its purpose, its facts, and its machine if there are several."""
    first: dict[str, Cell] = {}
    for cell in sorted(family.records, key=lambda cell: not cell.facts):
        first.setdefault(str(cell.problem), cell)
    cells = [first[problem] for problem in family.against]
    return cell_table(cells, "problem", "machine", "purpose", "facts")


def ladder_table(family: FamilyView, flames: Mapping[str, str]) -> Table:
    """Return a row per rung on `ladder_problem`: claim, measurement, first quality.

    `flames` has the address of a page of flame graphs by variant.
    """
    rungs = {rung.variant: rung for rung in family.ladder}

    def published(cell: Cell) -> Entry | None:
        claim = rungs[cell.variant].claim
        if claim is None:
            return None
        return Entry(change(claim.before, claim.after, claim.unit), claim.after)

    def flame_graphs(cell: Cell) -> Entry | None:
        return Entry("open", link=flames[cell.variant]) if cell.variant in flames else None

    return cell_table(
        [rung.cell for rung in rungs.values() if rung.cell],
        "variant",
        numbers("published step", published),
        numbers("published share", lambda cell: rungs[cell.variant].share),
        *("ratio", "reach", "cpu", "verdict", "quality", "gap"),
        text("flame graphs", flame_graphs),
    )


def growth_table(series: Sequence[Series]) -> Table:
    """Return a row per variant and sweep, with its fitted exponent."""

    def span(row: Series) -> Entry | None:
        sizes = [point.size for point in row.measured]
        return Entry(interval(min(sizes), max(sizes), count), max(sizes)) if sizes else None

    def ends(row: Series) -> Entry | None:
        fit = row.fit
        return Entry(interval(fit.low, fit.high, hundredths), fit.low) if fit else None

    def first_stopped(row: Series) -> float | None:
        return min((point.size for point in row.points if not point.is_measured), default=None)

    return table_of(
        series,
        code("variant"),
        code("problems", "sweep"),
        numbers("sizes", lambda row: len({point.size for point in row.measured}), count),
        numbers("range", span),
        numbers("exponent", lambda row: row.fit and row.fit.exponent, hundredths),
        numbers("95 % interval", ends),
        numbers("over budget from", first_stopped, count),
    )


def goals_table(goals: Sequence[Reading]) -> Table:
    """Return a row per goal: its limit, the measurement, and whether it is met."""
    return table_of(
        goals,
        text("goal", lambda row: row.statement.name),
        numbers("limit", lambda row: Entry(_limit(row), row.limit)),
        numbers("measured", lambda row: Entry(row.measured(quantity), row.value)),
        numbers("interval", lambda row: Entry(interval(*row.interval), row.interval[0])),
        text("outcome", lambda row: outcome_entry(row.outcome)),
        code("problem", lambda row: row.pair.problem),
    )


def _limit(goal: Reading) -> str:
    statement = goal.statement
    side, limit = "at most", statement.at_most
    if statement.at_least is not None:
        side, limit = "at least", statement.at_least
    if goal.figure:
        return f"{side} {quantity(goal.limit, goal.figure.unit)}"
    of = f" of {statement.before}" if statement.before else ""
    return f"{side} {quantity(limit or 0.0, 'times' if of else '')} {statement.measure}{of}"
