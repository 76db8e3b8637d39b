"""The sections of a report on one family."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from reports.core.drawing import canvas
from reports.core.drawing.canvas import Drawing
from reports.core.formatting import listing
from reports.core.frames import Results
from reports.core.page import CaptionedTable, PageSection
from reports.family.data import FamilyView
from reports.family.flame_links import LadderStep, flames_table
from reports.family.front import draw_fronts
from reports.family.growth import draw_growth, growth_table
from reports.family.ladder import draw_ladder, ladder_by_problem_table, ladder_table
from reports.family.phases import draw_phases, phases_table
from reports.family.quality import draw_quality, quality_table
from reports.family.ranks import draw_ranks, loads_table, ranks, ranks_table
from reports.family.scaling import LEAST_SIZES
from reports.family.shortfalls import shortcomings
from reports.family.speedups import draw_speedups, speedup_tables
from reports.family.tables import cells_table, counters_table, goals_table, problems_table


def figures(family: FamilyView) -> dict[str, list[Drawing]]:
    """Return the figures that the results allow, by section; `sizes` has a figure per sweep."""
    with canvas.style():
        return {
            "ladder": list(draw_ladder(family)),
            "against": list(draw_speedups(family)),
            "sizes": list(draw_growth(family)),
            "quality": list(draw_quality(family)),
            "ranks": list(draw_ranks(family)),
            "front": list(draw_fronts(family)),
            "phases": list(draw_phases(family)),
        }


def family_sections(
    family: FamilyView, results: Results, steps: Sequence[LadderStep] = ()
) -> Iterator[PageSection]:
    """Yield the sections on a family; `steps` are the flame graphs of its ladder.

    Sections with figures are first; folded sections with tables to check them follow.
    """
    drawn = figures(family)

    def section(
        name: str, title: str, *tables: CaptionedTable, missing: str = "", **options: Any
    ) -> PageSection:
        """Return a section; without a figure, the text `missing`, if given, replaces its tables."""
        slug, drawings = f"{family.slug}-{name}", drawn.get(name, ())
        if missing and not drawings:
            return PageSection(slug, title, note=missing, **options)
        return PageSection(slug, title, drawings, tables, **options)

    note = "" if drawn["ladder"] else "No two steps could be measured on one problem."
    tables = _ladder_tables(family, steps)
    yield section("ladder", "The ladder: claimed and measured", *tables, note=note)
    others = [name for name in dict.fromkeys(family.against.values()) if name != family.reference]
    if others:
        compared = (CaptionedTable(table, caption) for caption, table in speedup_tables(family))
        title = f"Compared with {listing(others)}"
        yield section("against", title, *compared, is_folded=not drawn["against"])
    yield section(
        "sizes",
        "Time against size",
        CaptionedTable(growth_table(family), "Fitted exponents: time grows as size^exponent."),
        missing="There are no two problems that differ only in size; an exponent takes "
        f"{LEAST_SIZES} sizes.",
    )
    yield section(
        "quality",
        "Time against quality",
        CaptionedTable(quality_table(family), f"Every quality on `{family.quality_problem}`."),
        missing="No two variants that were timed differ in quality.",
    )
    view = ranks(family)
    if view is not None:
        loads = CaptionedTable(loads_table(view), "The heaviest rank, the mean, and the capacity.")
        every = CaptionedTable(ranks_table(view), "Every rank.")
        yield section("ranks", "What each rank gets", loads, every)
    if drawn["front"]:
        yield section("front", "What moving little wins")
    yield from _checks(family, results, partial(section, is_folded=True))


def _checks(
    family: FamilyView, results: Results, section: Callable[..., PageSection]
) -> Iterator[PageSection]:
    """Yield sections of tables that check the figures: problems, goals, phases, counters, cells."""
    problems = CaptionedTable(
        problems_table(family, results), "The planned problems, and why they are here."
    )
    yield section("problems", "Problems", problems)
    goals = CaptionedTable(goals_table(family), "Every goal, and whether it is met.")
    if goals.table.rows:
        yield section("goals", "Goals", goals, remarks=shortcomings(family))
    yield section(
        "phases",
        "Where the time goes",
        CaptionedTable(phases_table(family), f"CPU time by phase on `{family.phase_problem}`."),
        missing="No call was observed phase by phase.",
    )
    counted = CaptionedTable(
        counters_table(family),
        f"Work done in one call on `{family.ladder_problem}`, counted while nothing is timed.",
        f"{family.slug}-counters",
        family.counters,
    )
    note = "" if counted.table.rows else f"Nothing was counted on {family.ladder_problem}."
    yield section("counters", "Counters", *[counted] * (not note), note=note)
    cells = CaptionedTable(
        cells_table(family), "Every variant on every problem.", f"{family.slug}-cells", family.cells
    )
    yield section("cells", "All cells", cells)


def _ladder_tables(family: FamilyView, steps: Sequence[LadderStep]) -> Iterator[CaptionedTable]:
    yield CaptionedTable(
        ladder_table(family),
        f"Shares of `{family.reference}`'s cost on `{family.ladder_problem}`; lower is better.",
    )
    by_problem = ladder_by_problem_table(family)
    if len(by_problem.rows) > 1 and len(by_problem.columns) > 1:
        yield CaptionedTable(by_problem, "The measured share on every problem.")
    if steps:
        caption = (
            "The flame graph of each step. Times in them are under the profiler, which slows small "
            "functions most."
        )
        yield CaptionedTable(flames_table(steps), caption)
