"""The sections of a report on one family."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from reports.core.formatting import listing
from reports.core.page import CaptionedTable, Section
from reports.family.data import FamilyView
from reports.family.figures import figures
from reports.family.flame_links import FlamePage, flames_table
from reports.family.ranks import (
    RankView,
    loads_table,
    ranks,
    ranks_caption,
    ranks_table,
)
from reports.family.tables import (
    cells_table,
    counters_table,
    goals_table,
    growth_table,
    ladder_table,
    problems_table,
    quality_table,
    shortcomings,
    speedup_tables,
)


def family_sections(family: FamilyView, pages: Sequence[FlamePage] = ()) -> Iterator[Section]:
    """Yield the sections on a family, without empty ones; `pages` are of flame graphs.

    First ours against today's release, then the published changes; folded tables to check both
    follow.
    """
    drawn = figures(family)

    def section(
        name: str, title: str, *tables: CaptionedTable, needs_figure: bool = False, **options: Any
    ) -> Section:
        drawings = drawn.get(name, ())
        filled = [one for one in tables if one.table.rows and len(one.table.columns) > 1]
        shown = filled if drawings or not needs_figure else ()
        slug = f"{family.slug}-{name}"
        return Section(slug, title, drawings=drawings, tables=shown, **options)

    view = ranks(family)
    others = [name for name in dict.fromkeys(family.against.values()) if name != family.reference]
    sections = [
        section(
            "against",
            f"Compared with {listing(others)}",
            *(CaptionedTable(table, caption) for caption, table in speedup_tables(family)),
            is_folded=not drawn["against"],
        ),
        section(
            "quality",
            "Time against quality",
            CaptionedTable(quality_table(family), f"Every quality on `{family.quality_problem}`."),
            needs_figure=True,
        ),
        *([] if view is None else [section("ranks", "The load of each rank", *_loads(view))]),
        section("front", "Quality against moved weights"),
        section(
            "sizes",
            "Time against size",
            CaptionedTable(growth_table(family), "Fitted exponents: time grows as size^exponent."),
        ),
        section(
            "ladder",
            "The published changes, step by step" if _has_claims(family) else "Step by step",
            _ladder_table(family, pages),
            needs_figure=True,
        ),
        section("flames", "Flame graphs", *_flame_tables(pages)),
        *_checks(family, partial(section, is_folded=True)),
    ]
    yield from (one for one in sections if one.drawings or one.tables)


def _has_claims(family: FamilyView) -> bool:
    return bool(family.cells["claim_after"].notna().any())


def _loads(view: RankView) -> Iterator[CaptionedTable]:
    yield CaptionedTable(loads_table(view), "The heaviest rank, the mean, and the capacity.")
    yield CaptionedTable(ranks_table(view), ranks_caption(view))


def _checks(family: FamilyView, section: Callable[..., Section]) -> Iterator[Section]:
    """Yield sections of tables that check the figures: problems, goals, counters, cells."""
    problems = CaptionedTable(
        problems_table(family), "The planned problems, and why they are here."
    )
    yield section("problems", "Problems", problems)
    goals = CaptionedTable(goals_table(family), "Every goal, and whether it is met.")
    yield section("goals", "Goals", goals, remarks=shortcomings(family))
    counted = CaptionedTable(
        counters_table(family),
        f"Work done in one call on `{family.ladder_problem}`, counted while nothing is timed.",
        f"{family.slug}-counters",
        family.counters,
    )
    yield section("counters", "Counters", counted)
    cells = CaptionedTable(
        cells_table(family), "Every variant on every problem.", f"{family.slug}-cells", family.cells
    )
    yield section("cells", "All cells", cells)


def _ladder_table(family: FamilyView, pages: Sequence[FlamePage]) -> CaptionedTable:
    on_it = [page for page in pages if page.pair.problem == family.ladder_problem]
    return CaptionedTable(
        ladder_table(family, {page.pair.variant: page.link for page in reversed(on_it)}),
        f"Shares of `{family.reference}`'s cost on `{family.ladder_problem}`; lower is better.",
    )


def _flame_tables(pages: Sequence[FlamePage]) -> Iterator[CaptionedTable]:
    caption = (
        "Times in flame graphs are under the profiler, which slows small functions most. "
        "`shardbench report --flames` adds a page for each step."
    )
    yield CaptionedTable(flames_table(pages), caption)
