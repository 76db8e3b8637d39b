"""What a report holds about one family, section by section."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from reports.figures.canvas import Drawing
from reports.figures.family import figures
from reports.figures.ranks import loads_table, ranks, ranks_table
from reports.figures.speedups import against_tables
from reports.formatting import listing
from reports.frames import Results
from reports.goals import goals_table, shortcomings
from reports.pages.flame_links import Step, flames_table, steps
from reports.tables.family import (
    Table,
    cells_table,
    counters_table,
    growth_table,
    ladder_by_problem_table,
    ladder_table,
    phases_table,
    problems_table,
    quality_table,
)
from reports.views.family import FamilyView, rows_of
from reports.views.scaling import LEAST_SIZES


@dataclass(frozen=True, slots=True)
class Captioned:
    """A table with the sentence that says what it shows, and its `data` where it has a CSV file.

    The file is `name`.csv.
    """

    table: Table
    caption: str
    name: str = ""
    data: pd.DataFrame | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A section: figures, tables, remarks on them; `note` says why something is not there."""

    slug: str
    title: str
    drawings: tuple[Drawing, ...] = ()
    tables: tuple[Captioned, ...] = ()
    note: str = ""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chapter:
    """One family in the report, with its flame graphs and what its qualities and counters mean."""

    family: FamilyView
    sections: tuple[Section, ...]
    qualities: tuple[tuple[str, str, str], ...]
    counters: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...] = ()


def chapter(family: FamilyView, results: Results, profiles: Path | None = None) -> Chapter:
    """Draw and tabulate all that the results, and a folder of profiles, hold about a family."""
    qualities = dict.fromkeys(
        (row["name"], f"{row['unit'] or 'no unit'}, {row['better']} is better", row["meaning"])
        for row in rows_of(family.qualities)
    )
    counters = dict.fromkeys((row["name"], row["meaning"]) for row in rows_of(family.counters))
    found = steps(family, profiles)
    sections = tuple(_sections(family, results, found))
    return Chapter(family, sections, tuple(qualities), tuple(counters), tuple(found))


def _sections(family: FamilyView, results: Results, found: list[Step]) -> Iterator[Section]:
    drawn = {name: tuple(drawings) for name, drawings in figures(family).items()}
    slug = family.slug
    yield Section(
        f"{slug}-problems",
        "Problems",
        tables=(Captioned(problems_table(family, results), "What was planned, and why."),),
    )
    table = goals_table(family)
    if table.rows:
        caption = "What was to be reached, and whether it was."
        tables = (Captioned(table, caption),)
        remarks = tuple(shortcomings(family))
        yield Section(f"{slug}-goals", "Goals", tables=tables, remarks=remarks)
    yield Section(
        f"{slug}-ladder",
        "The ladder: claimed and measured",
        drawn["ladder"],
        tuple(_ladder_tables(family, found)),
        note="" if drawn["ladder"] else "No two steps could be measured on one problem.",
    )
    others = [name for name in dict.fromkeys(family.against.values()) if name != family.reference]
    if others:
        yield Section(
            f"{slug}-against",
            f"Compared with {listing(others)}",
            drawn["against"],
            tuple(Captioned(table, caption) for caption, table in against_tables(family)),
        )
    yield Section(
        f"{slug}-sizes",
        "Time against size",
        drawn["sizes"],
        (Captioned(growth_table(family), "Fitted exponents: time grows as size^exponent."),)
        if drawn["sizes"]
        else (),
        note=""
        if drawn["sizes"]
        else "There are no two problems that differ only in size; an exponent takes "
        f"{LEAST_SIZES} sizes.",
    )
    yield Section(
        f"{slug}-quality",
        "Time against quality",
        drawn["quality"],
        (Captioned(quality_table(family), f"Every quality on `{family.quality_problem}`."),)
        if drawn["quality"]
        else (),
        note="" if drawn["quality"] else "No two variants have both a time and a quality.",
    )
    view = ranks(family)
    if view is not None:
        yield Section(
            f"{slug}-ranks",
            "What each rank gets",
            drawn["ranks"],
            (
                Captioned(loads_table(view), "The heaviest rank, the mean, and the capacity."),
                Captioned(ranks_table(view), "Every rank."),
            ),
        )
    yield Section(
        f"{slug}-phases",
        "Where the time goes",
        drawn["phases"],
        (Captioned(phases_table(family), f"CPU time by phase on `{family.phase_problem}`."),)
        if drawn["phases"]
        else (),
        note="" if drawn["phases"] else "No call was observed phase by phase.",
    )
    yield _counters(family)
    yield Section(
        f"{slug}-cells",
        "All cells",
        tables=(
            Captioned(
                cells_table(family),
                "Every variant on every problem.",
                f"{slug}-cells",
                family.cells,
            ),
        ),
    )


def _ladder_tables(family: FamilyView, found: list[Step]) -> Iterator[Captioned]:
    yield Captioned(
        ladder_table(family),
        f"Shares of `{family.reference}`'s cost on `{family.ladder_problem}`; lower is better.",
    )
    by_problem = ladder_by_problem_table(family)
    if len(by_problem.rows) > 1 and len(by_problem.columns) > 1:
        yield Captioned(by_problem, "The measured share on every problem.")
    if found:
        caption = (
            "The flame graph of each step. Times in them are under the profiler, which slows small "
            "functions most."
        )
        yield Captioned(flames_table(found), caption)


def _counters(family: FamilyView) -> Section:
    table = counters_table(family)
    caption = f"Work done in one call on `{family.ladder_problem}`, counted while nothing is timed."
    counted = Captioned(table, caption, f"{family.slug}-counters", family.counters)
    held = (counted,) if table.rows else ()
    note = "" if held else f"Nothing was counted on {family.ladder_problem}."
    return Section(f"{family.slug}-counters", "Counters", tables=held, note=note)
