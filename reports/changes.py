"""The page on what changed between two results files: B is judged by A, as by the gate."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pandas as pd

from harness.gate.expectations import Expectations
from harness.gate.judging import (
    Deviation,
    GateVerdict,
    Judged,
    Kind,
    is_as_it_must_be,
    judge_cells,
    renewed,
)
from harness.measuring.timing.verdict import CONFIDENCE
from harness.model.cell import Cell
from harness.model.errors import printable
from harness.model.ids import CellId
from reports.core import canvas
from reports.core.canvas import BLUE, VERMILION, Drawing, Mark
from reports.core.columns import COLUMNS
from reports.core.formatting import plural
from reports.core.frames import Results, read_results
from reports.core.page import CaptionedTable, Finding, Page, Section, write_page
from reports.core.table import Entry, Table, TableColumn, code, table_of, text
from reports.gate import deviations, headline, notes, table_of_deviations
from reports.report.page import environment_table

_MOST_DRAWN = 24
_LOOKS = {"A": (BLUE, "o"), "B": (VERMILION, "D")}
_CHANGES = (
    "Decisions, counters and qualities do not depend on the machine, so a difference means that "
    "the code or a library has changed. A ratio is listed if the two intervals do not overlap; "
    "smaller changes cannot be detected."
)
_CELLS = (
    "Every cell of either file. Seconds depend on the machine and its load, so no verdict uses "
    "them."
)
Pairs = Mapping[CellId, tuple[Cell | None, Cell | None]]
"""The cells of A and of B by id, None where a file lacks the cell."""


def write_comparison(a: Path, b: Path, out: Path, title: str = "") -> Path:
    """Write a page on the changes from results file `a` to `b` into `out`; return its HTML's path.

    `title` replaces the page's heading. Raises UsageError if a file is unreadable, or `out` cannot
    be written, see `write_page`.
    """
    files = {
        f"`{letter}` is {printable(str(path))}": read_results(path)
        for letter, path in (("A", a), ("B", b))
    }
    return write_page(out, _page(files, printable(title) or "What changed"))


def judge(before: Results, now: Results) -> GateVerdict:
    """Judge the cells of `now` by those of `before`, without ratios that may have changed or not.

    Raises ShardbenchError if nothing was measured in either.
    """
    a, b = ({cell.id: cell for cell in results.records} for results in (before, now))
    nothing = Expectations(ratio_slack=1.0)
    verdict = judge_cells(renewed(nothing, judge_cells(nothing, a)), b)

    def changed(judged: Judged) -> tuple[Deviation, ...]:
        was, now = a.get(judged.cell), b.get(judged.cell)
        if was and now and not is_as_it_must_be(was):  # a gate would expect it to be repaired
            kind: Kind = "win" if is_as_it_must_be(now) else "changed"
            other = Deviation("outcome", kind, was.outcome, now.outcome)
            return (other,) if was.outcome != now.outcome else ()
        return tuple(found for found in judged.deviations if found.kind != "inconclusive")

    every = tuple(replace(judged, deviations=changed(judged)) for judged in verdict.judged)
    return replace(verdict, judged=every)


def _page(files: Mapping[str, Results], heading: str) -> Page:
    before, now = files.values()
    a, b = ({cell.id: cell for cell in results.records} for results in files.values())
    pairs = {name: (a.get(name), b.get(name)) for name in a | b}
    verdict = judge(before, now)
    kinds: tuple[Kind, ...] = get_args(Kind)
    changes = sorted(deviations(verdict.judged), key=lambda row: kinds.index(row[1].kind))
    data = pd.DataFrame(
        [(str(judged.cell), d.what, d.kind, d.expected, d.measured) for judged, d in changes],
        columns=["cell", "what", "kind", "a", "b"],
    )
    changed = CaptionedTable(
        table_of_deviations(changes, "in A", "in B"), _CHANGES, "changes", data
    )
    measured_with = [
        CaptionedTable(environment_table(results.records), f"{name}.")
        for name, results in files.items()
    ]
    drawn = list(draw_ratios(pairs))
    sections = [
        *([Section("ratios", "Ratios", drawings=drawn)] if drawn else []),
        Section("all-cells", "All cells", tables=[CaptionedTable(_cells_table(pairs), _CELLS)]),
        Section("measured-with", "Measured with", tables=measured_with),
    ]
    told = [Finding("measured with", note) for note in notes(verdict)]
    for letter, results in zip("AB", files.values(), strict=True):
        told += [Finding("file", f"{letter}: {note}") for note in results.notes]
    return Page(
        name=" and ".join(files),
        heading=heading,
        lead=[
            f"{name}, {plural(len(results.records), 'cell')}." for name, results in files.items()
        ],
        findings=[Finding("verdict", headline(verdict), _summary(pairs)), *told],
        opening=Section("overview", "Changes", tables=[changed] * bool(changes)),
        sections=sections,
    )


def _summary(pairs: Pairs) -> str:
    both = [(a, b) for a, b in pairs.values() if a and b]
    decided = [a.fingerprint == b.fingerprint for a, b in both if a.fingerprint and b.fingerprint]
    return (
        f"B is judged by A: {plural(len(both), 'cell')} in both files, {sum(decided):,} of "
        f"{plural(len(decided), 'decision')} the same."
    )


def _cells_table(pairs: Pairs) -> Table:
    """Return a row per cell: its outcome, ratio and CPU time in A and in B."""

    def column(of: TableColumn, place: int) -> TableColumn:
        def entry(row: tuple[CellId, tuple[Cell | None, ...]]) -> Entry | None:
            cell = row[1][place]
            return of.entry(cell) if cell else None

        return replace(of, title=f"{of.title} in {'AB'[place]}", value=entry)

    shown = (text("outcome"), COLUMNS["ratio"], COLUMNS["cpu"])
    columns = (column(of, place) for of in shown for place in (0, 1))
    return table_of(pairs.items(), code("cell", lambda row: str(row[0])), *columns)


def draw_ratios(pairs: Pairs) -> Iterator[Drawing]:
    """Draw the ratios over the same variant in both files, the largest change first."""
    shown = [
        (str(name), a.ratio, b.ratio)
        for name, (a, b) in pairs.items()
        if a and b and a.ratio and b.ratio and a.against == b.against
        if "different" not in (a.decision, b.decision)
    ]
    if not shown:
        return
    shown.sort(key=lambda row: -abs(math.log(row[2].value / row[1].value)))
    drawn = shown[:_MOST_DRAWN]
    series = {
        "A": [Mark(a.value, "", *a.interval) for _, a, _ in drawn],
        "B": [Mark(b.value, "", *b.interval) for _, _, b in drawn],
    }
    caption = f"Shares of the compared variant's time, with {100 * CONFIDENCE:.0f} % intervals."
    if len(shown) > len(drawn):
        caption += f" {plural(len(shown) - len(drawn), 'cell')} that changed less: in the table."
    ends = [(name, a.value, *a.interval, b.value, *b.interval) for name, a, b in shown]
    columns = ["cell", "ratio_a", "low_a", "high_a", "ratio_b", "low_b", "high_b"]
    with canvas.style():
        figure, axes = canvas.new_figure(1.0 + 0.42 * len(drawn))
        names = [name.replace("@", "\n", 1) for name, *_ in drawn]
        canvas.draw_rows(axes, names, series, _LOOKS, "share of time, log scale")
        canvas.legend_above(figure, _LOOKS)
        data = pd.DataFrame(ends, columns=columns)
        yield canvas.finish(figure, "ratios", "Ratios in A and B", caption, data)
