"""Tables that terminals, Markdown and HTML pages share: columns, rows of entries, Markdown."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from reports.core.formatting import MISSING, code_in_table, markdown, number

Tone = Literal["", "bad", "good", "warn", "soft", "plain"]
Kind = Literal["text", "code", "number", "bar"]
Value = Callable[[Any], Any] | str | int
"""A column's value in a row: a key, a place or an attribute of the row, or a function of it."""

_TONES: dict[str, Tone] = {
    **dict.fromkeys(
        ("different decision", "failed", "over budget", "missed", "projected to be missed"), "bad"
    ),
    **dict.fromkeys(("faster", "met"), "good"),
    **dict.fromkeys(("not applicable", "reference"), "soft"),
    "slower": "bad",
    "not installed": "warn",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A field of a table: its text, the number to sort by, its tone, and the target of a link."""

    text: str
    sort: float = math.nan
    tone: Tone = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: its heading, its value in a row, and the way to write a number.

    Kinds: `code` has names as written on the command line, `number` is sorted by value, `bar` is
    drawn on terminals only. `least` is the minimum width of a column of long words there.
    """

    title: str
    kind: Kind
    value: Value
    write: Callable[[float], str] = number
    least: int = 0

    def entry(self, row: Any) -> Entry:
        """Return the entry of a row; None and NaN are written as a dash."""
        if callable(self.value):
            value = self.value(row)
        elif isinstance(self.value, str) and not isinstance(row, Mapping):
            value = getattr(row, self.value)
        else:
            value = row[self.value]
        if isinstance(value, Entry):
            return value
        if value is None or value != value:
            return Entry(MISSING)
        return Entry(value) if isinstance(value, str) else Entry(self.write(value), float(value))


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a table and its rows, each with an entry per column."""

    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Entry, ...], ...]


def table_of(rows: Iterable[Any], *columns: TableColumn) -> Table:
    """Return a table with a row for each of `rows`."""
    return Table(columns, tuple(tuple(column.entry(row) for column in columns) for row in rows))


def text(title: str, value: Value = "", least: int = 0) -> TableColumn:
    """Return a column of texts; without `value` it shows the row's value named `title`."""
    return TableColumn(title, "text", title if value == "" else value, least=least)


def code(title: str, value: Value = "", least: int = 0) -> TableColumn:
    """Return a column of names as they are written on the command line."""
    return TableColumn(title, "code", title if value == "" else value, least=least)


def numbers(title: str, value: Value = "", write: Callable[[float], str] = number) -> TableColumn:
    """Return a column of numbers, written by `write` and sorted by value."""
    return TableColumn(title, "number", title if value == "" else value, write)


def bar(title: str, value: Value) -> TableColumn:
    """Return a column of bars; a terminal that is too narrow leaves it out."""
    return TableColumn(title, "bar", value)


def outcome_entry(outcome: str, text: str = "") -> Entry:
    """Return the entry of a cell's or goal's outcome, written as `text`, with its tone."""
    return Entry(text or outcome, tone=_TONES.get(outcome, ""))


def as_markdown(table: Table) -> str:
    """Return a table in Markdown, with every field escaped."""
    kinds = [column.kind for column in table.columns]
    rules = ("---:" if kind == "number" else "---" for kind in kinds)
    lines = [map(markdown, (column.title for column in table.columns)), rules]
    lines += [map(_field, row, kinds) for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _field(entry: Entry, kind: Kind) -> str:
    if entry.link:
        return f"[{markdown(entry.text)}]({entry.link})"
    return code_in_table(entry.text) if kind == "code" and entry.text else markdown(entry.text)
