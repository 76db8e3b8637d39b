"""The table that terminals, Markdown and HTML pages share, and its form in Markdown."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from reports.core.escaping import code_in_table, markdown
from reports.core.formatting import MISSING, interval, number

if TYPE_CHECKING:
    import pandas as pd

Tone = Literal["", "bad", "good", "warn", "soft", "plain"]
Value = Callable[[Any], Any] | str | int
"""A column's value in a row: a key, a place or an attribute of the row, or a function of it."""

_TONES: dict[str, Tone] = {
    **dict.fromkeys(
        ("different decision", "failed", "over budget", "missed", "projected to be missed"), "bad"
    ),
    **dict.fromkeys(("faster", "met"), "good"),
    "not installed": "warn",
    **dict.fromkeys(("not applicable", "reference"), "soft"),
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
    """A heading, and a function that makes the entry of a row.

    Kinds: `code` has names as written on the command line, `number` is sorted by value, `bar` is
    drawn on terminals only. `least` is the minimum width of a column of long words there.
    """

    title: str
    kind: Literal["text", "code", "number", "bar"]
    entry: Callable[[Any], Entry]
    least: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a table and its rows, each with an entry per column."""

    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Entry, ...], ...]


def table_of(rows: Iterable[Any], *columns: TableColumn) -> Table:
    """Return a table with a row for each of `rows`."""
    return Table(columns, tuple(tuple(column.entry(row) for column in columns) for row in rows))


def pivoted(title: str, frame: "pd.DataFrame", write: Callable[[float], str] = number) -> Table:
    """Return a frame of numbers as a table; the first column, `title`, has the frame's index."""
    rows = zip(map(str, frame.index), *(frame[name].astype(float) for name in frame), strict=True)
    columns = (numbers(str(name), place, write) for place, name in enumerate(frame, start=1))
    return table_of(rows, code(title, 0), *columns)


def text(title: str, value: Value = "", least: int = 0) -> TableColumn:
    """Return a column of texts; without `value` it shows the row's value named `title`."""
    return TableColumn(title, "text", _entries(title if value == "" else value), least)


def code(title: str, value: Value = "", least: int = 0) -> TableColumn:
    """Return a column of names as they are written on the command line."""
    return TableColumn(title, "code", _entries(title if value == "" else value), least)


def numbers(title: str, value: Value = "", write: Callable[[float], str] = number) -> TableColumn:
    """Return a column of numbers, written by `write` and sorted by value."""
    return TableColumn(title, "number", _entries(title if value == "" else value, write))


def bar(title: str, value: Value) -> TableColumn:
    """Return a column of bars; a terminal that is too narrow leaves it out."""
    return TableColumn(title, "bar", _entries(value))


def interval_column(title: str, low: str, high: str) -> TableColumn:
    """Return a column of intervals, sorted by their lower ends."""
    return numbers(title, lambda row: Entry(interval(row[low], row[high]), row[low]))


def outcome_column(title: str = "outcome", value: str = "outcome") -> TableColumn:
    """Return a column of outcomes of cells or goals, each with its tone (`good`, `bad`, ...)."""
    return text(title, lambda row: outcome_entry(row[value] or MISSING))


def outcome_entry(outcome: str) -> Entry:
    """Return the entry of a cell's or goal's outcome, with its tone (`good`, `bad`, ...)."""
    return Entry(outcome, tone=_TONES.get(outcome, ""))


def _entries(value: Value, write: Callable[[float], str] = number) -> Callable[[Any], Entry]:
    def entry(row: Any) -> Entry:
        if callable(value):
            held = value(row)
        elif isinstance(value, str) and not isinstance(row, Mapping):
            held = getattr(row, value)
        else:
            held = row[value]
        if isinstance(held, Entry):
            return held
        if isinstance(held, str) or held is None:
            return Entry(MISSING if held is None else held)
        return Entry(write(held), float(held))

    return entry


def as_markdown(table: Table) -> str:
    """Return a table in Markdown, with every field escaped."""
    kinds = [column.kind for column in table.columns]
    rules = ("---:" if kind == "number" else "---" for kind in kinds)
    lines = [map(markdown, (column.title for column in table.columns)), rules]
    lines += [map(_field, row, kinds) for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _field(entry: Entry, kind: str) -> str:
    if entry.link:
        return f"[{markdown(entry.text)}]({entry.link})"
    return code_in_table(entry.text) if kind == "code" and entry.text else markdown(entry.text)
