"""The page on what changed between two results files: decisions, counters, qualities, ratios."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from msgspec import to_builtins

from harness.measuring.timing.verdict import CONFIDENCE
from harness.model.cell import Cell, Ratio
from harness.model.errors import printable
from harness.model.ids import CellId
from harness.suites.difference import (
    Deviation,
    Kind,
    compare_counters,
    compare_qualities,
    compare_ratios,
    compare_texts,
)
from reports.core import canvas
from reports.core.canvas import BLUE, VERMILION, Drawing, Mark
from reports.core.formatting import MISSING, interval, listing, names, plural, seconds
from reports.core.frames import Results, read_results
from reports.core.page import CaptionedTable, Finding, Page, Section, write_page
from reports.core.table import Entry, Table, TableColumn, Tone, code, numbers, table_of, text
from reports.gate import texts

# Relative tolerance for qualities: another release of a library may add floats in another order.
_ROUNDING = 1e-9
_MOST_DRAWN = 24
_LOOKS = {"A": (BLUE, "o"), "B": (VERMILION, "D")}
_RATIO = f"A ratio is CPU time over that of the variant compared with, at {100 * CONFIDENCE:.0f} %."

# By aspect, the worst first: what has changed, the words for a change, and what it means.
_ASPECTS: dict[str, tuple[str, dict[Kind, str], str]] = {
    "outcome": ("cell", {"regression": "no longer ok", "win": "now ok"}, ""),
    "decision": ("decision", {}, "The qualities show whether the decision is better."),
    "counters": (
        "counter",
        {"regression": "grew", "win": "fell"},
        "A counter repeats exactly, so the code does more or less work than before.",
    ),
    "quality": ("quality", {"regression": "got worse", "win": "got better"}, ""),
    "ratio": (
        "ratio",
        {"regression": "rose", "win": "fell"},
        "The two intervals do not overlap. A ratio also changes if the time of the variant "
        "compared with does.",
    ),
}


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between a cell of both files; `aspect` is its group in the page."""

    cell: CellId
    deviation: Deviation

    @property
    def aspect(self) -> str:
        """The first part of what changed: outcome, decision, counters, quality or ratio."""
        return self.deviation.what.partition(".")[0]

    @property
    def name(self) -> str:
        """The name of the counter or quality, else the aspect."""
        return self.deviation.what.partition(".")[2] or self.aspect

    @property
    def factor(self) -> float:
        """The value in B over the value in A; infinite from 0, NaN between texts."""
        a, b = self.deviation.expected, self.deviation.measured
        if not isinstance(a, int | float) or not isinstance(b, int | float):
            return math.nan
        return b / a if a else math.inf

    @property
    def size(self) -> float:
        """The size of the change: the distance of its factor from 1, as a logarithm."""
        is_finite = 0 < self.factor < math.inf
        return abs(math.log(self.factor)) if is_finite else math.inf

    def __str__(self) -> str:
        a, b, change = texts(self.deviation)
        name = "" if self.name == self.aspect else f"`{self.name}` of "
        return f"{name}`{self.cell}` {a} → {b} ({change})"


@dataclass(frozen=True)
class Changes:
    """The differences between two results files: A is the earlier file, B the later one."""

    a: Results
    b: Results

    @cached_property
    def cells(self) -> dict[CellId, tuple[Cell | None, Cell | None]]:
        """The cells of both files by id, in the order of A and then of B."""
        a, b = ({cell.id: cell for cell in results.records} for results in (self.a, self.b))
        return {name: (a.get(name), b.get(name)) for name in a | b}

    @cached_property
    def both(self) -> dict[CellId, tuple[Cell, Cell]]:
        """The cells that both files have."""
        return {name: (a, b) for name, (a, b) in self.cells.items() if a and b}

    @cached_property
    def changes(self) -> list[Change]:
        """The differences, by aspect and then the largest first."""
        found = [Change(name, d) for name, (a, b) in self.both.items() for d in differences(a, b)]
        order = list(_ASPECTS)
        return sorted(found, key=lambda change: (order.index(change.aspect), -change.size))

    @cached_property
    def settings(self) -> dict[str, tuple[str, str]]:
        """Versions, machines and settings of A and of B by name, "" where there is none."""
        a, b = _measured_with(self.a), _measured_with(self.b)
        return {name: (a.get(name, ""), b.get(name, "")) for name in a | b}


