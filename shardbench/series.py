"""Functions that `shardbench releases` and `shardbench history` share."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from harness.contract import Family, Series
from harness.contract.registry import Registry
from harness.model.errors import unknown
from harness.series.points import Kind, libraries
from reports.core.escaping import csv
from reports.core.terminal import as_terminal
from reports.series import View, tables
from shardbench.options import write


def find_library(registry: Registry, name: str, kind: Kind) -> tuple[Family[Any, Any], Series]:
    """Return a library's family and declaration; UsageError, with similar names, if unknown."""
    found = libraries(registry, kind)
    if name not in found:
        raise unknown(f"library with {kind} to measure,", name, found)
    return found[name]


def shown_tables(view: View) -> list[RenderableType]:
    """Return the non-empty tables of a series for a terminal."""
    found = tables(view).items()
    return [as_terminal(table, heading) for heading, table in found if table.rows]


def write_series(views: Sequence[View], folder: Path) -> None:
    """Write the figure, the points as CSV and the page of a series into a folder."""
    from reports.series_page import data, draw, page  # slow to import

    table = data(views)
    drawing = draw(views, table)
    write(folder / "history.csv", csv(table))
    if drawing is not None:
        write(folder / "history.svg", drawing.svg)
    command = shlex.join(["shardbench", *sys.argv[1:]])
    write(folder / "index.html", page(views, table, drawing, command).html())
