"""Tables for a terminal, drawn with rich."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.bar import Bar
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from reports.core.formatting import MISSING
from reports.core.table import Entry, Table, TableColumn

_STYLES = {"bad": "red", "good": "green", "warn": "yellow", "soft": "dim", "plain": "cyan"}
_BETWEEN = 2
_LEAST_BAR, _MOST_BAR = 8, 30
_SHORTEST_NAME, _LONGEST_NAME = 10, 28
_NUMBER = re.compile(r"(?P<whole>[-—]|\D*\d[\d,]*)(?P<rest>.*)", re.DOTALL)


def as_terminal(table: Table, title: str = "") -> RenderableType:
    """Return a table as an object that rich prints."""
    entries = list(zip(*table.rows, strict=True)) or [()] * len(table.columns)
    columns = [_Column(*pair) for pair in zip(table.columns, entries, strict=True)]
    return _Fitted([column.by_the_point() for column in columns], title)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a table with the entries of all rows."""

    of: TableColumn
    entries: Sequence[Entry]

    def by_the_point(self) -> "_Column":
        """Return the column with its numbers padded so that their decimal points are aligned."""
        if self.of.kind != "number":
            return self
        texts = aligned([entry.text for entry in self.entries], self.heading)
        pairs = zip(self.entries, texts, strict=True)
        return _Column(self.of, [replace(entry, text=text) for entry, text in pairs])

    @property
    def heading(self) -> int:
        """The width of the heading."""
        return max(map(len, self.of.title.split("\n")))

    @property
    def natural(self) -> int:
        """The width without wrapping; 0 for bars."""
        lengths = (_text(entry).cell_len for entry in self.entries)
        return 0 if self.of.kind == "bar" else max(self.heading, *lengths, 0)

    @property
    def least(self) -> int:
        """The minimum width: the longest number, or the longest word up to a limit."""
        if self.of.kind in ("bar", "number"):
            return self.natural
        texts = [self.of.title, *(entry.text for entry in self.entries)]
        longest = max((len(word) for text in texts for word in text.split()), default=0)
        return min(longest, self.of.least or _SHORTEST_NAME)


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A table fitted to the terminal's width: texts are wrapped, numbers are never cut.

    Columns that do not fit are printed below, next to a copy of the first column. In a table with
    bars, long names are cut, and the bars get the remaining width.
    """

    columns: Sequence[_Column]
    title: str

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        title = self.title
        for columns in self._groups(options.max_width):
            yield _drawn(columns, title, options.max_width)
            title = " "

    def _groups(self, most: int) -> Iterator[list[_Column]]:
        """Yield groups of columns that fit into `most` characters, each with the first column."""
        first, *others = self.columns
        group, taken = [first], first.least
        for column in others:
            if len(group) > 1 and taken + _BETWEEN + column.least > most:
                yield group
                group, taken = [first], first.least
            group.append(column)
            taken += _BETWEEN + column.least
        yield group


def _drawn(columns: Sequence[_Column], title: str, most: int) -> RichTable:
    drawn = RichTable(
        title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    has_bars = any(column.of.kind == "bar" for column in columns)
    names = _width_of_names(columns, most) if has_bars else 0
    taken = sum(min(c.natural, names) if _is_name(c) else c.natural for c in columns)
    room = min(_MOST_BAR, most - taken - _BETWEEN * (len(columns) - 1))
    shown: list[list[RenderableType]] = []
    for column in columns:
        kind = column.of.kind
        if kind == "bar" and room < _LEAST_BAR:
            continue
        shown.append(_bars(column, room) if kind == "bar" else [*map(_text, column.entries)])
        drawn.add_column(
            column.of.title,
            justify="right" if kind == "number" else "left",
            no_wrap=kind == "number" or has_bars,
            overflow="ellipsis" if has_bars else "fold",
            min_width=None if has_bars else column.least or None,
            width=min(column.natural, names) if has_bars and _is_name(column) else None,
        )
    for row in zip(*shown, strict=True):
        drawn.add_row(*row)
    return drawn


def _is_name(column: _Column) -> bool:
    return column.of.kind in ("text", "code")


def _width_of_names(columns: Sequence[_Column], most: int) -> int:
    """Return the width of names beside bars: a share of what the numbers leave, within limits."""
    taken = sum(column.natural for column in columns if not _is_name(column))
    share = most - taken - _BETWEEN * (len(columns) - 1)
    share //= max(1, sum(map(_is_name, columns)))
    return max(_SHORTEST_NAME, min(_LONGEST_NAME, share))


def _bars(column: _Column, room: int) -> list[RenderableType]:
    """Return a bar for each entry with a number, the longest `room` wide, and the others' text."""
    longest = max((entry.sort for entry in column.entries if entry.sort == entry.sort), default=0)
    return [
        Bar(longest or 1.0, 0, entry.sort, width=room, color="blue")
        if entry.sort == entry.sort
        else _text(entry)
        for entry in column.entries
    ]


def _text(entry: Entry) -> Text:
    shown = entry.text.replace(MISSING, "-") if entry.text.strip() == MISSING else entry.text
    return Text(shown, style=_STYLES.get(entry.tone, ""), justify="left")


def aligned(texts: Sequence[str], width: int = 0) -> list[str]:
    """Pad texts to one length, at least `width`, with the points of their first numbers aligned.

    A lone dash is aligned with whole numbers, any other text without a number to the right.
    """
    matches = [_NUMBER.fullmatch(text) for text in texts]
    after = max((len(match["rest"]) for match in matches if match), default=0)
    padded = [
        match["whole"] + match["rest"].ljust(after) if match else text
        for text, match in zip(texts, matches, strict=True)
    ]
    width = max([width, *map(len, padded)])
    return [text.rjust(width) for text in padded]