def differences(a: Cell, b: Cell) -> Iterator[Deviation]:
    """Yield what differs between a cell of A and the same cell of B."""
    was, now = (c.status if c.decision != "different" else "different decision" for c in (a, b))
    if was != now:
        kind: Kind = "regression" if was == "ok" else "win" if now == "ok" else "changed"
        yield Deviation("outcome", kind, was, now)
    if a.fingerprint and b.fingerprint:
        yield from compare_texts("decision", a.fingerprint, b.fingerprint)
    better = {quality.name: quality.better for quality in (*b.qualities, *a.qualities)}
    counters = {name: count for name, count in a.counters.items() if name in b.counters}
    kept = {name: b.counters[name] for name in counters}
    yield from compare_counters(counters, kept)
    for deviation in compare_qualities(a.quality, b.quality, better, _ROUNDING):
        if deviation.expected is not None and deviation.measured is not None:
            yield deviation
    if a.ratio and b.ratio and are_comparable(a, b):
        for deviation in compare_ratios(a.ratio.interval, b.ratio.interval):
            if deviation.kind != "inconclusive":
                yield replace(deviation, expected=a.ratio.value, measured=b.ratio.value)


def are_comparable(a: Cell, b: Cell) -> bool:
    """Return whether both cells have a ratio over the same variant, for the decision it needs."""
    has_ratios = bool(a.ratio and b.ratio) and a.against == b.against
    return has_ratios and "different" not in (a.decision, b.decision)


def write_comparison(a: Path, b: Path, out: Path, title: str = "") -> Path:
    """Write a page on the changes from results file `a` to `b` into `out`; return its HTML's path.

    `title` replaces the page's heading. Raises UsageError if a file is unreadable, or `out` cannot
    be written, see `write_page`.
    """
    changes = Changes(read_results(a), read_results(b))
    files = [printable(str(path) if a.name == b.name else path.name) for path in (a, b)]
    return write_page(out, lambda: _page(changes, files, printable(title)))


def _page(changes: Changes, files: list[str], title: str) -> Page:
    rows = [
        (str(c.cell), c.aspect, c.name, c.deviation.kind, c.deviation.expected,
         c.deviation.measured, c.factor)
        for c in changes.changes
    ]  # fmt: skip
    columns = ["cell", "aspect", "name", "kind", "a", "b", "factor"]
    differing = CaptionedTable(
        changes_table(changes),
        "What differs between cells of both files. Decisions, counters and qualities do not "
        "depend on the machine, so a difference means that the code or a library has changed.",
        "changes",
        pd.DataFrame(rows, columns=columns),
    )
    cells = CaptionedTable(
        cells_table(changes),
        f"Every cell of either file. {_RATIO} Seconds are shown if one machine measured both; "
        "they depend on its load, so no verdict uses them.",
    )
    settings = table_of(
        changes.settings.items(),
        text("what", 0),
        text("A", lambda row: row[1][0] or MISSING),
        text("B", lambda row: row[1][1] or MISSING),
        text("", lambda row: Entry("differs", tone="bad") if len(set(row[1])) > 1 else ""),
    )
    sections = [
        Section("ratios", "Ratios", drawings=list(draw_ratios(changes))),
        Section("changes", "Changes", tables=[differing] * bool(changes.changes)),
        Section("all-cells", "All cells", tables=[cells]),
        Section("measured-with", "Measured with", tables=[CaptionedTable(settings)]),
    ]
    counts = (len(results.records) for results in (changes.a, changes.b))
    return Page(
        name=" and ".join(files),
        heading=title or "What changed",
        lead=[
            f"`{letter}` is {name}, {plural(amount, 'cell')}"
            for letter, name, amount in zip("AB", files, counts, strict=True)
        ],
        findings=list(findings(changes)),
        sections=[section for section in sections if section.drawings or section.tables],
    )


