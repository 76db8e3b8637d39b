"""Inventories of a workload, part by part, and the spread of a figure over the parts."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from harness.model.errors import RegistryError, unknown

Kind = Literal["text", "count", "number", "bytes"]
Scale = Literal["", "linear", "log"]
Cell = str | int | float

_MOST_BARS = 8
_FEW_STEPS = 3


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an inventory: one figure or text of each part.

    Attributes:
        name: its name in files and options.
        title: its heading in a table; `name` where it is empty.
        unit: of its numbers, in words, such as `indices a sample`.
        kind: `text`, `count` (whole), `number` or `bytes`.
        scale: how its distribution over the parts is drawn, empty where it is not.
        is_shown: whether it stands in the terminal's table; it is in files in any case.
    """

    name: str
    title: str = ""
    unit: str = ""
    kind: Kind = "text"
    scale: Scale = ""
    is_shown: bool = True

    @property
    def heading(self) -> str:
        """What stands above it."""
        return self.title or self.name


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a workload holds: a row for each part, in the order of `columns`.

    Attributes:
        title: the subject of the inventory.
        part: the word for one part, such as `table`.
        rows: a cell for each column; numbers are finite and at least 0.
        summary: all parts together in one line.
        sort: the column by which parts are large or small.
        notes: what else a reader must know, a sentence each without a full stop.
    """

    title: str
    part: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    summary: str
    sort: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if {len(row) for row in self.rows} - {len(names)} or self.sort not in names:
            raise RegistryError(
                "An inventory must have a cell in each row for each of its columns, which are "
                f"{', '.join(names)}, and be sorted by one of them."
            )

    def place(self, name: str) -> int:
        """Return where a column stands; raises UsageError with close names."""
        names = [column.name for column in self.columns]
        if name not in names:
            raise unknown("column", name, names)
        return names.index(name)

    def place_of_bars(self, sort: str) -> int:
        """Return the place of the figure that is drawn of the rows that `largest` returns."""
        place = self.place(sort)
        return self.place(self.sort) if self.columns[place].kind == "text" else place

    def largest(self, sort: str, most: int) -> tuple[tuple[Cell, ...], ...]:
        """Return the rows that are largest in a column, or first in one of texts; see `place`."""
        place = self.place(sort)
        is_text = self.columns[place].kind == "text"
        ordered = sorted(self.rows, key=lambda row: row[place], reverse=not is_text)
        return tuple(ordered[:most])

    @property
    def drawn(self) -> tuple[Column, ...]:
        """The columns that are drawn as distributions."""
        return tuple(column for column in self.columns if column.scale)


@dataclass(frozen=True, slots=True)
class Bar:
    """How many parts have a value from `low` up to but not at `high`, or `low` where both agree."""

    low: float
    high: float
    parts: int


def distribution(inventory: Inventory, column: Column) -> tuple[Bar, ...]:
    """Return the distribution of a column: a bar for each value, or for ranges of many values.

    Ranges are of powers (10, or 16 for bytes; less where that makes few) or of equal round widths.
    On a logarithmic scale, values count as few only where parts share them.
    """
    place = inventory.place(column.name)
    values = [float(row[place]) for row in inventory.rows]
    distinct = sorted(set(values))
    few = _MOST_BARS if column.scale == "linear" else min(_MOST_BARS, max(3, len(values) // 2))
    if len(distinct) <= few:
        return tuple(Bar(value, value, values.count(value)) for value in distinct)
    edges = _edges(distinct, column)
    ranges = list(pairwise(edges))
    # Rounding may have put the first edge above the least value.
    parts = Counter(min(max(bisect_right(edges, value), 1), len(ranges)) for value in values)
    return tuple(Bar(*ends, parts[place]) for place, ends in enumerate(ranges, start=1))


def _edges(distinct: list[float], column: Column) -> list[float]:
    low, high = distinct[0], distinct[-1]
    if column.scale != "log" or low <= 0:
        return _equal(low, high)
    steps = (16.0, 4.0, 2.0) if column.kind == "bytes" else (10.0, 10**0.5, 2.0)
    for step in steps:
        first = math.floor(math.log(low, step) + 1e-9)
        last = math.floor(math.log(high, step) + 1e-9) + 1
        if last - first > _FEW_STEPS or step == steps[-1]:
            break
    edges = [_round(step**power) for power in range(first, last + 1)]
    if edges[-1] <= high:  # rounding has put the last edge below it
        edges.append(_round(step ** (last + 1)))
    return edges


def _round(edge: float) -> float:
    """Return 3 for half a power of ten, and the nearest whole number where it is close."""
    if edge >= 1 and abs(edge - round(edge)) < 1e-6 * edge:
        return float(round(edge))
    return float(f"{edge:.1g}") if edge > 1 else float(f"{edge:.12g}")


def _equal(low: float, high: float) -> list[float]:
    exact = (high - low) / _MOST_BARS
    power = 10.0 ** math.floor(math.log10(exact))
    width = next(step * power for step in (1, 2, 5, 10) if step * power >= exact * 0.999)
    first = math.floor(low / width)
    last = math.floor(high / width) + 1
    return [float(f"{number * width:.12g}") for number in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """The request to import a workload from a file of another program.

    Attributes:
        source: a file, or `module:function`.
        target: the file for the workload; its suffix decides the format.
        format: one of the formats of `Importing`, empty to go by the source's name.
        columns: which column of the source holds a field, by field.
        assumed: the value of a field that the source lacks, by field.
    """

    source: str
    target: str
    format: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    assumed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Imported:
    """A workload that was read from elsewhere.

    `content` is the content of its file. `assumed` names the values that the source lacked,
    `changed` the values that differ from the source, and `left_out` the missing ones; a sentence
    each without a full stop.
    """

    content: bytes
    inventory: Inventory
    assumed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Importing:
    """How a family reads files of other programs.

    Attributes:
        formats: the formats that it reads, by name, each with a short description.
        suffixes: of the files that it writes, which are workloads of it.
        fields: what `ImportRequest.columns` and `.assumed` may name.
        read: does it; raises UsageError where the source cannot be used.
    """

    formats: Mapping[str, str]
    suffixes: tuple[str, ...]
    fields: tuple[str, ...]
    read: Callable[[ImportRequest], Imported]
