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

from reports.core.table import Entry, code, numbers, table_of, text
from reports.core.terminal import aligned, as_terminal

LISTS = ["families", "variants", "workloads", "topologies"]
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


def in_a_pipe(*arguments: str, **changes: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], stdout=subprocess.PIPE, text=True, check=True,
        env=environment(**changes),
    )  # fmt: skip
    return done.stdout


def test_every_list_fits_80_columns_in_a_pipe():
    out = in_a_pipe("-m", "shardbench", "list")
    assert [line for line in out.splitlines() if len(line.rstrip()) > 80] == []
    assert "\x1b" not in out
    assert "colossalai-0.4.1+interned " in out  # a name is in one piece
    heading = next(line for line in out.splitlines() if line.startswith("topology "))
    assert heading.split() == ["topology", "host", "GiB", "GiB", "intra", "inter", "HBM", "H2D"]


@pytest.mark.parametrize("columns", [60, 120])
def test_on_a_terminal_a_table_is_as_wide_as_that(columns):
    lines = re.sub(r"\x1b\[[\d;]*m", "", on_a_terminal(columns)).splitlines()
    widest = max(len(line.rstrip()) for line in lines if "words" in line)
    assert columns - 12 < widest <= columns


def test_there_are_colours_on_a_terminal_alone():
    assert COLOUR in on_a_terminal(80)
    assert COLOUR not in on_a_terminal(80, NO_COLOR="1")
    assert "\x1b" not in in_a_pipe("-c", SHOW)


def test_points_stand_below_each_other():
    assert aligned(["1.25", "12.5", "1,234", "—"]) == [
        "    1.25",
        "   12.5 ",
        "1,234   ",
        "    —   ",
    ]
    assert aligned(["±6 %", "±24 %", "unbounded"]) == ["     ±6 %", "    ±24 %", "unbounded"]
    assert aligned(["8", "10"], width=4) == ["   8", "  10"]


def shown(width: int, *columns) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    rows = [("first", 0.125, 12.5, "some words that are wrapped"), ("second", 100.0, 7.25, "few")]
    console.print(as_terminal(table_of(rows, *columns)))
    return console.file.getvalue().splitlines()


def test_numbers_that_do_not_fit_follow_below_and_are_never_cut():
    columns = (code("name", 0), numbers("quality", 1), numbers("cost", 2), text("said", 3))
    for width in range(16, 60):
        lines = shown(width, *columns)
        assert max(map(len, lines)) <= width
        words = " ".join(lines).split()
        assert [each for each in ("0.125", "100", "12.5", "7.25", "few") if each not in words] == []


def test_columns_of_a_table_are_aligned_where_the_heading_is_wider():
    lines = shown(60, code("name", 0), numbers("a wide heading", lambda row: Entry(str(row[1]))))
    first, second = lines[1], lines[2]
    assert first.index(".") == second.index(".")