def findings(changes: Changes) -> Iterator[Finding]:
    """Yield the largest change, then a finding for each kind of change, then on the files."""
    if not changes.both:
        yield Finding("verdict", "The two files have no cell in common.")
    else:
        first, rest = changes.changes[:1], changes.changes[1:]
        # A lost cell or another decision comes before all factors.
        if first and first[0].aspect not in ("outcome", "decision"):
            first = [max((*first, *rest), key=lambda change: change.size)]
        largest = f"Largest change: {first[0]}" if first else "Nothing changed"
        yield Finding("verdict", f"{largest}, {_between(changes)}.", _summary(changes))
    groups: dict[tuple[str, Kind], list[Change]] = defaultdict(list)
    for change in changes.changes:
        groups[change.aspect, change.deviation.kind].append(change)
    for (aspect, kind), group in groups.items():
        noun, verbs, meaning = _ASPECTS[aspect]
        told = f"{plural(len(group), noun)} {verbs.get(kind, 'changed')}"
        yield Finding(aspect, f"{told}: {listing(list(map(str, group)), 3)}.", meaning)
    for letter, place in (("A", 1), ("B", 0)):
        alone = [name for name, pair in changes.cells.items() if pair[place] is None]
        if alone:
            yield Finding(
                "cells", f"{plural(len(alone), 'cell')} only in {letter}: {names(alone, 3)}."
            )
    differ = [
        f"{name} {a or MISSING} → {b or MISSING}"
        for name, (a, b) in changes.settings.items()
        if a != b
    ]
    if differ:
        yield Finding("measured with", f"Settings differ: {listing(differ, most=8)}.")
    for letter, results in (("A", changes.a), ("B", changes.b)):
        yield from (Finding("file", f"{letter}: {note}") for note in results.notes)


def _summary(changes: Changes) -> str:
    compared = [pair for pair in changes.both.values() if are_comparable(*pair)]
    moved = sum(change.aspect == "ratio" for change in changes.changes)
    decided = [pair for pair in changes.both.values() if all(cell.fingerprint for cell in pair)]
    same = sum(a.fingerprint == b.fingerprint for a, b in decided)
    return (
        f"{plural(len(changes.both), 'cell')} in both files; {same:,} of "
        f"{plural(len(decided), 'decision')} are the same; {moved:,} of "
        f"{plural(len(compared), 'ratio')} moved beyond both intervals. Smaller changes of a ratio "
        "cannot be detected."
    )


def _between(changes: Changes) -> str:
    """Return a clause with the commits of both files, or else with the digests of their code."""
    for name in ("commit", "code"):
        a, b = changes.settings.get(name, ("", ""))
        if a and b:
            return f"with the same {name} `{a}`" if a == b else f"from {name} `{a}` to `{b}`"
    return "from A to B"


def changes_table(changes: Changes) -> Table:
    """Return a row per change: the cell, what it is, A's value, B's value, and the change."""
    tones: dict[Kind, Tone] = {"regression": "bad", "win": "good"}
    return table_of(
        [(change, *texts(change.deviation)) for change in changes.changes],
        code("cell", lambda row: str(row[0].cell)),
        text("aspect", lambda row: row[0].aspect),
        code("name", lambda row: row[0].name),
        text("in A", 1),
        text("in B", 2),
        text("change", lambda row: Entry(row[3], tone=tones.get(row[0].deviation.kind, ""))),
        numbers("factor", lambda row: row[0].factor),
    )


