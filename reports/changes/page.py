"""The page on the changes between two results files."""

from pathlib import Path

from harness.model.errors import printable
from reports.changes.data import Changes
from reports.changes.figure import draw_ratios
from reports.changes.findings import sentences
from reports.changes.table import cells_table, counters_table, qualities_table, settings_table
from reports.core.formatting import plural
from reports.core.frames import read_results
from reports.core.page import CaptionedTable, Page, PageChapter, PageSection, write_page


def write_comparison(a: Path, b: Path, out: Path, title: str = "") -> Path:
    """Write a page on the changes from results file `a` to `b` into `out`; return its HTML's path.

    `title` replaces the page's heading. Raises UsageError if a file is unreadable, or `out` cannot
    be written, see `write_page`.
    """
    changes = Changes(read_results(a), read_results(b))
    names = (a.name, b.name) if a.name != b.name else (str(a), str(b))
    return write_page(out, lambda: _page(changes, *map(printable, (*names, title))))


def _page(changes: Changes, a: str, b: str, title: str) -> Page:
    counters = CaptionedTable(
        counters_table(changes),
        "Every counter that differs. Counters are equal in every run of the same code.",
        "counters",
        changes.counters,
    )
    qualities = CaptionedTable(
        qualities_table(changes),
        "Every quality that differs.",
        "qualities",
        changes.qualities,
    )
    cells = CaptionedTable(
        cells_table(changes),
        "Every cell of either file. Times in seconds are shown if one machine measured both. They "
        "also depend on the machine's load, so no verdict uses them.",
        "cells",
        changes.cells,
    )
    sections = {
        "Ratios": PageSection("ratios", drawings=list(draw_ratios(changes))),
        "Counters": PageSection("counters", tables=[counters] * bool(counters.table.rows)),
        "Qualities": PageSection("qualities", tables=[qualities] * bool(qualities.table.rows)),
        "All cells": PageSection("all-cells", tables=[cells]),
        "Measured with": PageSection(
            "measured-with", tables=[CaptionedTable(settings_table(changes))]
        ),
    }
    chapters = [
        PageChapter(each.slug, title, [each])
        for title, each in sections.items()
        if each.drawings or each.tables
    ]
    how = PageChapter("how", "Guide", [], template="changes_glossary.html.j2")
    return Page(
        name=f"{a} and {b}",
        heading=title or "What changed",
        lead=[
            f"`{letter}` is {name}, {plural(len(results.cells), 'cell')}"
            for letter, name, results in (("A", a, changes.a), ("B", b, changes.b))
        ],
        findings=sentences(changes),
        chapters=[*chapters, how],
    )
