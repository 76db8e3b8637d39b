"""Texts of results made fit for where they are shown: HTML, Markdown, CSV, one line of a page."""

import re
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

if TYPE_CHECKING:
    import pandas as pd

_SOURCE = re.compile(r"\b([\w.-]+/[\w.-]+)#(\d+)\b")
_CODE = re.compile(r"`([^`]*)`")
_MARKS = re.compile(r"[\\`*\[\]~$|]|(?<![^\W_])_|_(?![^\W_])")  # not the _ inside a word


def prose(text: str) -> Markup:
    """Return HTML in which names in backticks are code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def sources(text: str) -> Markup:
    """Return HTML in which owner/repository#number is a link."""
    link = r'<a href="https://github.com/\1/pull/\2">\g<0></a>'
    return Markup(_SOURCE.sub(link, str(escape(text))))


def markdown(text: str) -> str:
    """Return Markdown that shows a text unchanged; names in backticks become code."""
    parts = _CODE.split(" ".join(text.split()))  # every other one stood in backticks
    return "".join(
        code_in_table(part) if place % 2 else _plain(part) for place, part in enumerate(parts)
    )


def code(text: str) -> str:
    """Return a text as Markdown's code, between more backticks than it has in a row."""
    text = " ".join(text.split()) or " "
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " if "`" in (text[0], text[-1]) else ""
    return f"{fence}{space}{text}{space}{fence}"


def code_in_table(text: str) -> str:
    """Return a text as Markdown's code that stays in its field of a table."""
    return code(text).replace("|", "\\|")


def _plain(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return _MARKS.sub(r"\\\g<0>", text)


def csv(frame: "pd.DataFrame") -> str:
    """Return a frame as CSV; a text that a spreadsheet would compute gets an apostrophe before it.

    Numbers stay numbers, negative ones too.
    """
    from pandas.api.types import is_numeric_dtype  # a second to import, and only reports need it

    held = frame.rename(columns=_inert)
    for column in held.columns[[not is_numeric_dtype(t) for t in held.dtypes]]:
        held[column] = held[column].map(_inert)
    return held.to_csv(index=False)


def _inert(value: Any) -> Any:
    return (
        f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value
    )
