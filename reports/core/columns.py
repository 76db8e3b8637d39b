"""The columns of tables of cells, each declared once: a table is a list of their names."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from harness.measuring.statements import MIB, gap_of
from harness.measuring.timing.verdict import CONFIDENCE
from harness.model.cell import Cell, Ratio, Summary, by_problem, projected_speedup
from harness.model.ids import ProblemId
from reports.core.formatting import MISSING, count, fact, figure, gap, number, reach, seconds
from reports.core.table import (
    Entry,
    Table,
    TableColumn,
    code,
    numbers,
    outcome_entry,
    table_of,
    text,
)

COMPARISON = ("variant", "time", "ratio", "reach", "projected", "verdict", "quality", "gap")
"""The columns of `shardbench compare`, also on pages."""

Variants = Mapping[ProblemId, Mapping[str, Cell]]


def cell_table(cells: Sequence[Cell], *columns: str | TableColumn) -> Table:
    """Return a table with a row per cell and these columns, without those that are empty.

    Columns are named as in this module, or declared by the caller. Some names stand for several
    columns, such as `qualities`, `counters` and `phases`.
    """
    made: list[TableColumn] = []
    for column in columns:
        made += [column] if isinstance(column, TableColumn) else _columns(column, cells)
    table = table_of(cells, *made)
    shown = [
        place
        for place in range(len(made))
        if place == 0 or any(row[place].text not in ("", MISSING) for row in table.rows)
    ]
    return Table(
        tuple(made[place] for place in shown),
        tuple(tuple(row[place] for place in shown) for row in table.rows),
    )


def compared(cell: Cell) -> Ratio | None:
    """Return the ratio of a cell, None if its decision differs: that is never a speed-up."""
    return None if cell.decision == "different" else cell.ratio


def median(times: Summary | None) -> float | None:
    """Return the median in seconds; None if nothing was measured."""
    return times.median if times else None


def first_quality(cell: Cell) -> float | None:
    """Return the first quality that the family declares; None if the cell has none."""
    return cell.quality.get(cell.qualities[0].name) if cell.qualities else None


def note(cell: Cell) -> str:
    """Return the reason for a missing time or verdict, and remarks on the timing; "" if none."""
    if cell.status != "ok":
        return (cell.reason or "").rstrip(".") + stopped_at(cell)
    if cell.decision == "different":
        return f"decides differently from {cell.same_as}, so it was not timed"
    why = cell.verdict_reason if cell.verdict == "inconclusive" else ""
    return "; ".join(filter(None, (why, cell.remark)))


def stopped_at(cell: Cell) -> str:
    """Write a stopped call's progress and its projected time in brackets; "" if unknown."""
    parts = []
    if cell.progress:
        progress = cell.progress
        total = f" of {count(progress.total)}" if progress.total else ""
        after = progress.elapsed_s
        spent = f" after {seconds(after, trim=True)}" if after else ""
        parts.append(f"{count(progress.done)}{total} {progress.unit}".rstrip() + spent)
    if cell.projection_s:
        parts.append(f"projection, not measured: {seconds(cell.projection_s)}")
    return f" ({'; '.join(parts)})" if parts else ""


def _ratio(cell: Cell) -> Entry | None:
    ratio = compared(cell)
    return Entry(number(ratio.value, 2 if ratio.value < 0.1 else 3), ratio.value) if ratio else None


def _reach(cell: Cell) -> Entry | None:
    ratio = compared(cell)
    if ratio is None:
        return None
    width = (ratio.high - ratio.low) / ratio.value
    sort = width if math.isfinite(width) else math.nan
    return Entry(reach(ratio.value, *ratio.interval), sort)


def _mib(cell: Cell, before: int | None) -> Entry | None:
    """Return the peak memory above `before` bytes; the peak of a stopped call is a lower bound."""
    if cell.peak_memory_bytes is None or before is None:
        return None
    grown = (cell.peak_memory_bytes - before) / MIB
    return Entry(("≥ " if cell.status == "over budget" else "") + number(grown), grown)


def _of(part: str, name: str) -> Callable[[Cell], Any]:
    return lambda cell: getattr(getattr(cell, part), name, None)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


