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


def write_comparison(a: Path, b: Path, out: Path, title: str = "") -> Path:
    """Write a page on the changes from results file `a` to `b` into `out`; return its HTML's path.

    `title` replaces the page's heading. Raises UsageError if a file is unreadable, or `out` cannot
    be written, see `write_page`.
    """
    before, now = read_results(a), read_results(b)
    files = [printable(str(path) if a.name == b.name else path.name) for path in (a, b)]
    return write_page(out, lambda: _page(before, now, files, printable(title)))


def judge(before: Results, now: Results) -> GateVerdict:
    """Judge the cells of `now` by those of `before`, without ratios that may have changed or not.

    Raises ShardbenchError if nothing was measured in either.
    """
    a, b = ({cell.id: cell for cell in results.records} for results in (before, now))
    nothing = Expectations(ratio_slack=1.0)
    verdict = judge_cells(renewed(nothing, judge_cells(nothing, a)), b)

    def changed(one: Judged) -> tuple[Deviation, ...]:
        was, now = a.get(one.cell), b.get(one.cell)
        if was and now and not is_as_it_must_be(was):  # a gate would expect it to be repaired
            kind: Kind = "win" if is_as_it_must_be(now) else "changed"
            other = Deviation("outcome", kind, was.outcome, now.outcome)
            return (other,) if was.outcome != now.outcome else ()
        return tuple(found for found in one.deviations if found.kind != "inconclusive")

    judged = tuple(replace(one, deviations=changed(one)) for one in verdict.judged)
    return replace(verdict, judged=judged)


def _page(before: Results, now: Results, files: list[str], title: str) -> Page:
    verdict = judge(before, now)
    changes = CaptionedTable(
        _changes_table(verdict),
        _CHANGES,
        "changes",
        pd.DataFrame(
            [
                (str(one.cell), d.what, d.kind, d.expected, d.measured)
                for one, d in deviations(verdict.judged)
            ],
            columns=["cell", "what", "kind", "a", "b"],
        ),
    )
    a, b = ({cell.id: cell for cell in results.records} for results in (before, now))
    pairs = {name: (a.get(name), b.get(name)) for name in a | b}
    measured_with = [
        CaptionedTable(environment_table(results.records), letter)
        for letter, results in (("A", before), ("B", now))
    ]
    sections = [
        Section("ratios", "Ratios", drawings=list(draw_ratios(pairs))),
        Section("all-cells", "All cells", tables=[CaptionedTable(_cells_table(pairs), _CELLS)]),
        Section("measured-with", "Measured with", tables=measured_with),
    ]
    told = [
        Finding("verdict", headline(verdict), _summary(pairs)),
        *(Finding("measured with", note) for note in notes(verdict)),
        *(
            Finding("file", f"{letter}: {note}")
            for letter, results in (("A", before), ("B", now))
            for note in results.notes
        ),
    ]
    return Page(
        name=" and ".join(files),
        heading=title or "What changed",
        lead=[
            f"`{letter}` is {name}, {plural(len(results.records), 'cell')}"
            for letter, name, results in zip("AB", files, (before, now), strict=True)
        ],
        findings=told,
        opening=Section("overview", "Changes", tables=[changes] * bool(changes.table.rows)),
        sections=[section for section in sections if section.drawings or section.tables],
    )


Pairs = Mapping[CellId, tuple[Cell | None, Cell | None]]
"""The cells of A and of B by id, None where a file lacks the cell."""


def _summary(pairs: Pairs) -> str:
    both = [(a, b) for a, b in pairs.values() if a and b]
    decided = [(a, b) for a, b in both if a.fingerprint and b.fingerprint]
    same = sum(a.fingerprint == b.fingerprint for a, b in decided)
    told = (
        f"B is judged by A: {plural(len(both), 'cell')} in both files, {same:,} of "
        f"{plural(len(decided), 'decision')} the same"
    )
    if both:  # a checkout has a commit, an installed package only the digest of its code
        a, b = ((cell.environment.commit or cell.environment.code) for cell in both[-1])
        if a and b:
            told += f", from `{a}` to `{b}`" if a != b else f", both of `{a}`"
    return f"{told}."


def _changes_table(verdict: GateVerdict) -> Table:
    """Return a row per deviation, the worst kind first, and of a kind the largest first."""
    kinds: tuple[Kind, ...] = get_args(Kind)
    found = deviations(verdict.judged)
    found.sort(key=lambda pair: (kinds.index(pair[1].kind), -_size(pair[1])))
    return table_of_deviations(found, "in A", "in B")


def _size(deviation: Deviation) -> float:
    """Return the size of a change of a number: the logarithm of its factor, infinite from 0."""
    a, b = deviation.expected, deviation.measured
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return 0.0
    return abs(math.log(b / a)) if a > 0 and b > 0 else math.inf


def _cells_table(pairs: Pairs) -> Table:
    """Return a row per cell: its outcome, ratio and CPU time in A and in B."""

    def column(one: TableColumn, place: int) -> TableColumn:
        def entry(row: tuple[CellId, tuple[Cell | None, ...]]) -> Entry | None:
            cell = row[1][place]
            return one.entry(cell) if cell else None

        return replace(one, title=f"{one.title} in {'AB'[place]}", value=entry)

    shown = (text("outcome"), COLUMNS["ratio"], COLUMNS["cpu"])
    columns = (column(one, place) for one in shown for place in (0, 1))
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
