"""`shardbench workload`: show a workload's contents, or import a workload."""

import csv
import io
import math
import shlex
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from harness.contract.abilities import load
from harness.contract.workloads import Cell, Column, Imported, ImportRequest, Inventory
from harness.model.errors import UsageError, printable
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import placed_on
from reports.core.formatting import amount, in_bytes, number, plural
from reports.core.table import Entry, TableColumn, bar, numbers, table_of, text
from reports.core.terminal import as_terminal
from shardbench import completion, display, options, problems
from shardbench.command import command, examples

_WIDTH = 39
_MOST_BARS, _FEW_RANGES = 8, 3
_MOST_IMPORTED = 5


@click.group(no_args_is_help=True, epilog=examples("shardbench workload show dlrm-856"))
def workload() -> None:
    """Draw a workload's contents, or import one from other tools."""


@command("shardbench workload show dlrm-856 --top 5")
@click.argument(
    "workload",
    help="A name, name[key=value,...], or a file that its family reads.",
    shell_complete=completion.workloads,
)
@options.family
@options.topology
@options.gpus
@click.option("--sort", default="", help="The column by which parts are ordered.")
@click.option("--top", type=click.IntRange(min=1), default=10, help="How many parts to show.")
@click.option(
    "--out", "-o", type=options.OutFile(".csv"), help="Write every part to this file (.csv)."
)
def show(
    workload: str,
    family: str,
    topology: str | None,
    gpus: int | None,
    sort: str,
    top: int,
    out: Path | None,
) -> None:
    """Draw a workload's contents: distributions and the largest parts."""
    spec = WorkloadSpec.parse(workload)
    registry = options.found_registry()
    taking = problems.able_family(registry, family, "inventory", "show this", spec)
    if topology is None and gpus is None:
        taking.label(spec)  # raises UsageError if the workload does not exist
        placed = taking.brings(spec)
    else:
        placed = placed_on(taking, spec, topology, gpus)
    inventory = load(taking.abilities.inventory)(spec, placed)
    sort = sort or inventory.sort
    inventory.place(sort)  # raises UsageError for an unknown column
    if out is None:
        display.show(_contents(inventory, sort, top))
        return
    options.write(out, _as_csv(inventory))
    options.messages.print(inventory.summary)
    options.messages.print(f"Wrote {out}")


@command("shardbench workload import tables.parquet -o my_tables.csv")
@click.argument("source", help="A file, or module:function, whose code is run.")
@click.option("--out", "-o", type=options.OutFile(), required=True, help="The file to write.")
@click.option("form", "--format", default="auto", help="What the source is, if not by its name.")
@click.option("--column", multiple=True, help="FIELD=COLUMN that holds it; may be repeated.")
@click.option("--assume", multiple=True, help="FIELD=VALUE that the source lacks; may be repeated.")
@options.family
def import_workload(
    source: str, out: Path, form: str, column: tuple[str, ...], assume: tuple[str, ...], family: str
) -> None:
    """Import a workload from another tool's format."""
    able = problems.able_family(options.found_registry(), family, "importing", "import")
    if any(sign in str(out) for sign in "[]@"):
        raise UsageError(f"{out} cannot be named as a workload: leave out '[', ']' and '@'.")
    if out.exists() and Path(source).exists() and out.samefile(source):
        raise UsageError(f"{out} is the source itself; write to another file.")
    request = ImportRequest(
        source=source,
        target=str(out),
        format="" if form == "auto" else form,
        columns=_pairs("--column", column),
        assumed=_pairs("--assume", assume),
    )
    imported: Imported = load(able.abilities.importing)(request)
    options.write(out, imported.content)
    display.show(outcome(imported))
    options.messages.print(
        f"Wrote {out}; go on with\n  shardbench compare {able.name} "
        f"-w {shlex.quote(str(out))} -t dgx_h100 -n 16"
    )


workload.add_command(show)
workload.add_command(import_workload, "import")


