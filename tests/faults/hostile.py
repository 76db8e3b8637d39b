"""Hostile input: texts, numbers, changes to documents, and paths that are no regular files."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from harness.model.errors import ShardbenchError

# Each tries something of its own; none may get what it wants.
TEXTS = (
    "<script>alert(1)</script>",
    "</script></style><img src=x onerror=alert(1)>",
    "&amp;<!--]]>&#39;",
    "\"onload='alert(1)' \"",
    "a|b||c",
    "`code` ``x``",
    "[x](javascript:alert(1)) ![y](javascript:alert(2))",
    "{{ 7*7 }}{% raw %}{# #}",
    "$\\frac{$ $x$ \\n",
    "\x00\x1b[31m\x07",
    "\u202eright to left\u200f",
    "../../../etc/passwd",
    "n" * 5000,
    "word " * 1000,
    "=1+1",
    "@SUM(1)",
    "-1+1|cmd",
    "\ud800 half a surrogate",
    "[red]:tm:[/red]",
    "日本語 עברית",
    "line\nbreak\r\nand\ttab",
    "# *a* _b_ ~c~ - d",
    'id="a" url(#b) <defs><style></style></defs>',
)
NUMBERS = (
    "0", "-1", "nan", "inf", "-inf", "1e400", "-1e400", "1e308", "1.5", "1e3", "0x10", "1_000",
    "+5", "1,000", "٣", "²", "9" * 19, "9" * 400, "9" * 5000, "true", "None", "x", "1x", "x1",
    "3x" + "9" * 400, "mm+", "+", "a" * 10_000, "'", "{}", "(1)", "\x00", "\ud800", "1\n2",
)  # fmt: skip

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.sampled_from([10**30, 10**400, -(10**400), 1e-320, 1e300])
    | st.floats()
    | st.sampled_from(TEXTS)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "median", "size", "a", ""]), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of keys to every value in a document, outer values first."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    paths = [here] if here else []
    for key, inner in pairs:
        inside = (*here, key)
        paths += places(inner, inside) if isinstance(inner, dict | list) else [inside]
    return paths


def changes(document: Any, most: int = 3) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Draw changes to a document, each of which replaces, drops or repeats a value."""
    ways = st.sampled_from(["put", "drop", "twice"])
    one = st.tuples(st.sampled_from(places(document)), ways, json_values)
    return st.lists(one, min_size=1, max_size=most)


def change(document: Any, wanted: list[tuple[Any, ...]]) -> None:
    """Apply changes to a document; skip a change if an earlier change removed its place."""
    for path, way, value in wanted:
        *outer, last = path
        with suppress(LookupError, TypeError):
            holder = document
            for key in outer:
                holder = holder[key]
            if way == "put":
                holder[last] = value
            elif way == "drop":
                del holder[last]
            else:
                holder += [holder[last]]


def is_one_sentence(text: str) -> bool:
    return text.isprintable() and text.endswith((".", "?")) and 0 < len(text) <= 1_100


def read_or_refused(read: Callable[[], Any], name: str = "") -> Any:
    """Return the result of `read`, or None if it refuses in one sentence that contains `name`."""
    try:
        return read()
    except ShardbenchError as error:
        said = str(error)
        assert is_one_sentence(said), said
        assert name in said
        return None


def refusal(read: Callable[[], Any]) -> str:
    """Return the message of the error that `read` raises; it must be one sentence."""
    with pytest.raises(ShardbenchError) as refused:
        read()
    assert is_one_sentence(str(refused.value)), str(refused.value)
    return str(refused.value)


def no_files(folder: Path, suffix: str) -> dict[str, str]:
    """Make paths that cannot be read as files; return them by description."""
    names = ("missing", "folder", "pipe", "device", "loop", "huge")
    made = {name: folder / f"{name}{suffix}" for name in names}
    made["folder"].mkdir()
    os.mkfifo(made["pipe"])
    made["device"].symlink_to("/dev/zero")
    made["loop"].symlink_to(made["loop"])
    with made["huge"].open("wb") as file:
        file.truncate(2**40)  # takes no room on the disk
    return {
        **{name: str(path) for name, path in made.items()},
        "below a file": str(made["huge"] / f"x{suffix}"),
        "a long name": str(folder / ("n" * 300 + suffix)),
        "NUL": f"{folder}/a\x00b{suffix}",
        "half a surrogate": f"{folder}/\ud800{suffix}",
        "bytes that are no text": f"{folder}/\udcff{suffix}",
        "an escape": f"{folder}/\x1b[31m\n{suffix}",
    }
