"""`shardbench compare`: compare the variants of a family on one problem."""

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract.registry import installed_statements
from harness.measuring.comparison import Comparison
from harness.measuring.request import Request
from harness.measuring.selftest import last_selftests
from harness.measuring.statements import Reading, evaluate
from harness.model.cell import SCHEMA, Cell
from harness.model.settings import Settings
from harness.store.cells import CellStore
from harness.suites.sweep import resumed, tasks_of
from reports.core.columns import COMPARISON, cell_table, note
from reports.core.formatting import fact, listing, plural, quantity
from reports.core.table import Table, code, outcome_entry, table_of, text
from reports.core.terminal import as_terminal
from shardbench import completion, options, problems
from shardbench.command import command
from shardbench.progress import progress_display
from shardbench.results_file import measuring_into

_ROW_FIELDS = (
    *("variant", "cell", "status", "reason", "output", "wall_s", "cpu_s", "thread_cpu_s"),
    *("clock", "ratio", "remark", "verdict", "verdict_reason", "decision", "same_as"),
    *("fingerprint", "quality", "counters", "phases", "work"),
    *("peak_memory_bytes", "memory_before_bytes"),
    *("progress", "projection_s", "claim", "source"),
)
_MOST_PRINTED_LINES = 12
_DETAILS = {
    "Times of a call": ("wall", "cpu", "thread"),
    "How ratios were taken": ("way", "pairs", "processes", "pair_spread", "process_spread"),
    "The work of a call, counted": ("python_calls", "calls_spread", "built_in"),
    "Resident memory": ("peak", "grown"),
    "Counters": ("counters",),
    "Phases, CPU seconds of the observed call": ("phases",),
}
"""The tables of `--details`: their titles and columns."""


@command(
    "shardbench compare reshard@transformer[layers=2]/dgx_h100:4 --quick",
    "shardbench compare embedding -w dlrm-856 -t dgx_h100 -n 16 \\",
    "    --variants compiled,certified --against compiled",
)
@problems.problem
@click.option(
    "--variants",
    default="",
    help="Only these, by name, with commas between.",
    shell_complete=completion.variants,
)
@options.against
@click.option("--quick", is_flag=True, help="Time for a third of --seconds, with wider intervals.")
@options.measuring(budget_s=120.0, seconds_s=30.0)
@options.json
@click.option(
    "--results", type=options.PATH, help="Append the cells to this results file, or go on with it."
)
@options.fresh
@click.option("--details", is_flag=True, help="Also show memory, phases, counters.")
def compare(
    request: Request,
    variants: str,
    against: str,
    quick: bool,
    settings: Settings,
    json: str,
    results: Path | None,
    fresh: bool,
    details: bool,
) -> None:
    """Compare the variants of a family on one problem.

    Each variant is compared with the family's reference, or with the variant of --against.
    """
    if quick:
        settings = replace(settings, sampling=settings.sampling.quick())
    names = (*request.variants, *options.names_in(variants))
    request = with_fields(request, variants=names, against=against)
    store = CellStore(results) if results else None
    with measuring_into(store) if store else nullcontext():
        if store and not fresh:
            (request,) = resumed(tasks_of([request], settings), store)
            if request.stored:
                options.messages.print(
                    f"{plural(len(request.stored), 'cell')} of {results} count; --fresh measures "
                    "all again."
                )
        if store:
            store.add()  # fails before measuring if the file is not writable
        keep = (lambda cell: store.add_cells([cell])) if store else (lambda cell: None)
        comparison = Comparison(request, settings)
        with progress_display(str(comparison.problem)) as listen:
            cells = [*request.stored, *comparison.run(listen, keep)]
    order = list(request.family.variants)
    cells.sort(key=lambda cell: order.index(cell.variant))
    options.show_or_write(json, document(cells), shown(cells, details))
    if all(cell.status != "ok" for cell in cells):
        raise click.exceptions.Exit(1)


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
    facts = [fact(name, value) for name, value in _facts(cells).items() if value != ""]
    proven = [cell.variant for cell in cells if cell.bound and cell.bound.is_reached(cell.quality)]
    tables = {"Goals": _goals(cells)}
    if details:
        ran = [cell for cell in cells if cell.status not in ("not installed", "not applicable")]
        tables |= {
            title: cell_table(ran, "variant", *columns) for title, columns in _DETAILS.items()
        }
    return Group(
        Text(f"{cells[0].family} on {cells[0].problem}", style="bold"),
        Text(", ".join(facts)),
        "",
        as_terminal(cell_table(cells, *COMPARISON)),
        *_decisions(cells),
        *_notes(cells),
        *([Text(f"Proven best: {listing(proven)}.")] if proven else []),
        *_selftest(cells),
        *(
            as_terminal(table, f"\n{title}")
            for title, table in tables.items()
            if table.rows and len(table.columns) > 1
        ),
    )


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
        if said := note(cell):
            notes.setdefault(said, []).append(cell.variant)
    for said, names in notes.items():
        yield Text(f"{', '.join(names)}: {said}.", style="dim")
    for cell in cells:
        if cell.status == "failed" and cell.output:
            lines = cell.output.splitlines()
            at_last = ", at last" if len(lines) > _MOST_PRINTED_LINES else ""
            block = [f"    {line}" for line in lines[-_MOST_PRINTED_LINES:]]
            yield Text("\n".join([f"{cell.variant} printed{at_last}:", *block]), style="dim")


def _selftest(cells: Sequence[Cell]) -> Iterator[RenderableType]:
    """Yield the result of this machine's self-test with the most similar call time, if any."""
    machine = next((cell.environment.machine for cell in cells if cell.environment), None)
    longest = max((cell.cpu_s.median for cell in cells if cell.cpu_s and cell.ratio), default=0)
    tests = last_selftests(machine) if machine and longest else []
    for test in sorted(tests, key=lambda test: abs(math.log(test.call_seconds / longest)))[:1]:
        yield Text(test.sentence(), style="dim")


def goals(cells: Sequence[Cell]) -> list[Reading]:
    """Return the goals of the cells' family whose variant is among them."""
    by_id = {cell.id: cell for cell in cells}
    declared = installed_statements(cells[0].family).get(cells[0].family, ())
    readings = (evaluate(statement, by_id) for statement in declared if statement.use == "goal")
    return [reading for reading in readings if reading.after]


def _goals(cells: Sequence[Cell]) -> Table:
    return table_of(
        goals(cells),
        text("goal", lambda row: row.statement.name),
        text("measured", lambda row: row.measured(quantity)),
        text("outcome", lambda row: outcome_entry(row.outcome)),
    )
