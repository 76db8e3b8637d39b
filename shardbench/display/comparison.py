"""What `shardbench compare` shows: tables for people, or one document."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from harness.measuring.goals import MIB, standing
from harness.measuring.verdict import CONFIDENCE
from harness.model.cell import SCHEMA, Bound, Cell, find_bound, projected_speedup
from reports.formatting import gap as percent_gap
from reports.formatting import number
from reports.tables.terminal import new_table

_ROW_FIELDS = (
    "variant",
    "cell",
    "status",
    "reason",
    "output",
    "wall_s",
    "cpu_s",
    "thread_cpu_s",
    "ratio",
    "verdict",
    "verdict_reason",
    "decision",
    "same_as",
    "fingerprint",
    "quality",
    "counters",
    "phases",
    "peak_memory_bytes",
    "memory_before_bytes",
    "progress",
    "projection_s",
    "claim",
    "goals",
    "source",
)
_STATUS_STYLES = {"not installed": "yellow", "not applicable": "dim"}
_CONFIDENCE = f"{100 * CONFIDENCE:.0f} %"
_BETWEEN = 2
_MOST_PRINTED_LINES = 12
_SIGNS = {"lower": "≥", "higher": "≤"}


def document(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return a comparison as one JSON document."""
    first = cells[0]
    facts = next((cell.facts for cell in cells if cell.facts), {})
    records = [cell.record() for cell in cells]
    return {
        "schema": SCHEMA,
        "family": first.family,
        "problem": str(first.problem),
        "reference": first.reference,
        "against": first.against,
        "facts": facts,
        "rows": [{field: record[field] for field in _ROW_FIELDS} for record in records],
        "qualities": records[0]["qualities"],
        "counters": first.counter_meanings,
        "settings": records[0]["settings"],
        "environment": records[0]["environment"],
    }


def comparison(cells: Sequence[Cell], details: bool) -> RenderableType:
    """Show a comparison: time and decision, what went wrong, and on request what was counted."""
    first = cells[0]
    facts = next((cell.facts for cell in cells if cell.facts), {})
    parts: list[RenderableType] = [
        Text(f"{first.family} on {first.problem}", style="bold"),
        Text(", ".join(_fact(name, value) for name, value in facts.items() if value != "")),
        "",
        _times_and_qualities(cells),
        *_decisions(cells),
        *_notes(cells),
        *_goals(cells),
    ]
    if details:
        tables = (
            _seconds(cells),
            _memory(cells),
            _ByVariant("Counters", cells, "counters"),
            _ByVariant("Phases, CPU seconds of the observed call", cells, "phases"),
        )
        parts += [table for table in tables if table.rows]
    return Group(*parts)


def _times_and_qualities(cells: Sequence[Cell]) -> Table:
    """Show a row for each variant, no wider than a terminal of 80 columns."""
    against = next((cell for cell in cells if cell.variant == cells[0].against), None)
    bound = find_bound(cells[0].qualities)
    quality = cells[0].qualities[0].name
    is_projected = against is not None and any(_projected(cell, against) for cell in cells)
    times = ["times as fast\n(projected)"] if is_projected else ["ratio", _CONFIDENCE]
    qualities = [f"{quality}\n{_SIGNS[bound.better]} bound", "gap"] if bound else [quality]
    decision = [] if bound else ["decision"]
    numbers = ["CPU s", *times, *qualities]
    table = new_table(
        "", "variant", "CPU s", *times, "verdict", *decision, *qualities, right=numbers
    )
    table.columns[0].min_width = min(16, max(len(cell.variant) for cell in cells))
    for cell in cells:
        table.add_row(
            cell.variant,
            number(cell.cpu_s.median) if cell.cpu_s else "-",
            *([_projected(cell, against) or "-"] if is_projected else _ratio(cell)),
            *([_verdict_and_decision(cell)] if bound else [_verdict(cell), cell.decision or "-"]),
            *(_bounded(cell, bound) if bound else [_figure(cell, quality)]),
        )
    return table


def _projected(cell: Cell, against: Cell | None) -> str:
    found = projected_speedup(cell, against) if against else None
    return f"≥ {number(found)}x" if found else ""


def _ratio(cell: Cell) -> tuple[str, str]:
    """Write the ratio, and how far its interval reaches to the farther side."""
    if not cell.ratio:
        return "-", "-"
    value, low, high = cell.ratio.value, *cell.ratio.interval
    reach = max(high - value, value - low) / value
    text = f"{value:.2g}" if value < 0.1 else number(value)
    digits = 0 if reach >= 0.01 else 1
    return text, f"±{reach * 100:.{digits}f} %" if reach < 1000 else "unbounded"


def _figure(cell: Cell, quality: str) -> str:
    if quality not in cell.quality:
        return "-"
    value = cell.quality[quality]
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def _bounded(cell: Cell, bound: Bound) -> tuple[str, str]:
    gap = bound.gap(cell.quality)
    if math.isnan(gap):
        return _figure(cell, bound.quality), "-"
    values = (_figure(cell, name) for name in (bound.quality, bound.name))
    return f" {_SIGNS[bound.better]} ".join(values), percent_gap(gap)


def _fact(name: str, value: Any) -> str:
    return f"{name} {value:,}" if isinstance(value, int | float) else f"{name}: {value}"


