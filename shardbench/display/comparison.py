"""The output of `shardbench compare`: tables, or a JSON document."""

import math
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract.registry import installed_statements
from harness.measuring.selftest.file import SelfTest, last_selftests
from harness.measuring.statements import MIB, Reading, evaluate
from harness.measuring.timing.verdict import CONFIDENCE
from harness.model.cell import SCHEMA, Cell, Progress, Summary, projected_speedup
from harness.model.quality import Bound
from reports.core.formatting import fact, figure, gap, listing, number, progress, reach
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
from reports.core.terminal import as_terminal

_ROW_FIELDS = (
    *("variant", "cell", "status", "reason", "output", "wall_s", "cpu_s", "thread_cpu_s"),
    *("clock", "ratio", "remark", "verdict", "verdict_reason", "decision", "same_as"),
    *("fingerprint", "quality", "counters", "phases", "work"),
    *("peak_memory_bytes", "memory_before_bytes"),
    *("progress", "projection_s", "claim", "source"),
)
_CONFIDENCE = f"{100 * CONFIDENCE:.0f} %"
_MOST_PRINTED_LINES = 12
_SIGNS = {"lower": "≥", "higher": "≤"}
_VARIANT = code("variant", least=16)


def document(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return a comparison as a JSON document."""
    first = cells[0]
    records = [cell.record() for cell in cells]
    return {
        "schema": SCHEMA,
        "family": first.family,
        "problem": str(first.problem),
        "reference": first.reference,
        "against": first.against,
        "facts": _facts(cells),
        "rows": [{field: record[field] for field in _ROW_FIELDS} for record in records],
        "goals": [
            {"goal": goal.statement.name, "variant": goal.pair.after, "outcome": goal.outcome}
            for goal in goals(cells)
        ],
        "counters": first.counter_meanings,
        **{name: records[0][name] for name in ("qualities", "settings", "environment")},
    }


def _facts(cells: Sequence[Cell]) -> dict[str, Any]:
    return next((cell.facts for cell in cells if cell.facts), {})


def shown(cells: Sequence[Cell], details: bool) -> RenderableType:
    """Render a comparison: times, decisions and failures; with `details`, counts too."""
    first = cells[0]
    proven = [cell.variant for cell in cells if cell.bound and cell.bound.is_reached(cell.quality)]
    parts: list[RenderableType] = [
        Text(f"{first.family} on {first.problem}", style="bold"),
        Text(", ".join(fact(name, value) for name, value in _facts(cells).items() if value != "")),
        "",
        as_terminal(_times_and_qualities(cells)),
        *_decisions(cells),
        *_notes(cells),
    ]
    if proven:
        parts.append(Text(f"Proven best: {listing(proven)}."))
    tables = {"Goals": _goals(cells)}
    parts += [Text(test.sentence(), style="dim") for test in _self_test(cells)]
    if details:
        tables |= {
            "Seconds of a call": _seconds(cells),
            "How ratios were taken": _ways(cells),
            "The work of a call, counted": _work(cells),
            "Resident memory, MiB": _memory(cells),
        }
    parts += [as_terminal(table, f"\n{title}") for title, table in tables.items() if table.rows]
    if details:
        parts += _figures("Counters", cells, attrgetter("counters"))
        title = "Phases, CPU seconds of the observed call"
        parts += _figures(title, cells, attrgetter("phases"))
    return Group(*parts)


def _times_and_qualities(cells: Sequence[Cell]) -> Table:
    """Return a table with a row per variant, at most 80 columns wide."""
    first = cells[0]
    bound, quality = first.bound, first.qualities[0].name
    stopped = next((cell for cell in cells if cell.variant == first.against), None)
    projected = {cell.variant: stopped and projected_speedup(cell, stopped) for cell in cells}
    time = {"cpu": "CPU s", "wall": "wall s"}[first.clock]
    columns = [_VARIANT, numbers(time, lambda cell: _median(cell.compared_s))]
    if any(projected.values()):

        def factor(cell: Cell) -> str | None:
            found = projected[cell.variant]
            return f"≥ {number(found)}x" if found else None

        columns.append(numbers("times as fast\n(projected)", factor))
    else:
        columns += [numbers("ratio", _ratio), numbers(_CONFIDENCE, _reach)]
    if bound:
        sign = _SIGNS[bound.better]
        columns += [
            text("verdict", _verdict_and_decision),
            numbers(f"{quality}\n{sign} bound", lambda cell: _bounded(cell, bound, sign)),
            numbers("gap", lambda cell: bound.gap(cell.quality), gap),
        ]
    else:
        decision = text("decision", lambda cell: cell.decision or None)
        in_figures = numbers(quality, lambda cell: cell.quality.get(quality), figure)
        columns += [text("verdict", _verdict), decision, in_figures]
    return table_of(cells, *columns)


def _median(measured: Summary | None) -> float | None:
    return measured.median if measured else None


def _ratio(cell: Cell) -> str | None:
    return number(cell.ratio.value, 2 if cell.ratio.value < 0.1 else 3) if cell.ratio else None


def _reach(cell: Cell) -> str | None:
    return reach(cell.ratio.value, *cell.ratio.interval) if cell.ratio else None


def _bounded(cell: Cell, bound: Bound, sign: str) -> str | None:
    found = [cell.quality.get(name) for name in (bound.quality, bound.name)]
    return f" {sign} ".join(figure(value) for value in found if value is not None) or None


def _verdict(cell: Cell) -> Entry:
    if cell.status != "ok":
        return outcome_entry(cell.status)
    if cell.decision in ("different", "reference"):
        different = cell.decision == "different"
        return outcome_entry("different decision" if different else "reference")
    verdict = cell.verdict or "-"
    return Entry(verdict, tone="bad") if verdict == "slower" else outcome_entry(verdict)


def _verdict_and_decision(cell: Cell) -> Entry:
    verdict = _verdict(cell)
    if cell.status != "ok" or cell.decision not in ("same", "own"):
        return verdict
    said = f"{verdict.text}, {cell.decision}" if cell.verdict else cell.decision
    return Entry(said, tone=verdict.tone)


def _decisions(cells: Sequence[Cell]) -> list[RenderableType]:
    """Return a table that groups the variants by the fingerprint of their decision."""
    alike: dict[str, list[str]] = {}
    for cell in cells:
        if cell.fingerprint:
            alike.setdefault(cell.fingerprint, []).append(cell.variant)
    names = text("of the decision of", lambda row: ", ".join(row[1]))
    table = table_of(alike.items(), code("fingerprint", 0), names)
    return ["", as_terminal(table), ""] if alike else []


def _notes(cells: Sequence[Cell]) -> Iterator[RenderableType]:
    """Yield remarks, reasons for missing times or verdicts, and the output of failed variants."""
    notes: dict[str, list[str]] = {}
    for cell in cells:
        for note in filter(None, (_note(cell), cell.remark)):
            notes.setdefault(note, []).append(cell.variant)
    for note, names in notes.items():
        yield Text(f"{', '.join(names)}: {note}.", style="dim")
    for cell in cells:
        if cell.status == "failed" and cell.output:
            lines = cell.output.splitlines()
            at_last = ", at last" if len(lines) > _MOST_PRINTED_LINES else ""
            block = [f"    {line}" for line in lines[-_MOST_PRINTED_LINES:]]
            yield Text("\n".join([f"{cell.variant} printed{at_last}:", *block]), style="dim")


def _note(cell: Cell) -> str:
    if cell.status != "ok":
        held = cell.progress or Progress(-1)
        after, projection = held.elapsed_s or 0, cell.projection_s or 0
        said = progress(held.done, held.total or 0, held.unit, after, projection)
        return (cell.reason or "").rstrip(".") + said
    if cell.decision == "different":
        return f"decides differently from {cell.same_as}, so it was not timed"
    return cell.verdict_reason if cell.verdict == "inconclusive" else ""


def _self_test(cells: Sequence[Cell]) -> list[SelfTest]:
    """Return a list of this machine's self-test with the most similar call time, or []."""
    machine = next((cell.environment.machine for cell in cells if cell.environment), None)
    longest = max((cell.cpu_s.median for cell in cells if cell.cpu_s and cell.ratio), default=0)
    found = last_selftests(machine) if machine and longest else []
    nearest = min(found, key=lambda test: abs(math.log(test.call_seconds / longest)), default=None)
    return [nearest] if nearest else []


def _ways(cells: Sequence[Cell]) -> Table:
    def percent(spread: float | None) -> str | None:
        return None if spread is None else f"{100 * spread:.1f} %"

    return table_of(
        (cell for cell in cells if cell.ratio and cell.ratio.way),
        _VARIANT,
        text("way", lambda cell: cell.ratio.way),
        numbers("pairs", lambda cell: cell.ratio.pairs),
        numbers("processes", lambda cell: cell.ratio.processes),
        numbers("a pair varies by", lambda cell: percent(cell.ratio.pair_spread)),
        numbers("a process by", lambda cell: percent(cell.ratio.process_spread)),
    )


def _work(cells: Sequence[Cell]) -> Table:
    return table_of(
        (cell for cell in cells if cell.work),
        _VARIANT,
        numbers("Python calls", lambda cell: f"{cell.work.python_calls:,}"),
        numbers("spread", lambda cell: cell.work.spread),
        numbers("time in built-ins", lambda cell: f"{100 * cell.work.built_in_share:.0f} %"),
    )


def goals(cells: Sequence[Cell]) -> list[Reading]:
    """Return the goals of the cells' family whose variant is among them."""
    by_id = {cell.id: cell for cell in cells}
    declared = installed_statements().get(cells[0].family, ())
    readings = (evaluate(found, by_id) for found in declared if found.use == "goal")
    return [reading for reading in readings if reading.after]


def _goals(cells: Sequence[Cell]) -> Table:
    return table_of(
        goals(cells),
        text("goal", lambda row: row.statement.name),
        text("measured", lambda row: row.measured(lambda v, unit: f"{number(v)} {unit}".strip())),
        text("outcome", lambda row: outcome_entry(row.outcome)),
    )


def _seconds(cells: Sequence[Cell]) -> Table:
    return table_of(
        (cell for cell in cells if cell.wall_s),
        _VARIANT,
        numbers("wall", lambda cell: _median(cell.wall_s)),
        numbers("CPU", lambda cell: _median(cell.cpu_s)),
        numbers("CPU of its own thread", lambda cell: _median(cell.thread_cpu_s)),
    )


def _memory(cells: Sequence[Cell]) -> Table:
    def amount(cell: Cell, before: int | None) -> str | None:
        sign = "≥ " if cell.status == "over budget" else ""
        grown = None if before is None else ((cell.peak_memory_bytes or 0) - before) / MIB
        return None if grown is None else f"{sign}{number(grown)}"

    return table_of(
        (cell for cell in cells if cell.peak_memory_bytes is not None),
        _VARIANT,
        numbers("peak", lambda cell: amount(cell, 0)),
        numbers("of the call", lambda cell: amount(cell, cell.memory_before_bytes)),
    )


def _figures(
    title: str, cells: Sequence[Cell], held: Callable[[Cell], dict[str, Any]]
) -> Iterator[RenderableType]:
    """Yield a table with a column per name and a row per variant that has values."""
    names = dict.fromkeys(name for cell in cells for name in held(cell))

    def column(name: str) -> TableColumn:
        return numbers(name, lambda cell: held(cell).get(name, 0))

    if names:
        rows = (cell for cell in cells if held(cell))
        yield as_terminal(table_of(rows, _VARIANT, *map(column, names)), f"\n{title}")
