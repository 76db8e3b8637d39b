"""The report as files: one HTML page that stands alone, Markdown, figures and their data."""

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from harness.measuring.verdict import CONFIDENCE
from harness.model.errors import printable
from reports.escaping import csv
from reports.findings.report import findings
from reports.formatting import plural
from reports.frames import Results, read_results
from reports.pages.chapters import Chapter, chapter
from reports.pages.folder import GENERATOR, write_folder
from reports.pages.templating import templates
from reports.tables.provenance import environment_table, sources_table
from reports.views.family import environments, families


def write_report(results: Path, out: Path, profiles: Path | None = None) -> Path:
    """Write the report of a results file into the folder `out`; return the path of its page.

    `out` gets index.html, report.md, figures/*.svg|png, data/*.csv, and flames/*.html: what the
    folder `profiles` holds about the steps of a ladder. An earlier report there is replaced, other
    files stay. Nothing is touched unless the whole report could be made.

    Raises:
        UsageError: the results are unreadable, or `out` cannot be written or holds files of these
            names that are no report.
    """
    held = read_results(results)
    return write_folder(out, lambda folder: _write(held, results.name, folder, profiles))


def _write(results: Results, name: str, folder: Path, profiles: Path | None) -> None:
    chapters = [chapter(family, results, profiles) for family in families(results)]
    context = {
        "generator": GENERATOR,
        "file": printable(name),
        "overview": _overview(results, chapters),
        "findings": findings(results),
        "chapters": chapters,
        "environment": environment_table(results),
        "sources": [(c.family, sources_table(c.family)) for c in chapters],
        "notes": results.notes,
        "confidence": f"{100 * CONFIDENCE:.0f}",
    }
    for kind in ("figures", "data"):
        (folder / kind).mkdir()
    for one in chapters:
        for section in one.sections:
            for drawing in section.drawings:
                path = folder / "figures" / drawing.slug
                path.with_suffix(".svg").write_text(drawing.svg, encoding="utf-8")
                path.with_suffix(".png").write_bytes(drawing.png)
    for slug, data in _data(results, chapters):
        (folder / "data" / f"{slug}.csv").write_text(csv(data), encoding="utf-8")
    pages = {step.name: step.page for one in chapters for step in one.steps if step.page}
    if pages:
        (folder / "flames").mkdir()
    for step, page in pages.items():
        (folder / "flames" / step).write_bytes(page)
    for template in ("report.md", "index.html"):
        text = templates().get_template(f"{template}.j2").render(context)
        (folder / template).write_text(text, encoding="utf-8")


def _data(results: Results, chapters: list[Chapter]) -> Iterator[tuple[str, pd.DataFrame]]:
    for kind in ("cells", "qualities", "counters", "phases"):
        yield kind, getattr(results, kind)
    for one in chapters:
        for section in one.sections:
            yield from ((drawing.slug, drawing.data) for drawing in section.drawings)
            for table in section.tables:
                if table.data is not None:
                    yield table.name, table.data


def _overview(results: Results, chapters: list[Chapter]) -> str:
    problems = results.cells["problem"].nunique()
    starts = sorted(start for e in environments(results) for start in e["starts"])
    parts = [
        plural(len(results.cells), "cell"),
        plural(problems, "problem"),
        f"{len(chapters)} families" if len(chapters) > 1 else f"family {chapters[0].family.name}",
    ]
    return ", ".join(parts) + (f"; measured from {_moment(starts[0])}" if starts else "")


def _moment(text: str) -> str:
    """An ISO 8601 time to the minute; other texts as they are."""
    return re.sub(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(:[\d.]+)?(Z|\+00:00)$", r"\1 \2 UTC", text)