COLUMNS: Mapping[str, TableColumn] = {
    "cell": code("cell", lambda cell: str(cell.id)),
    "variant": code("variant", "variant", least=16),
    "problem": code("problem", lambda cell: str(cell.problem)),
    "size": numbers("size", "size", count),
    "cpu": numbers("CPU time", lambda cell: median(cell.cpu_s), seconds),
    "machine": code("machine", lambda cell: cell.environment.machine),
    "against": code("compared with", "against"),
    "wall": numbers("wall time", lambda cell: median(cell.wall_s), seconds),
    "thread": numbers("CPU time of its thread", lambda cell: median(cell.thread_cpu_s), seconds),
    "ratio": numbers("ratio", _ratio),
    "reach": numbers(f"{100 * CONFIDENCE:.0f} %", _reach),
    "outcome": text("outcome", lambda cell: outcome_entry(cell.outcome)),
    "gap": numbers("gap", gap_of, gap),
    "peak": numbers("peak memory [MiB]", lambda cell: _mib(cell, 0)),
    "grown": numbers("of the call [MiB]", lambda cell: _mib(cell, cell.memory_before_bytes)),
    "fingerprint": code("fingerprint", lambda cell: (cell.fingerprint or "")[:10]),
    "note": text("remark", note),
    "summary": text("what it does", "summary"),
    "source": text("source", "source"),
    "purpose": text("why it is here", "purpose"),
    "facts": text("facts", lambda cell: "; ".join(fact(*item) for item in cell.facts.items())),
    "way": text("way", _of("ratio", "way")),
    "pairs": numbers("pairs", _of("ratio", "pairs"), count),
    "processes": numbers("processes", _of("ratio", "processes"), count),
    "pair_spread": numbers("a pair varies by", _of("ratio", "pair_spread"), _percent),
    "process_spread": numbers("a process by", _of("ratio", "process_spread"), _percent),
    "python_calls": numbers("Python calls", _of("work", "python_calls"), count),
    "calls_spread": numbers("spread", _of("work", "spread"), count),
    "built_in": numbers("time in built-ins", _of("work", "built_in_share"), _percent),
}
"""The columns by name; `_columns` has those that depend on all cells of a table."""


def _columns(name: str, cells: Sequence[Cell]) -> list[TableColumn]:
    """Return the columns of a name in a table of these cells."""
    if name in ("machine", "against"):  # shown if they vary
        column = COLUMNS[name]
        return (
            [column] if len({column.entry(cell) for cell in cells} - {Entry(MISSING)}) > 1 else []
        )
    if name in COLUMNS:
        return [COLUMNS[name]]
    if name == "time":  # the one that the ratios compare
        return [COLUMNS[cell.clock] for cell in cells[:1]]
    if name == "projected":
        return [numbers("times as fast\n(projected)", partial(_projected, by_problem(cells)))]
    if name == "verdict":
        return [text("verdict", partial(_verdict, by_problem(cells)))]
    if name == "quality":
        rated = [cell for cell in cells if cell.qualities]
        bounded = [cell for cell in rated if cell.bound]
        return [_quality(cell) for cell in (bounded or rated)[:1]]
    if name == "qualities":
        is_bounded = any(cell.bound for cell in cells)  # then the column `gap` has that quality
        units = {quality.name: quality.unit for cell in cells for quality in cell.qualities}
        return [
            numbers(f"{quality} [{unit}]" if unit else quality, _item("quality", quality))
            for quality, unit in units.items()
            if not (is_bounded and quality == "gap")
        ]
    write = {"counters": count, "phases": number}[name]
    figures = dict.fromkeys(figure for cell in cells for figure in getattr(cell, name))
    return [numbers(figure, _item(name, figure), write) for figure in figures]


def _item(field: str, name: str) -> Callable[[Cell], Any]:
    return lambda cell: getattr(cell, field).get(name)


def _projected(variants: Variants, cell: Cell) -> Entry | None:
    """Return the speed-up over a stopped call, projected from its progress."""
    baseline = variants[cell.problem].get(cell.against)
    speedup = projected_speedup(cell, baseline) if baseline else None
    return Entry(f"≥ {number(speedup)}x", speedup) if speedup else None


def _verdict(variants: Variants, cell: Cell) -> Entry:
    """Return the outcome with the decision: `same` as the variant compared with, or `own`.

    A decision that differs from it, but must equal that of another variant, is `as NAME`.
    """
    if cell.status != "ok" or cell.decision not in ("same", "own"):
        return outcome_entry(cell.outcome)
    decision: str = cell.decision
    baseline = variants[cell.problem].get(cell.against)
    other = baseline.fingerprint if baseline else None
    if cell.same_as and other and other != cell.fingerprint:
        decision = f"as {cell.same_as}"
    return outcome_entry(cell.outcome, f"{cell.verdict}, {decision}" if cell.verdict else decision)


def _quality(first: Cell) -> TableColumn:
    """Return the column of the first quality with the proven bound on it."""
    name, bound = first.qualities[0].name, first.bound
    sign = {"lower": "≥", "higher": "≤"}[bound.better] if bound else ""

    def value(cell: Cell) -> Entry | None:
        names = (name, bound.name) if bound else (name,)
        known = [cell.quality[name] for name in names if name in cell.quality]
        return Entry(f" {sign} ".join(map(figure, known)), known[0]) if known else None

    return numbers(f"{name}\n{sign} bound" if bound else name, value)
