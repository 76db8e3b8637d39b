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


@dataclass(frozen=True, slots=True)
class _Column:
    """A column with its entries as texts, its width without wrapping, and its minimum width."""

    of: TableColumn
    entries: Sequence[Entry]
    texts: Sequence[Text]
    natural: int
    least: int


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A table fitted to the terminal's width: texts are wrapped, numbers are never cut.

    Columns that do not fit are printed below, next to a copy of the first column. Bars get the
    remaining width, or are left out.
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


def as_terminal(table: Table, title: str = "") -> RenderableType:
    """Return a table as an object that rich prints."""
    rows = list(zip(*table.rows, strict=True)) or [()] * len(table.columns)
    has_bars = any(column.kind == "bar" for column in table.columns)
    columns = [_column(*pair, has_bars) for pair in zip(table.columns, rows, strict=True)]
    return _Fitted(columns, title)


def _column(of: TableColumn, entries: Sequence[Entry], has_bars: bool) -> _Column:
    """Return a column with aligned numbers; beside bars, long names are cut."""
    heading = max(map(len, of.title.split("\n")))
    if of.kind == "number":
        aligned_texts = aligned([entry.text for entry in entries], heading)
        pairs = zip(entries, aligned_texts, strict=True)
        entries = [replace(entry, text=text) for entry, text in pairs]
    texts = [_text(entry) for entry in entries]
    if has_bars and of.kind in ("text", "code"):
        for text in texts:
            text.truncate(_LONGEST_NAME, overflow="ellipsis")
    natural = max([heading, *(text.cell_len for text in texts)])
    if of.kind == "bar":
        return _Column(of, entries, texts, 0, 0)
    if of.kind == "number":
        return _Column(of, entries, texts, natural, natural)
    words = (word for text in (of.title, *map(str, texts)) for word in text.split())
    longest = max(map(len, words), default=0)
    return _Column(of, entries, texts, natural, min(longest, of.least or _SHORTEST_NAME))


def _drawn(columns: Sequence[_Column], title: str, most: int) -> RichTable:
    drawn = RichTable(
        title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    taken = sum(column.natural for column in columns) + _BETWEEN * (len(columns) - 1)
    room = min(_MOST_BAR, most - taken)
    shown: list[Sequence[RenderableType]] = []
    for column in columns:
        kind = column.of.kind
        if kind == "bar" and room < _LEAST_BAR:
            continue
        shown.append(_bars(column, room) if kind == "bar" else column.texts)
        drawn.add_column(
            column.of.title,
            justify="right" if kind == "number" else "left",
            no_wrap=kind == "number",
            overflow="fold",
            min_width=column.least or None,
        )
    for row in zip(*shown, strict=True):
        drawn.add_row(*row)
    return drawn


def _bars(column: _Column, room: int) -> list[RenderableType]:
    """Return a bar for each entry with a number, the longest `room` wide, and the others' text."""
    longest = max((entry.sort for entry in column.entries if entry.sort == entry.sort), default=0)
    return [
        Bar(longest or 1.0, 0, entry.sort, width=room, color="blue")
        if entry.sort == entry.sort
        else text
        for entry, text in zip(column.entries, column.texts, strict=True)
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
