"""The output of `shardbench workload`: a workload's contents, or an imported workload."""

import csv
import io
from collections.abc import Iterator, Sequence

from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from harness.contract.workloads import Cell, Column, Imported, Inventory, distribution
from harness.model.errors import printable
from reports.core.formatting import amount, in_bytes, number
from reports.core.table import Entry, TableColumn, bar, numbers, table_of, text
from reports.core.terminal import as_terminal
from shardbench.display import listed

_WIDTH, _BETWEEN = 39, 2


def shown(inventory: Inventory, sort: str, most: int) -> RenderableType:
    """Render an inventory: a summary, histograms, and the `most` largest parts with bars."""
    histograms = RichTable.grid(padding=(0, _BETWEEN, 1, 0))  # two in a row
    histograms.add_column(width=_WIDTH)
    histograms.add_column(width=_WIDTH)
    drawn = [_histogram(inventory, column) for column in inventory.drawn]
    for place in range(0, len(drawn), 2):
        histograms.add_row(*drawn[place : place + 2])
    return Group(
        Text(inventory.title, style="bold"),
        Text(inventory.summary),
        *(Text(f"{note}.", style="dim") for note in inventory.notes),
        "",
        *[histograms] * bool(drawn),
        _largest(inventory, sort, most),
    )


def outcome(imported: Imported, sort: str) -> RenderableType:
    """Render an imported workload, with the assumed, changed and omitted values."""

    def values(title: str, sentences: Sequence[str]) -> Iterator[RenderableType]:
        if sentences:
            yield from ("", Text(f"{title}:", style="yellow"))
            yield listed(f"{sentence}." for sentence in sentences)

    return Group(
        Text(imported.inventory.title, style="bold"),
        Text(imported.inventory.summary),
        "",
        _largest(imported.inventory, sort, 5),
        *values("Assumed, since the source does not say it", imported.assumed),
        *values("Changed", imported.changed),
        *values("Left out", imported.left_out),
    )


def to_csv(inventory: Inventory) -> str:
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


def _histogram(inventory: Inventory, column: Column) -> RichTable:
    bars = distribution(inventory, column)
    table = RichTable.grid(padding=(0, 1, 0, 0))
    table.title = f"{column.heading} ({column.unit})" if column.unit else column.heading
    table.title_justify, table.title_style = "left", "bold"
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    most = max((each.parts for each in bars), default=1)
    write = in_bytes if column.kind == "bytes" else amount
    for each in bars:
        values = f"{write(each.low)} to {write(each.high)}"
        if each.low == each.high:
            values = _written(each.low, column) if column.kind == "number" else write(each.low)
        table.add_row(values, f"{each.parts:,}", Bar(most, 0, each.parts, color="blue"))
    return table


def _largest(inventory: Inventory, sort: str, most: int) -> RenderableType:
    rows = inventory.largest(sort, most)
    by = inventory.place_of_bars(sort)

    def column(place: int) -> TableColumn:
        of = inventory.columns[place]
        kind = text if of.kind == "text" else numbers
        return kind(of.heading, lambda row: _written(row[place], of))

    shown = [
        column(place) for place, of in enumerate(inventory.columns) if of.is_shown or place == by
    ]
    title = "" if by == inventory.place(sort) else inventory.columns[by].heading
    bars = bar(title, lambda row: Entry("", float(row[by])))
    return as_terminal(table_of(rows, *shown, bars), _title(inventory, sort, len(rows)))


def _written(value: Cell, column: Column) -> str:
    """Write a value of an inventory in the way of its column: text, bytes or number."""
    if isinstance(value, str):
        return printable(value)
    if column.kind == "bytes":
        return in_bytes(value)
    return number(float(value), trim=True) if column.kind == "number" else f"{value:,}"


def _title(inventory: Inventory, sort: str, shown: int) -> str:
    """Return a title like `The 10 largest tables of 60 by bytes`, with 10 rows `shown` of 60."""
    column = inventory.columns[inventory.place(sort)]
    order = "first" if column.kind == "text" else "largest"
    total = len(inventory.rows)
    parts = inventory.part if shown == 1 else f"{inventory.part}s"
    if total == 1:
        return f"The one {parts}"
    if shown >= total:
        return f"All {total:,} {parts} by {column.heading}"
    return f"The {shown:,} {order} {parts} of {total:,} by {column.heading}"
