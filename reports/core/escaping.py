"""Escaping of texts from results for HTML, Markdown and CSV."""

import re
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

if TYPE_CHECKING:
    import pandas as pd

_SOURCE = re.compile(r"\b([\w.-]+/[\w.-]+)#(\d+)\b")
_CODE = re.compile(r"`([^`]*)`")
_MARKS = re.compile(r"[\\`*\[\]~$|]|(?<![^\W_])_|_(?![^\W_])")  # not the _ inside a word


def prose(text: str) -> Markup:
    """Return a text as escaped HTML, with names in backticks as code and percentages unbroken."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))).replace(" %", "&nbsp;%"))


def sources(text: str) -> Markup:
    """Return a text as escaped HTML, with each owner/repository#number as a link to GitHub."""
    link = r'<a href="https://github.com/\1/pull/\2">\g<0></a>'
    return Markup(_SOURCE.sub(link, str(escape(text))))


def markdown(text: str) -> str:
    """Return a text as escaped Markdown on one line; names in backticks become code."""
    parts = _CODE.split(" ".join(text.split()))  # parts at odd places were in backticks
    return "".join(
        code_in_table(part) if place % 2 else _plain(part) for place, part in enumerate(parts)
    )


def code(text: str) -> str:
    """Return a text as a Markdown code span; its fence is longer than any backticks in the text."""
    text = " ".join(text.split()) or " "
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " if "`" in (text[0], text[-1]) else ""
    return f"{fence}{space}{text}{space}{fence}"


def code_in_table(text: str) -> str:
    """Return a text as a Markdown code span for a table's field, with every | escaped."""
    return code(text).replace("|", "\\|")


def _plain(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return _MARKS.sub(r"\\\g<0>", text)


def csv(frame: "pd.DataFrame") -> str:
    """Return a frame as CSV, with an apostrophe before each text that a spreadsheet would evaluate.

    Columns of numbers are unchanged, also their negative numbers.
    """
    from pandas.api.types import is_numeric_dtype  # only reports need it; importing takes a second

    held = frame.rename(columns=_inert)
    for column in held.columns[[not is_numeric_dtype(t) for t in held.dtypes]]:
        held[column] = held[column].map(_inert)
    return held.to_csv(index=False)


def _inert(value: Any) -> Any:
    return (
        f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value
    )
