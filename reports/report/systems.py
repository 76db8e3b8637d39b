"""Systems and published changes in a report: their figures, also for the docs, and tables."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from harness.measuring.statements import Cells, Reading, counts, gap_of
from harness.measuring.timing.verdict import CONFIDENCE
from harness.model.statement import Statement
from reports.core import canvas
from reports.core.canvas import BLUE, GREY, VERMILION, WIDTH, Drawing, Looks, Mark
from reports.core.formatting import count, factor, gap
from reports.core.table import Entry, Table, code, numbers, table_of, text
from reports.statements import (
    System,
    published_text,
    reading_text,
    readings,
    work_text,
)

_LOOKS: Looks = {"published": (GREY, "s"), "measured": (BLUE, "o"), "ours": (VERMILION, "D")}
_CAPTION = (
    f"Lines longer than their mark are {100 * CONFIDENCE:.0f} % intervals. A hollow mark is a "
    "bound: the other call was stopped."
)
_PUBLISHED = " Published figures are of other machines and problems."
_Claim = tuple[Reading, Cells, str]
_NARROW = 4.7  # inches; such a figure can be read on a phone without scrolling


def shown_systems(here: Sequence[System], recorded: Sequence[System]) -> list[System]:
    """Return each system with a figure, as it was measured here or else as it is recorded."""
    known = {row.name: replace(row, is_recorded=True) for row in recorded}
    rows = [row if row.times.figure else known.get(row.name, row) for row in here]
    return [row for row in rows if row.times.figure]


def draw_gains(shown: Sequence[System]) -> Iterator[Drawing]:
    """Draw the speed-ups of ours over what each system is compared with, if any is known."""
    is_ours = any(row.statement.claim for row in shown)
    other = "today's release" if is_ours else "the variant compared with"
    panels = {f"times as fast as {other}, log scale": ["ours"]}
    yield from _draw("gains", "Speed-ups", shown, panels, _NARROW)


def draw_published(rows: Sequence[System]) -> Iterator[Drawing]:
    """Draw the published and the measured speed-ups of systems, if any is published."""
    drawn = [row for row in rows if row.claim and row.claim.statement.published]
    panels = {"times as fast as before the change, log scale": ["published", "measured"]}
    yield from _draw("published", "Published and measured", drawn, panels)


def draw_overview(rows: Sequence[System]) -> Iterator[Drawing]:
    """Draw both, each with its own baseline, for the docs."""
    panels = {
        "times as fast as before the change": ["published", "measured"],
        "times as fast as today's release": ["ours"],
    }
    yield from _draw("overview-times", "Published, reproduced, ours", rows, panels)


def _draw(
    slug: str,
    title: str,
    rows: Sequence[System],
    panels: Mapping[str, Sequence[str]],
    width: float = WIDTH,
) -> Iterator[Drawing]:
    """Draw a row per system; a panel has the label of its axis, and the names of its series."""
    if not rows:
        return
    # A long name is broken after its parts.
    names = [
        re.sub(r"(?<=[,:]) |(?= against) ", "\n", row.name) if len(row.name) > 18 else row.name
        for row in rows
    ]
    with canvas.style():
        figure = canvas.blank_figure(1.1 + 0.5 * len(rows), width)
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (scale, drawn) in zip(grid, panels.items(), strict=True):
            series = {name: [_mark(row, name) for row in rows] for name in drawn}
            canvas.draw_rows(axes, names, series, _LOOKS, scale)
        for axes in grid[1:]:
            axes.tick_params(labelleft=False)
        shown = {name: _LOOKS[name] for drawn in panels.values() for name in drawn}
        canvas.legend_above(figure, shown)
        caption = _CAPTION + (_PUBLISHED if "published" in shown else "")
        yield canvas.finish(figure, slug, title, caption, _frame(rows))


def _mark(row: System, name: str) -> Mark:
    """Return the mark of a speed-up, with NaN for unknown figures."""
    value = low = high = math.nan
    reading = row.times if name == "ours" else row.claim
    if name == "published":
        published = reading.statement.published if reading else None
        value = 1 / published.ratio if published else math.nan
    elif reading:
        value, (low, high) = reading.value, reading.interval
    is_hollow = bool(name == "ours" and row.times.figure and row.times.figure.sign)
    text = "" if math.isnan(value) else f"{'≥ ' if is_hollow else ''}{factor(value)}"
    return Mark(value, text, low, high, is_hollow)


def _frame(rows: Sequence[System]) -> pd.DataFrame:
    """Return the drawn figures as data for users, a row per system."""
    lines = []
    for row in rows:
        line: dict[str, object] = {"system": row.name}
        for name in _LOOKS:
            mark = _mark(row, name)
            line |= {name: mark.value, f"{name}_low": mark.low, f"{name}_high": mark.high}
        lines.append(line | {"basis": row.times.figure.basis if row.times.figure else ""})
    return pd.DataFrame(lines)


def systems_table(shown: Sequence[System]) -> Table:
    """Return a row per system: its gain, what stays as it was, and what a user types."""

    def speedup(row: System) -> Entry:
        sign = row.times.figure.sign if row.times.figure else ""
        return Entry(f"{sign} {factor(row.times.value)}".strip(), row.times.value)

    def measured(row: System) -> str:
        where = "recorded" if row.is_recorded else "here"
        basis = row.times.figure.basis if row.times.figure else ""
        return where if basis == "measured" else f"{where}, {basis}"

    decisions = {"same": "the same", "own": "another", "different": "different"}
    return table_of(
        shown,
        text("system", "name"),
        numbers("times as fast", speedup),
        text("decision", lambda row: decisions.get(row.times.decision, "unknown")),
        text("use", lambda row: row.statement.next_step or None),
        text("compared with", lambda row: row.statement.before_is or row.times.pair.before),
        text("measured", measured),
    )


def numbers_table(shown: Sequence[System]) -> Table:
    """Return the numbers behind each system: times, gap to the proven bound, repeated work."""

    def gaps(row: System) -> Entry | None:
        if row.better is None or row.better.figure is None:
            return None
        before, after = gap_of(row.better.before), gap_of(row.better.after)
        return Entry(f"{gap(before)} → {gap(after)}", after)

    return table_of(
        shown,
        text("system", "name"),
        text("times as fast", lambda row: reading_text(row.times)),
        numbers("gap to the bound, of the best", gaps),
        text("repeated work", work_text),
        code("problem", lambda row: row.times.pair.problem),
    )


def system_lines(shown: Sequence[System]) -> list[str]:
    """Return a line per system for a terminal: its gain and decision, and where it was measured."""
    return [
        f"{name}: {times} as fast, {decision} decision ({measured})"
        for name, times, decision, _, _, measured in (
            [entry.text for entry in row] for row in systems_table(shown).rows
        )
    ]


def claims_table(
    statements: Sequence[Statement], cells: Cells, recorded: Cells | None = None
) -> Table:
    """Return a row per published change: the published speed-up and the one measured in `cells`.

    A change without cells has the figures of the record (`recorded`), marked.
    """
    there = recorded or {}
    shown: list[_Claim] = [
        (row, cells, "") if row.figure or not known.figure else (known, there, " (recorded)")
        for row, known in zip(
            readings("claim", statements, cells), readings("claim", statements, there), strict=True
        )
    ]
    verb = "recorded" if recorded is None else "measured"

    def name(row: _Claim) -> Entry:
        statement = row[0].statement
        repository, _, number = statement.source.partition("#")
        link = f"https://github.com/{repository}/pull/{number}" if number else ""
        return Entry(statement.name, link=link)

    def counted(row: _Claim) -> str | None:
        statement = row[0].statement
        work = counts(statement, row[1])
        if work is None or work.after is None:
            return None
        return f"{statement.counter.replace('_', ' ')} {count(work.before)} → {count(work.after)}"

    return table_of(
        shown,
        text("claim", name),
        text("published", lambda row: published_text(row[0].statement)),
        text(verb, lambda row: reading_text(row[0]) + row[2]),
        text("verdict", lambda row: row[0].outcome),
        text("published for", lambda row: getattr(row[0].statement.published, "conditions", None)),
        code(f"{verb} for", lambda row: row[0].pair.problem),
        text("counted", counted),
    )
