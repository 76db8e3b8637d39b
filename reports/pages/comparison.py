"""A comparison of two results files as files: one HTML page, Markdown, a figure, CSV."""

from pathlib import Path
from typing import Any

from harness.model.errors import printable
from reports.comparing.changes import Comparison
from reports.escaping import csv
from reports.figures.ratios import draw_ratios
from reports.findings.changes import sentences
from reports.formatting import plural
from reports.frames import read_results
from reports.pages.chapters import Captioned
from reports.pages.folder import GENERATOR, write_folder
from reports.pages.templating import templates
from reports.tables.changes import cells_table, counters_table, qualities_table, settings_table


def write_comparison(a: Path, b: Path, out: Path) -> Path:
    """Write what changed from the results file `a` to `b` into a folder; return its page.

    `out` gets index.html, report.md, figures/ratios.svg|png where there are ratios, and data/*.csv.
    Like a report it replaces an earlier one, and touches nothing unless it could be made whole.

    Raises:
        UsageError: a file is unreadable, or `out` cannot be written or holds something else.
    """
    changes = Comparison(read_results(a), read_results(b))
    return write_folder(out, lambda folder: _write(changes, _names(a, b), folder))


def _names(a: Path, b: Path) -> tuple[str, str]:
    """What the files are called: by name, or by path where both have one name."""
    if a.name != b.name:
        return printable(a.name), printable(b.name)
    return printable(str(a)), printable(str(b))


def _write(changes: Comparison, names: tuple[str, str], folder: Path) -> None:
    drawings = list(draw_ratios(changes))
    files = [
        (letter, name, plural(len(results.cells), "cell"))
        for letter, name, results in zip("AB", names, (changes.a, changes.b), strict=True)
    ]
    sections = _sections(changes)
    context: dict[str, Any] = {
        "generator": GENERATOR,
        "files": files,
        "findings": sentences(changes),
        "drawings": drawings,
        "sections": sections,
        "settings": settings_table(changes),
    }
    (folder / "data").mkdir()
    for _, one in sections:
        if one.data is not None:
            (folder / "data" / f"{one.name}.csv").write_text(csv(one.data), encoding="utf-8")
    for drawing in drawings:
        (folder / "figures").mkdir()
        (folder / "figures" / f"{drawing.slug}.svg").write_text(drawing.svg, encoding="utf-8")
        (folder / "figures" / f"{drawing.slug}.png").write_bytes(drawing.png)
        (folder / "data" / f"{drawing.slug}.csv").write_text(csv(drawing.data), encoding="utf-8")
    for template, name in (("comparison.md", "report.md"), ("comparison.html", "index.html")):
        text = templates().get_template(f"{template}.j2").render(context)
        (folder / name).write_text(text, encoding="utf-8")


def _sections(changes: Comparison) -> list[tuple[str, Captioned]]:
    """Return a title for each table; one without rows is left out, but for that of the cells."""
    found = [
        (
            "Counters",
            Captioned(
                counters_table(changes),
                "Every counter that differs: a count of work done, the same in every run.",
                "counters",
                changes.counters,
            ),
        ),
        (
            "Qualities",
            Captioned(
                qualities_table(changes),
                "Every figure of a decision that differs.",
                "qualities",
                changes.qualities,
            ),
        ),
    ]
    cells = Captioned(
        cells_table(changes),
        "Every cell of either file. Times in seconds are there where one machine measured both, "
        "and are no more than information: another day is another load.",
        "cells",
        changes.cells,
    )
    return [*((title, one) for title, one in found if one.table.rows), ("All cells", cells)]