def _pairs(option: str, given: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for pair in given:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (key and equals and value):
            raise UsageError(f"{option} must be given as FIELD=..., not '{pair}'.")
        if key in pairs:
            raise UsageError(f"{option} gives '{key}' twice.")
        pairs[key] = value
    return pairs


def _contents(inventory: Inventory, sort: str, most: int) -> RenderableType:
    """Render an inventory: a summary, histograms, and the `most` largest parts with bars."""
    places = [place for place, column in enumerate(inventory.columns) if column.scale]
    drawn = [_histogram(inventory, place) for place in places]
    parts: list[RenderableType] = [
        Text(inventory.title, style="bold"),
        Text(inventory.summary),
        *(Text(f"{note}.", style="dim") for note in inventory.notes),
    ]
    if drawn:
        grid = Grid.grid(padding=(0, 2, 0, 0))  # two in a row
        grid.add_column(width=_WIDTH)
        grid.add_column(width=_WIDTH)
        for place in range(0, len(drawn), 2):
            grid.add_row(*drawn[place : place + 2])
        parts.append(grid)
    return Group(*parts, "", _largest(inventory, sort, most))


def outcome(imported: Imported) -> RenderableType:
    """Render an imported workload, with the assumed, changed and omitted values."""
    inventory = imported.inventory
    parts: list[RenderableType] = [
        Text(inventory.title, style="bold"),
        Text(inventory.summary),
        "",
        _largest(inventory, inventory.sort, _MOST_IMPORTED),
    ]
    for title, sentences in (
        ("Assumed, since the source does not say it", imported.assumed),
        ("Changed", imported.changed),
        ("Left out", imported.left_out),
    ):
        if sentences:
            parts += ["", Text(f"{title}:", style="yellow")]
            parts.append(display.listed(f"{sentence}." for sentence in sentences))
    return Group(*parts)


def _as_csv(inventory: Inventory) -> str:
    """Return all rows as CSV, with unprintable characters of texts escaped."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([column.name for column in inventory.columns])
    for row in inventory.rows:
        writer.writerow(
            printable(cell) if isinstance(cell, str) else int(cell) if cell == int(cell) else cell
            for cell in row
        )
    return file.getvalue()


def distribution(column: Column, values: Sequence[float]) -> list[tuple[float, float, int]]:
    """Return the histogram of a column: for each range its ends and the number of values in it.

    A few different values have a range each, of equal ends. On a logarithmic scale, ranges end at
    powers of 10, or 16 for bytes, or of a smaller base if that gives too few ranges. On a linear
    scale, ranges have equal round widths.
    """
    distinct = sorted(set(values))
    few = _MOST_BARS if column.scale == "linear" else min(_MOST_BARS, max(3, len(values) // 2))
    if len(distinct) <= few:
        return [(value, value, values.count(value)) for value in distinct]
    low, high = distinct[0], distinct[-1]
    if column.scale == "log" and low > 0:
        for base in (16.0, 4.0, 2.0) if column.kind == "bytes" else (10.0, 2.0):
            first, last = (math.floor(math.log(end, base) + 1e-9) for end in (low, high))
            edges = [base**power for power in range(first, last + 2)]
            if last - first >= _FEW_RANGES:
                break
    else:
        power = 10.0 ** math.floor(math.log10((high - low) / _MOST_BARS))
        width = next(n * power for n in (1, 2, 5, 10) if n * power * _MOST_BARS >= high - low)
        first, last = math.floor(low / width), math.floor(high / width)
        edges = [float(f"{number * width:.12g}") for number in range(first, last + 2)]
    # The first and last range also have the values that rounding has left outside of them.
    counts = Counter(bisect_right(edges[1:-1], value) for value in values)
    return [(*ends, counts[place]) for place, ends in enumerate(pairwise(edges))]


def _histogram(inventory: Inventory, place: int) -> RenderableType:
    column = inventory.columns[place]
    write = in_bytes if column.kind == "bytes" else amount

    def ends(of: tuple[float, float, int]) -> Entry:
        low, high, _ = of
        if low < high:
            return Entry(f"{write(low)} to {write(high)}")
        return Entry(_written(low, column) if column.kind == "number" else write(low))

    unit = f" ({column.unit})" if column.unit else ""
    columns = (numbers("", ends), numbers(f"{inventory.part}s", 2), bar("", 2))
    rows = distribution(column, [float(row[place]) for row in inventory.rows])
    return as_terminal(table_of(rows, *columns), f"\n{column.heading}{unit}")


def _largest(inventory: Inventory, sort: str, most: int) -> RenderableType:
    """Render the `most` largest parts by a column; a text column has bars of another one."""
    place = inventory.place(sort)
    is_text = inventory.columns[place].kind == "text"
    by = inventory.place(inventory.sort) if is_text else place
    rows = sorted(inventory.rows, key=lambda row: row[place], reverse=not is_text)[:most]

    def column(place: int) -> TableColumn:
        of = inventory.columns[place]
        kind = text if of.kind == "text" else numbers
        return kind(of.heading, lambda row: _written(row[place], of))

    shown = [
        column(place) for place, of in enumerate(inventory.columns) if of.is_shown or place == by
    ]
    parts = plural(len(inventory.rows), inventory.part)
    title = f"{len(rows):,} of {parts}, by {inventory.columns[place].heading}"
    bars = bar(inventory.columns[by].heading, lambda row: Entry("", float(row[by])))
    return as_terminal(table_of(rows, *shown, bars), title)


def _written(value: Cell, column: Column) -> str:
    """Write a value of an inventory in the way of its column: text, bytes or number."""
    if isinstance(value, str):
        return printable(value)
    if column.kind == "bytes":
        return in_bytes(value)
    return number(float(value), trim=True) if column.kind == "number" else f"{value:,}"
