"""The parts of a report page, and its folder of HTML, Markdown, figures and CSV data.

The folder is written completely or not at all, and replaces nothing but an earlier report.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from harness.model.errors import UsageError
from reports.core.drawing.canvas import Drawing
from reports.core.escaping import csv
from reports.core.table import Table
from reports.core.templating import render

_GENERATOR = "shardbench report"

# The entries of a report's folder. index.html is moved last, since it marks a complete report.
_PARTS = ("figures", "data", "flames", "report.md", "index.html")


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence on results with its kind, the figures behind it (`detail`), and its family."""

    kind: str
    sentence: str
    detail: str = ""
    family: str = ""


@dataclass(frozen=True, slots=True)
class CaptionedTable:
    """A table with a caption; `data`, if given, is written to `data/NAME.csv`."""

    table: Table
    caption: str = ""
    name: str = ""
    data: pd.DataFrame | None = None


@dataclass(frozen=True, slots=True)
class PageSection:
    """A section of figures, tables and remarks; `note` is a line above them.

    `terms` are glossary entries: name, meaning, and unit or kind. A section without a title is the
    only one of its chapter. The reader opens a folded section by a click.
    """

    slug: str
    title: str = ""
    drawings: Sequence[Drawing] = ()
    tables: Sequence[CaptionedTable] = ()
    note: str = ""
    remarks: Sequence[str] = ()
    terms: Sequence[tuple[str, str, str]] = ()
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class PageChapter:
    """A chapter; `template` names an HTML template to append, such as a glossary.

    The chapter starts with the first three of its `findings`; HTML folds the others.
    """

    slug: str
    title: str
    sections: Sequence[PageSection]
    lead: str = ""
    template: str = ""
    findings: Sequence[Finding] = ()


@dataclass(frozen=True, slots=True)
class Opening:
    """The first screen of a page that shows one chapter at a time.

    `answers` are pairs of a question and its answer; a figure and a table follow.
    """

    answers: Sequence[tuple[str, str]]
    drawings: Sequence[Drawing]
    table: CaptionedTable


@dataclass(frozen=True, slots=True)
class Page:
    """A page, its CSV files (`data`) and its other files.

    With an `opening` the page shows one chapter at a time. Without an `opening` it shows all, and
    the first of its `findings` is the summary.
    """

    name: str
    heading: str
    lead: Sequence[str]
    chapters: Sequence[PageChapter]
    findings: Sequence[Finding] = ()
    opening: Opening | None = None
    data: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


def write_page(out: Path, build: Callable[[], Page]) -> Path:
    """Write a page into the folder `out`; return the path of its HTML.

    `out` gets index.html, report.md, figures/*.svg|png, data/*.csv, and the page's other files.
    Files of an earlier report are replaced, other files are kept. If `build` fails, `out` is
    unchanged. Raises UsageError if `out` cannot be written, or contains files of these names that
    no report wrote.
    """
    out = out.resolve()
    _check_target(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
            fresh = Path(scratch) / "fresh"
            _write(build(), fresh)
            _put_in_place(fresh, out, Path(scratch))
    except OSError as error:
        raise UsageError(f"Report folder '{out}' cannot be written: {error.strerror}.") from None
    return out / "index.html"


def _check_target(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"Report folder '{out}' is a file; name a folder.")
    page = out / "index.html"
    marked = page.is_file() and _GENERATOR.encode() in page.read_bytes()[:1000]
    for name in _PARTS:
        if (out / name).exists() and not marked:
            raise UsageError(
                f"Folder '{out}' holds '{name}', which no shardbench report wrote; name another."
            )


def _write(page: Page, folder: Path) -> None:
    files, data = dict(page.files), dict(page.data)
    sections = [section for chapter in page.chapters for section in chapter.sections]
    drawings = [drawing for section in sections for drawing in section.drawings]
    for drawing in (*(page.opening.drawings if page.opening else ()), *drawings):
        files[f"figures/{drawing.slug}.svg"] = drawing.svg.encode()
        files[f"figures/{drawing.slug}.png"] = drawing.png
        data[drawing.slug] = drawing.data
    for section in sections:
        data |= {one.name: one.data for one in section.tables if one.data is not None}
    files |= {f"data/{name}.csv": csv(frame).encode() for name, frame in data.items()}
    for template, name in (("page.md.j2", "report.md"), ("page.html.j2", "index.html")):
        files[name] = render(template, page=page, generator=_GENERATOR).encode()
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _put_in_place(fresh: Path, out: Path, scratch: Path) -> None:
    if not out.exists():
        fresh.rename(out)
        return
    for name in _PARTS:
        if (out / name).is_dir():
            (out / name).rename(scratch / f"old-{name}")
        if (fresh / name).exists():
            (fresh / name).replace(out / name)
