"""Tables fit the terminal or 80 columns and align decimal points; only terminals get colours."""

import io
import os
import pty
import re
import subprocess
import sys
import termios

import pytest
from rich.console import Console

from reports.core.table import code, numbers, table_of, text
from reports.core.terminal import aligned, as_terminal

COLOUR = "\x1b[3"
SHOW = (
    "from shardbench import display; from reports.core.table import *;"
    "from reports.core.terminal import as_terminal;"
    "rows = [('failed', 'a few words ' * 20)];"
    "columns = text('outcome', lambda row: outcome_entry(row[0])), text('words', 1);"
    "display.show(as_terminal(table_of(rows, *columns)))"
)


def environment(**changes: str) -> dict[str, str]:
    unset = ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return kept | {"TERM": "xterm-256color"} | changes


def on_a_terminal(columns: int, **changes: str) -> str:
    """Return the table as printed on a terminal with `columns` columns."""
    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, columns))
    with subprocess.Popen(
        [sys.executable, "-c", SHOW], stdin=terminal, stdout=terminal, env=environment(**changes)
    ) as process:
        assert process.wait(60) == 0
    os.close(terminal)
    with os.fdopen(controller, "rb") as end:
        return end.read1(100_000).decode()  # all of it: a terminal holds so much


def test_every_list_fits_80_columns_in_a_pipe():
    """Without a terminal, tables are 80 columns wide, without colours, and names are whole."""
    command = [sys.executable, "-m", "shardbench", "list"]
    out = subprocess.check_output(command, text=True, env=environment())
    assert [line for line in out.splitlines() if len(line.rstrip()) > 80] == []
    assert "\x1b" not in out
    assert "colossalai-0.4.1+interned " in out


def test_on_a_terminal_tables_have_its_width_and_colours():
    """Widths follow the terminal, and NO_COLOR turns colours off."""
    narrow, wide = on_a_terminal(60), on_a_terminal(120, NO_COLOR="1")
    assert (COLOUR in narrow, COLOUR in wide) == (True, False)
    for columns, out in ((60, narrow), (120, wide)):
        lines = re.sub(r"\x1b\[[\d;]*m", "", out).splitlines()
        widest = max(len(line.rstrip()) for line in lines if "words" in line)
        assert columns - 12 < widest <= columns


@pytest.mark.parametrize(
    ("texts", "padded"),
    [
        (["1.25", "12.5", "1,234", "—"], ["    1.25", "   12.5 ", "1,234   ", "    —   "]),
        (["±6 %", "±24 %", "unbounded"], ["     ±6 %", "    ±24 %", "unbounded"]),
    ],
)
def test_decimal_points_are_aligned(texts, padded):
    """Numbers of a column have their points below each other."""
    assert aligned(texts, 0) == padded


def test_columns_that_do_not_fit_follow_below_and_numbers_are_never_cut():
    """At any width every number and word is there."""
    columns = (code("name", 0), numbers("quality", 1), numbers("cost", 2), text("said", 3))
    rows = [("first", 0.125, 12.5, "some words that are wrapped"), ("second", 100.0, 7.25, "few")]
    for width in range(16, 60):
        console = Console(file=io.StringIO(), width=width, highlight=False)
        console.print(as_terminal(table_of(rows, *columns)))
        out = console.file.getvalue()
        assert max(map(len, out.splitlines())) <= width
        assert {"first", "0.125", "100", "12.5", "7.25", "few"} <= set(out.split())