def _verdict(cell: Cell) -> Text:
    if cell.status != "ok":
        return Text(cell.status, style=_STATUS_STYLES.get(cell.status, "red"))
    if cell.decision == "different":
        return Text("different decision", style="red")
    if cell.decision == "reference":
        return Text("reference", style="dim")
    styles = {"faster": "green", "slower": "red"}
    return Text(cell.verdict or "-", style=styles.get(cell.verdict or "", ""))


def _verdict_and_decision(cell: Cell) -> Text:
    verdict = _verdict(cell)
    if cell.status != "ok" or cell.decision not in ("same", "own"):
        return verdict
    return verdict + f", {cell.decision}" if cell.verdict else Text(cell.decision)


def _decisions(cells: Sequence[Cell]) -> list[RenderableType]:
    """Say which variants decided the same, by fingerprint."""
    alike: dict[str, list[str]] = {}
    for cell in cells:
        if cell.fingerprint:
            alike.setdefault(cell.fingerprint, []).append(cell.variant)
    table = new_table("", "fingerprint", "of the decision of")
    for fingerprint, names in alike.items():
        table.add_row(fingerprint, ", ".join(names))
    return ["", table, ""] if alike else []


def _notes(cells: Sequence[Cell]) -> list[RenderableType]:
    notes: dict[str, list[str]] = {}
    for cell in cells:
        if note := _note(cell):
            notes.setdefault(note, []).append(cell.variant)
    said = [Text(f"{', '.join(names)}: {note}.", style="dim") for note, names in notes.items()]
    return [*said, *(_printed(cell) for cell in cells if cell.status == "failed" and cell.output)]


def _printed(cell: Cell) -> RenderableType:
    """Show the last that a failed variant printed, as a short indented block."""
    lines = (cell.output or "").splitlines()
    shown = "\n".join(f"    {line}" for line in lines[-_MOST_PRINTED_LINES:])
    title = f"{cell.variant} printed{', at last' if len(lines) > _MOST_PRINTED_LINES else ''}:"
    return Text(f"{title}\n{shown}", style="dim")


def _note(cell: Cell) -> str:
    if cell.status == "over budget":
        note = cell.reason or ""
        if cell.progress:
            progress = cell.progress
            note += f" at {progress.done:,}"
            note += f" of {progress.total:,}" if progress.total else ""
            note += f" {progress.unit}"
        if cell.projection_s:
            note += f"; projection of the whole call: {cell.projection_s:,.0f} s"
        return note
    if cell.status != "ok":
        return (cell.reason or "").rstrip(".")
    if cell.decision == "different":
        return f"decides otherwise than {cell.same_as}, so it was not timed"
    return cell.verdict_reason if cell.verdict == "inconclusive" else ""


def _goals(cells: Sequence[Cell]) -> list[RenderableType]:
    by_variant = {cell.variant: cell for cell in cells}
    table = new_table("\nGoals", "goal", "measured", "outcome")
    for goal in (goal for cell in cells for goal in cell.goals):
        found = standing(goal, by_variant)
        measured = found.measured(lambda value, unit: f"{number(value)} {unit}".strip())
        table.add_row(Text(goal.text), measured, Text(found.outcome, style=_tone(found.outcome)))
    return [table] if table.rows else []


def _tone(outcome: str) -> str:
    return {"met": "green", "missed": "red"}.get(outcome, "")


def _seconds(cells: Sequence[Cell]) -> Table:
    numbers = ["wall", "CPU", "CPU of its own thread"]
    table = new_table("\nSeconds of a call", "variant", *numbers, right=numbers)
    for cell in cells:
        if cell.wall_s:
            measured = (cell.wall_s, cell.cpu_s, cell.thread_cpu_s)
            medians = (number(each.median) if each else "-" for each in measured)
            table.add_row(cell.variant, *medians)
    return table


def _memory(cells: Sequence[Cell]) -> Table:
    numbers = ["peak", "of the call"]
    table = new_table("\nResident memory, MiB", "variant", *numbers, right=numbers)
    for cell in cells:
        peak, before = cell.peak_memory_bytes, cell.memory_before_bytes
        if peak is not None:
            sign = "≥ " if cell.status == "over budget" else ""
            of_call = f"{sign}{(peak - before) / MIB:,.1f}" if before is not None else "-"
            table.add_row(cell.variant, f"{sign}{peak / MIB:,.0f}", of_call)
    return table


class _ByVariant:
    """Figures by name, a row for each variant that has some; side by side as far as there is room.

    What does not fit follows below, with the variants again.
    """

    def __init__(self, title: str, cells: Sequence[Cell], field: str) -> None:
        self._title = title
        self.rows = {cell.variant: getattr(cell, field) for cell in cells if getattr(cell, field)}

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        title = f"\n{self._title}"
        for names in self._groups(options.max_width):
            table = new_table(title, "variant", *names, right=names)
            for variant, values in self.rows.items():
                table.add_row(variant, *(_amount(values.get(name, 0)) for name in names))
            yield table
            title = " "

    def _groups(self, most: int) -> Iterator[list[str]]:
        """Yield the names that fit beside each other in so many columns of a terminal."""
        names = dict.fromkeys(name for values in self.rows.values() for name in values)
        beside = max(map(len, ("variant", *self.rows)))
        group: list[str] = []
        width = beside
        for name in names:
            amounts = (_amount(values.get(name, 0)) for values in self.rows.values())
            needed = _BETWEEN + max(map(len, (name, *amounts)))
            if group and width + needed > most:
                yield group
                group, width = [], beside
            group.append(name)
            width += needed
        yield group


def _amount(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
