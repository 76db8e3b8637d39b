"""Numbers below one another by their points."""

import re
from collections.abc import Sequence
from dataclasses import replace

from reports.core.table import Table

_NUMBER = re.compile(r"(?P<whole>[-—]|\D*\d[\d,]*)(?P<rest>.*)", re.DOTALL)


def by_the_point(table: Table) -> Table:
    """Pad a table's numbers so that their decimal points stand in one line."""
    columns = [list(entries) for entries in zip(*table.rows, strict=True)]
    for place, column in enumerate(table.columns[: len(columns)]):
        if column.kind == "number":
            heading = max(map(len, column.title.split("\n")))
            texts = aligned([entry.text for entry in columns[place]], heading)
            entries = zip(columns[place], texts, strict=True)
            columns[place] = [replace(entry, text=text) for entry, text in entries]
    return Table(table.columns, tuple(zip(*columns, strict=True)))


def aligned(texts: Sequence[str], width: int = 0) -> list[str]:
    """Return texts of one length, `width` or more: the points of their first numbers in line.

    What has no number ends where whole numbers end, or where it has to.
    """
    found = [_NUMBER.fullmatch(text) for text in texts]
    after = max((len(match["rest"]) for match in found if match), default=0)
    padded = [
        each["whole"] + each["rest"].ljust(after) if each else text
        for text, each in zip(texts, found, strict=True)
    ]
    width = max([width, *map(len, padded)])
    return [text.rjust(width) for text in padded]
