"""Tables fit 80 columns without a terminal, and align decimal points."""

import io

import pytest
from rich.console import Console

from reports.core.table import code, numbers, table_of, text
from reports.core.terminal import aligned, as_terminal


def test_every_list_fits_80_columns_in_a_pipe(shardbench, monkeypatch):
    """Without a terminal, tables are 80 columns wide, without colours, and names are whole."""
    monkeypatch.delenv("COLUMNS")
    out = shardbench("list")[1]
    assert [line for line in out.splitlines() if len(line.rstrip()) > 80] == []
    assert "\x1b" not in out
    assert "colossalai-0.4.1+interned " in out


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
