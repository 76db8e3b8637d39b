"""Pages of sections, and a page's folder: its HTML, figures and CSV data.

If a page cannot be made, its folder is unchanged; nothing but an earlier report is replaced.
"""

import base64
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from harness.model.errors import UsageError
from harness.model.files import replace_file
from reports.core.formatting import csv, prose
from reports.core.table import Table

if TYPE_CHECKING:  # a page of flame graphs needs neither, and importing them takes a second
    import pandas as pd

    from reports.core.canvas import Drawing

TEMPLATES = Path(__file__).parent / "templates"
_GENERATOR = "shardbench report"

# The entries of a report's folder. index.html is the first: it marks the others as a report's, even
# if writing them is interrupted.
_PARTS = ("index.html", "figures", "data", "flames")


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence on results with its kind, and the figures behind it (`detail`)."""

    kind: str
    sentence: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CaptionedTable:
    """A table with a caption; `data`, if given, is written to `data/NAME.csv`."""

    table: Table
    caption: str = ""
    name: str = ""
    data: "pd.DataFrame | None" = None


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page: a lead, findings, figures, tables, remarks and smaller sections.

    The reader opens a folded section by a click.
    """

    slug: str
    title: str
    lead: str = ""
    findings: Sequence[Finding] = ()
    drawings: "Sequence[Drawing]" = ()
    tables: Sequence[CaptionedTable] = ()
    remarks: Sequence[str] = ()
    sections: Sequence["Section"] = ()
    is_folded: bool = False

    def parts(self) -> Iterator["Section"]:
        """Yield this section and all sections in it."""
        yield self
        for section in self.sections:
            yield from section.parts()


@dataclass(frozen=True, slots=True)
class Page:
    """A page, its CSV files (`data`) and its other files.

    It opens with findings, the first of which is the summary, and with the section `opening`,
    which has no heading.
    """

    name: str
    heading: str
    lead: Sequence[str]
    sections: Sequence[Section]
    findings: Sequence[Finding] = ()
    opening: Section = Section("overview", "Overview")
    data: "Mapping[str, pd.DataFrame]" = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)

    def html(self) -> str:
        """Return the page as one HTML file that loads nothing from the network."""
        return render("page.html.j2", page=self, generator=_GENERATOR)


@cache
def templates() -> jinja2.Environment:
    """Return the Jinja environment, in which templates escape every inserted value."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"prose": prose, "link": _link}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment


def render(template: str, **context: Any) -> str:
    """Return the text of a template, filled in from `context`."""
    return templates().get_template(template).render(context)


def _link(content: "pd.DataFrame | str") -> str:
    """Return a frame's CSV or an SVG as a `data:` URL, which needs no file next to the page."""
    is_svg = isinstance(content, str)
    text = content if isinstance(content, str) else csv(content)
    encoded = base64.b64encode(text.encode()).decode()
    return f"data:{'image/svg+xml' if is_svg else 'text/csv'};base64,{encoded}"


def write_page(out: Path, made: Page) -> Path:
    """Write a page into the folder `out`; return the path of its HTML.

    `out` gets index.html, figures/*.svg, data/*.csv, and the page's other files. Files of an
    earlier report are replaced, other files are kept. Raises UsageError if `out` cannot be written,
    or contains files of these names that no report wrote.
    """
    out = out.resolve()
    if out.exists() and not out.is_dir():
        raise UsageError(f"Report folder '{out}' is a file; name a folder.")
    page = out / "index.html"
    is_report = page.is_file() and _GENERATOR.encode() in page.read_bytes()[:1000]
    for name in _PARTS:
        if (out / name).exists() and not is_report:
            raise UsageError(
                f"Folder '{out}' holds '{name}', which no shardbench report wrote; name another."
            )
    try:
        for name in _PARTS[1:]:
            if (out / name).exists():
                shutil.rmtree(out / name)
        for name, content in _files(made).items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            replace_file(out / name, content)
    except OSError as error:
        raise UsageError(f"Report folder '{out}' cannot be written: {error.strerror}.") from None
    return page


def _files(page: Page) -> dict[str, bytes]:
    """Return the content of a page's files by their place in its folder."""
    parts = [part for section in (page.opening, *page.sections) for part in section.parts()]
    drawings = [drawing for part in parts for drawing in part.drawings]
    data = dict(page.data) | {drawing.slug: drawing.data for drawing in drawings}
    data |= {one.name: one.data for part in parts for one in part.tables if one.data is not None}
    return {
        "index.html": page.html().encode(),
        **page.files,
        **{f"figures/{drawing.slug}.svg": drawing.svg.encode() for drawing in drawings},
        **{f"data/{name}.csv": csv(frame).encode() for name, frame in data.items()},
    }
