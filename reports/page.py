"""The report as files: one HTML page that stands alone, Markdown, figures and their data."""

import base64
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2

from harness.errors import UsageError, printable
from reports.drawing import Drawing
from reports.escaping import code_in_table, csv, markdown, prose, sources
from reports.findings import findings
from reports.formatting import plural
from reports.frames import Results, read_results
from reports.provenance import environment_table, sources_table
from reports.sections import Chapter, chapter
from reports.views import environments, families

GENERATOR = "shardbench report"

_TEMPLATES = Path(__file__).parent / "templates"
_PARTS = ("figures", "data", "report.md", "index.html")  # index.html last: it marks a whole report


def write_report(results: Path, out: Path) -> Path:
    """Write the report of a results file into the folder `out`; return the path of its page.

    `out` gets index.html, report.md, figures/*.svg|png and data/*.csv. An earlier report there is
    replaced, other files stay. Nothing is touched unless the whole report could be made.

    Raises:
        UsageError: the results are unreadable, or `out` cannot be written or holds files of these
            names that are no report.
    """
    held = read_results(results)
    out = out.resolve()
    _check_target(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
            fresh = Path(scratch) / "fresh"
            _write(held, results.name, fresh)
            _put_in_place(fresh, out, Path(scratch))
    except OSError as error:
        raise UsageError(f"Report folder '{out}' cannot be written: {error.strerror}.") from None
    return out / "index.html"


def _check_target(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"Report folder '{out}' is a file; name a folder.")
    page = out / "index.html"
    marked = page.is_file() and GENERATOR.encode() in page.read_bytes()[:1000]
    for name in _PARTS:
        if (out / name).exists() and not marked:
            raise UsageError(
                f"Folder '{out}' holds '{name}', which is not of a shardbench report; name another."
            )


def _put_in_place(fresh: Path, out: Path, scratch: Path) -> None:
    if not out.exists():
        fresh.rename(out)
        return
    for name in _PARTS:
        if (out / name).is_dir():
            (out / name).rename(scratch / f"old-{name}")
        (fresh / name).replace(out / name)


def _write(results: Results, name: str, folder: Path) -> None:
    chapters = [chapter(family, results) for family in families(results)]
    context = {
        "generator": GENERATOR,
        "file": printable(name),
        "overview": _overview(results, chapters),
        "findings": findings(results),
        "chapters": chapters,
        "environment": environment_table(results),
        "sources": [(c.family, sources_table(c.family)) for c in chapters],
        "notes": results.notes,
    }
    (folder / "figures").mkdir(parents=True)
    (folder / "data").mkdir()
    for drawing in _drawings(chapters):
        (folder / "figures" / f"{drawing.slug}.svg").write_text(drawing.svg, encoding="utf-8")
        (folder / "figures" / f"{drawing.slug}.png").write_bytes(drawing.png)
        (folder / "data" / f"{drawing.slug}.csv").write_text(csv(drawing.data), encoding="utf-8")
    for kind in ("cells", "qualities", "counters", "phases"):
        text = csv(getattr(results, kind))
        (folder / "data" / f"{kind}.csv").write_text(text, encoding="utf-8")
    for template in ("report.md", "index.html"):
        text = _templates().get_template(f"{template}.j2").render(context)
        (folder / template).write_text(text, encoding="utf-8")


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


def _drawings(chapters: list[Chapter]) -> Iterator[Drawing]:
    for one in chapters:
        for section in one.sections:
            yield from section.drawings


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=lambda name: bool(name and name.endswith(".html.j2")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {
        "prose": prose,
        "sources": sources,
        "md": markdown,
        "md_code": code_in_table,
        "csv_link": _csv_link,
    }
    environment.filters.update(filters)
    return environment


def _csv_link(drawing: Drawing) -> str:
    """The data as a link that works where the page is all there is."""
    return "data:text/csv;base64," + base64.b64encode(csv(drawing.data).encode()).decode()
