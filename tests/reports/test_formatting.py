"""Numbers, lists and tables written for readers."""

import io
import math
from functools import partial

import pytest
from rich.console import Console

from reports.core import formatting as write
from reports.core.table import code, numbers, table_of, text
from reports.core.terminal import as_terminal

TIMES = partial(write.quantity, unit="s")


@pytest.mark.parametrize(
    ("function", "value", "shown"),
    [
        (write.number, 0.4, "0.400"),
        (write.number, 999.6, "1,000"),
        (write.number, 1234.5, "1,230"),
        (write.number, 0.00999999, "0.0100"),
        (write.number, 1e-9, "1.00e-09"),
        (write.number, 1234567, "1,234,567"),
        (write.seconds, 2.5e-8, "25.0 ns"),
        (write.seconds, 150.0, "2.50 min"),
        (write.seconds, 0.0, "0 s"),
        (TIMES, 1200, "20 min"),
        (partial(write.quantity, unit="lookups"), 1500.0, "1,500 lookups"),
        (write.percent, 0.004, "< 1 %"),
        (write.gap, 0.0005, "0.05 %"),
        (write.factor, 123.4, "123\N{MULTIPLICATION SIGN}"),
    ],
)
def test_values_have_few_digits_and_fitting_units(function, value, shown):
    """Three significant digits, and the unit that fits the size."""
    assert function(value) == shown


@pytest.mark.parametrize(
    "function",
    [write.number, write.seconds, TIMES, write.percent, write.gap, write.factor, write.count],
)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_missing_values_are_a_dash(function, value):
    """No sentence and no table has "nan" or a unit without a number."""
    assert function(value) == "—"


def test_lists_are_counted_beyond_what_reads_well():
    """Long lists end with the number of the others."""
    assert write.listing(["a", "b", "c"]) == "a, b and c"
    assert write.listing(["a", "b", "c", "d", "e"], most=3) == "a, b and 3 more"
    assert write.listing([]) == ""


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
