"""The parts of a page, and how it becomes HTML, Markdown, figures and their data in a folder."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from reports.escaping import csv
from reports.figures.canvas import Drawing
from reports.findings.finding import Finding
from reports.pages.folder import GENERATOR, write_folder
from reports.pages.templating import render
from reports.tables.table import Table


@dataclass(frozen=True, slots=True)
class CaptionedTable:
    """A table with a sentence on it; where it has `data`, they are the CSV file of that `name`."""

    table: Table
    caption: str = ""
    name: str = ""
    data: pd.DataFrame | None = None


@dataclass(frozen=True, slots=True)
class PageSection:
    """Figures, tables, and remarks on them; `note` says why something is not there.

    `terms` are explained: a name, its meaning, and what kind of figure it is. Without a title it is
    all of its chapter.
    """

    slug: str
    title: str = ""
    drawings: Sequence[Drawing] = ()
    tables: Sequence[CaptionedTable] = ()
    note: str = ""
    remarks: Sequence[str] = ()
    terms: Sequence[tuple[str, str, str]] = ()


@dataclass(frozen=True, slots=True)
class PageChapter:
    """A chapter; `template` has what it says in HTML alone, such as a glossary."""

    slug: str
    title: str
    sections: Sequence[PageSection]
    lead: str = ""
    template: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A page, and the CSV files and others that go with it; the first finding sums it up."""

    name: str
    heading: str
    lead: Sequence[str]
    findings: Sequence[Finding]
    chapters: Sequence[PageChapter]
    data: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)

    def sections(self) -> Iterator[PageSection]:
        """Yield the sections of all chapters."""
        for chapter in self.chapters:
            yield from chapter.sections


def write_page(out: Path, build: Callable[[], Page]) -> Path:
    """Write a page into the folder `out`; return the path of its HTML.

    `out` gets index.html, report.md, figures/*.svg|png, data/*.csv, and the page's other files.
    What an earlier call wrote there is replaced, other files stay. Nothing is touched unless the
    whole page could be made.

    Raises:
        UsageError: `out` cannot be written or holds files of these names that are no report.
    """
    return write_folder(out, lambda folder: _write(build(), folder))


def _write(page: Page, folder: Path) -> None:
    files = dict(page.files)
    data = dict(page.data)
    for section in page.sections():
        for drawing in section.drawings:
            files[f"figures/{drawing.slug}.svg"] = drawing.svg.encode()
            files[f"figures/{drawing.slug}.png"] = drawing.png
            data[drawing.slug] = drawing.data
        data |= {one.name: one.data for one in section.tables if one.data is not None}
    files |= {f"data/{name}.csv": csv(frame).encode() for name, frame in data.items()}
    for template, name in (("page.md.j2", "report.md"), ("page.html.j2", "index.html")):
        files[name] = render(template, page=page, generator=GENERATOR).encode()
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
