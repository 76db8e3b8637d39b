import math

import pytest

from reports.core import formatting


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.125, "0.125"),
        (0.4, "0.400"),
        (12.345, "12.3"),
        (999.6, "1,000"),
        (1234.5, "1,230"),
        (0.00999999, "0.0100"),
        (1e-9, "1.00e-09"),
        (-2.5, "-2.50"),
        (0.0, "0"),
        (1234567, "1,234,567"),
        (math.nan, "—"),
        (math.inf, "—"),
    ],
)
def test_three_significant_digits(value, text):
    assert formatting.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.5e-8, "25.0 ns"),
        (4.2e-5, "42.0 µs"),
        (0.0123, "12.3 ms"),
        (1.5, "1.50 s"),
        (119.0, "119 s"),
        (150.0, "2.50 min"),
        (9000.0, "2.50 h"),
        (0.0, "0 s"),
        (math.nan, "—"),
    ],
)
def test_times_choose_their_unit(value, text):
    assert formatting.seconds(value) == text


def test_quantities():
    assert formatting.quantity(1200, "s") == "20 min"
    assert formatting.quantity(2.5, "ms") == "2.5 ms"
    assert formatting.quantity(1500.0, "lookups") == "1,500 lookups"
    assert formatting.quantity(1.3, "") == "1.3"


def test_factors_say_their_direction():
    assert formatting.times(0.125) == "8 times as fast"
    assert formatting.times(1.5) == "1.5 times as slow"


def test_shares_and_intervals():
    assert formatting.percent(0.004) == "< 1 %"
    assert formatting.percent(0.456) == "46 %"
    assert formatting.interval(0.38, 0.42) == "0.380 to 0.420"
    assert formatting.interval(math.nan, 1.0) == "—"


def test_lists_are_counted_beyond_what_reads_well():
    assert formatting.listing(["a"]) == "a"
    assert formatting.listing(["a", "b", "c"]) == "a, b and c"
    assert formatting.listing(["a", "b", "c", "d", "e"], most=3) == "a, b and 3 more"
    assert formatting.listing([]) == ""
    assert formatting.plural(1, "problem") == "1 problem"
    assert formatting.plural(1200, "problem") == "1,200 problems"
