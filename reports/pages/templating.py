"""How templates become HTML and Markdown: what escapes, and the filters that they use."""

import base64
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from reports.escaping import code_in_table, csv, markdown, prose, sources

_TEMPLATES = Path(__file__).parent / "templates"


def templates() -> jinja2.Environment:
    """Return the templates of reports; those that end in .html.j2 escape whatever is put in."""
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


def _csv_link(data: pd.DataFrame) -> str:
    """The data as a link that works where the page is all there is."""
    return "data:text/csv;base64," + base64.b64encode(csv(data).encode()).decode()