def cells_table(changes: Changes) -> Table:
    """Return a row per cell of either file: its status, ratio and CPU time in A and in B."""
    amounts = Counter(change.cell for change in changes.changes)

    def status(cell: Cell) -> str:
        return cell.status

    def ratio(cell: Cell) -> Entry | None:
        return Entry(interval(*cell.ratio.interval), cell.ratio.low) if cell.ratio else None

    def time(cell: Cell) -> Entry | None:
        return Entry(seconds(cell.cpu_s.median), cell.cpu_s.median) if cell.cpu_s else None

    def column(title: str, value: Callable[[Cell], Any], place: int) -> TableColumn:
        kind = text if value is status else numbers
        return kind(
            f"{title} in {'AB'[place]}",
            lambda row: None if row[1][place] is None else value(row[1][place]),
        )

    machines = [{c and c.environment.machine for c in pair} for pair in changes.both.values()]
    is_timed = any(len(machine) == 1 and machine != {None} for machine in machines)
    shown = {"status": status, "ratio": ratio, **({"CPU time": time} if is_timed else {})}
    return table_of(
        changes.cells.items(),
        code("cell", lambda row: str(row[0])),
        *(column(title, value, place) for title, value in shown.items() for place in (0, 1)),
        numbers("changes", lambda row: amounts[row[0]] if all(row[1]) else None),
    )


def draw_ratios(changes: Changes) -> Iterator[Drawing]:
    """Draw the ratios that can be compared between the files, the largest change first."""
    moved = {change.cell for change in changes.changes if change.aspect == "ratio"}
    rows: list[tuple[bool, float, str, Ratio, Ratio]] = []
    for name, (a, b) in changes.both.items():
        if a.ratio and b.ratio and are_comparable(a, b):
            step = abs(math.log(b.ratio.value / a.ratio.value))
            rows.append((name not in moved, -step, str(name), a.ratio, b.ratio))
    if not rows:
        return
    rows.sort(key=lambda row: row[:2])
    drawn = rows[:_MOST_DRAWN]
    series = {
        "A": [Mark(a.value, "", *a.interval) for *_, a, _ in drawn],
        "B": [Mark(b.value, "", *b.interval) for *_, b in drawn],
    }
    labels = [("" if row[0] else "* ") + row[2].replace("@", "\n", 1) for row in drawn]
    caption = f"{_RATIO} A star marks what moved beyond both intervals."
    if len(rows) > len(drawn):
        caption += f" {plural(len(rows) - len(drawn), 'cell')} that moved less: in the table."
    columns = ["cell", "ratio_a", "low_a", "high_a", "ratio_b", "low_b", "high_b"]
    data = pd.DataFrame(
        [(row[2], row[3].value, *row[3].interval, row[4].value, *row[4].interval) for row in rows],
        columns=columns,
    )
    with canvas.style():
        figure, axes = canvas.new_figure(1.0 + 0.42 * len(drawn))
        scale = "share of the compared variant's time, log scale"
        canvas.draw_rows(axes, labels, series, _LOOKS, scale)
        canvas.legend_above(figure, _LOOKS)
        yield canvas.finish(figure, "ratios", "Ratios in A and B", caption, data)


def _measured_with(results: Results) -> dict[str, str]:
    """Return a file's versions, machines and settings by name; commas separate several values."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for cell in results.records:
        stored: dict[str, Any] = to_builtins(cell.environment)
        facts = {
            **{name: stored.get(name) for name in ("shardbench", "code", "commit", "python")},
            **cell.environment.packages,
            **{name: stored.get(name) for name in ("system", "machine", "cpu", "cores")},
        }
        if cell.settings:
            facts["budget of a call [s]"] = f"{cell.settings.budget:g}"
            facts["seconds of timing a problem"] = f"{cell.settings.sampling.seconds:g}"
        for name, value in facts.items():
            if value is not None:
                found[name][str(value)] = None
    return {name: ", ".join(values) for name, values in found.items()}
