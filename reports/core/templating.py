"""The Jinja templates of pages: their environment, escaping and filters."""

import base64
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from harness.measuring.timing.verdict import CONFIDENCE
from reports.core.escaping import csv, markdown, prose, sources
from reports.core.table import as_markdown

FOLDER = Path(__file__).parent / "templates"


@cache
def templates() -> jinja2.Environment:
    """Return the Jinja environment; templates named *.html.j2 escape every inserted value."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=lambda name: bool(name and name.endswith(".html.j2")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"prose": prose, "sources": sources, "md": markdown, "md_table": as_markdown}
    environment.filters.update(filters, csv_link=_csv_link)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.globals["confidence"] = f"{100 * CONFIDENCE:.0f}"
    return environment


def render(template: str, **context: Any) -> str:
    """Return the text of a template, filled in from `context`."""
    return templates().get_template(template).render(context)


def _csv_link(data: pd.DataFrame) -> str:
    """Return a frame as a `data:` URL of its CSV, which needs no file next to the page."""
    return "data:text/csv;base64," + base64.b64encode(csv(data).encode()).decode()
