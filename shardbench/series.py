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
from reports.series.view import View
from shardbench.options import write


def find_library(registry: Registry, name: str, kind: Kind) -> tuple[Family[Any, Any], Series]:
    """Return a library's family and declaration; UsageError, with similar names, if unknown."""
    found = libraries(registry, kind)
    if name not in found:
        raise unknown(f"library with {kind} to measure,", name, found)
    return found[name]


def shown_tables(view: View) -> list[RenderableType]:
    """Return the non-empty tables of a series for a terminal."""
    from reports.series.page import tables

    found = tables(view).items()
    return [as_terminal(table, heading) for heading, table in found if table.rows]


def write_series(views: Sequence[View], folder: Path) -> None:
    """Write the figure, the points as CSV and the pages of a series into a folder."""
    from reports.series.figure import draw  # slow to import
    from reports.series.page import data, html_page, markdown_page

    command = shlex.join(["shardbench", *sys.argv[1:]])
    table = data(views)
    drawing = draw(views, table)
    write(folder / "history.csv", csv(table))
    if drawing is not None:
        write(folder / "history.svg", drawing.svg)
        write(folder / "history.png", drawing.png)
    figure = "history.svg" if drawing is not None else ""
    write(folder / "history.md", markdown_page(views, command, figure))
    if views[0].kind == "commits":
        write(folder / "index.html", html_page(views[0], drawing, table, command))
