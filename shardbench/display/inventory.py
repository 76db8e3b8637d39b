"""The output of `shardbench workload`: a workload's contents, or an imported workload."""

import csv
import io
from collections.abc import Iterator, Sequence

from rich.bar import Bar as RichBar
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from harness.contract.abilities.inventory import (
    Bar,
    Cell,
    Column,
    Imported,
    Inventory,
    distribution,
)
from harness.model.errors import printable
from reports.core.formatting import amount, in_bytes, number
from reports.core.table import Entry, TableColumn, bar, numbers, table_of, text
from reports.core.terminal import as_terminal
from shardbench.display.explanation import bullets

_WIDTH, _BESIDE = 39, 2


def shown(held: Inventory, sort: str, most: int) -> RenderableType:
    """Render an inventory: a summary, histograms, and the `most` largest parts with bars."""
    return Group(
        *_heading(held),
        *(Text(f"{note}.", style="dim") for note in held.notes),
        "",
        *_distributions(held),
        _largest(held, sort, most),
    )


def outcome(imported: Imported, sort: str) -> RenderableType:
    """Render an imported workload, with the assumed, changed and omitted values."""
    held = imported.inventory
    return Group(
        *_heading(held),
        "",
        _largest(held, sort, 5),
        *_said("Assumed, since the source does not say it", imported.assumed),
        *_said("Changed", imported.changed),
        *_said("Left out", imported.left_out),
    )


def to_csv(inventory: Inventory) -> str:
    """Return all rows as CSV, with unprintable characters of texts escaped."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in inventory.columns])
    for row in inventory.rows:
        writer.writerow(
            printable(cell) if isinstance(cell, str) else int(cell) if cell == int(cell) else cell
            for cell in row
        )
    return text.getvalue()


def _heading(held: Inventory) -> tuple[Text, Text]:
    return Text(held.title, style="bold"), Text(held.summary)


def _said(title: str, sentences: Sequence[str]) -> Iterator[RenderableType]:
    if sentences:
        yield from ("", Text(f"{title}:", style="yellow"))
        yield bullets(f"{sentence}." for sentence in sentences)


def _distributions(held: Inventory) -> Iterator[RenderableType]:
    """Yield the histograms, two per row."""
    drawn = [_histogram(held, column) for column in held.drawn]
    for place in range(0, len(drawn), 2):
        pair = RichTable.grid(padding=(0, _BESIDE, 0, 0))
        for _ in drawn[place : place + 2]:
            pair.add_column(width=_WIDTH)
        pair.add_row(*drawn[place : place + 2])
        yield from (pair, "")


def _histogram(held: Inventory, column: Column) -> RichTable:
    bars = distribution(held, column)
    table = RichTable.grid(padding=(0, 1, 0, 0))
    table.title, table.title_justify, table.title_style = _with_unit(column), "left", "bold"
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    most = max((found.parts for found in bars), default=1)
    for found in bars:
        drawn = RichBar(most, 0, found.parts, color="blue")
        table.add_row(_range_of(found, column), f"{found.parts:,}", drawn)
    return table


def _largest(held: Inventory, sort: str, most: int) -> RenderableType:
    rows = held.largest(sort, most)
    by = held.place_of_bars(sort)
    shown = [place for place, column in enumerate(held.columns) if column.is_shown or place == by]

    def column(place: int) -> TableColumn:
        of = held.columns[place]
        kind = text if of.kind == "text" else numbers
        return kind(of.heading, lambda row: _text_of(row[place], of))

    title = "" if by == held.place(sort) else held.columns[by].heading
    bars = bar(title, lambda row: Entry("", float(row[by])))
    table = table_of(rows, *map(column, shown), bars)
    return as_terminal(table, _largest_title(held, sort, len(rows)))


def _with_unit(column: Column) -> str:
    """Return the heading of a column, with its unit in brackets if it has one."""
    return f"{column.heading} ({column.unit})" if column.unit else column.heading


def _text_of(value: Cell, column: Column) -> str:
    """Write a value of an inventory in the way of its column: text, bytes or number."""
    if isinstance(value, str):
        return printable(value)
    if column.kind == "bytes":
        return in_bytes(value)
    return number(float(value), trim=True) if column.kind == "number" else f"{value:,}"


def _range_of(bar: Bar, column: Column) -> str:
    """Write the range of values that a bar of a distribution counts."""
    write = in_bytes if column.kind == "bytes" else amount
    if bar.low == bar.high:
        return write(bar.low) if column.kind != "number" else number(bar.low, trim=True)
    return f"{write(bar.low)} to {write(bar.high)}"


def _largest_title(inventory: Inventory, sort: str, shown: int) -> str:
    """Return a title like `The 10 largest tables of 60 by bytes`, with 10 rows `shown` of 60."""
    column = inventory.columns[inventory.place(sort)]
    order = "first" if column.kind == "text" else "largest"
    total = len(inventory.rows)
    if total == 1:
        return f"The one {inventory.part}"
    if shown == 1:
        return f"The {order} {inventory.part} of {total:,} by {column.heading}"
    if shown >= total:
        return f"All {total:,} {inventory.part}s by {column.heading}"
    return f"The {shown:,} {order} {inventory.part}s of {total:,} by {column.heading}"
