"""Functions that `shardbench releases` and `shardbench history` share."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract import Family, Series
from harness.contract.registry import Registry
from harness.model.errors import unknown
from harness.series.points import Kind, libraries
from reports.core.formatting import csv, plural
from reports.core.terminal import as_terminal
from reports.series import View, findings, tables
from shardbench import display
from shardbench.options import messages, write


def find_library(registry: Registry, name: str, kind: Kind) -> tuple[Family[Any, Any], Series]:
    """Return a library's family and declaration; UsageError, with similar names, if unknown."""
    known = libraries(registry, kind)
    if name not in known:
        raise unknown(f"library with {kind} to measure,", name, known)
    return known[name]


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


def show_series(views: Sequence[View], folder: Path) -> None:
    """Show the tables and the findings of a series; exit with 1 if no point ran."""
    parts: list[RenderableType] = []
    for view in views:
        parts.append(Text(view.problem, style="bold"))
        parts += [as_terminal(table, title) for title, table in tables(view).items() if table.rows]
        if view.kind == "releases":
            note = f"calls: of {view.parts[0]}; {plural(view.turns, 'turn')} of each release"
            parts.append(Text(note, style="dim"))
        parts += [*(Text(f"* {sentence}") for sentence in findings(view)), ""]
    display.show(Group(*parts))
    messages.print(f"Wrote the history to {folder}")
    if not any(view.ran for view in views):
        raise click.exceptions.Exit(1)
