"""Numbers as people read them: three significant digits, fitting units, thousands separators."""

import math
from collections.abc import Sequence

MISSING = "—"

_TIME_UNITS = ((1e-6, "ns", 1e9), (1e-3, "µs", 1e6), (1.0, "ms", 1e3), (120.0, "s", 1.0))
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def number(value: float, *, trim: bool = False) -> str:
    """Write a number with three significant digits; whole numbers given as int stay exact.

    `trim` drops zeros that end the decimals, for sentences; tables keep them.
    """
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(float(f"{value:.2e}"))) + 1e-9)
    if not -5 < magnitude < 15:
        return f"{value:.2e}"
    text = f"{round(value, 2 - magnitude):,.{max(0, 2 - magnitude)}f}"
    return text.rstrip("0").rstrip(".") if trim and "." in text else text


def count(value: float) -> str:
    """Write a count exactly where it is whole."""
    return number(int(value)) if math.isfinite(value) and value == int(value) else number(value)


def seconds(value: float, *, trim: bool = False) -> str:
    """Write a time given in seconds in ns, µs, ms, s, min or h, whichever reads best."""
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0 s"
    size = abs(float(f"{value:.2e}"))
    for limit, unit, factor in _TIME_UNITS:
        if size < limit:
            return f"{number(value * factor, trim=trim)} {unit}"
    if size < 7200:
        return f"{number(value / 60, trim=trim)} min"
    return f"{number(value / 3600, trim=trim)} h"


def quantity(value: float, unit: str) -> str:
    """Write a value in its unit; times choose their unit anew."""
    if unit in _SECONDS:
        return seconds(value * _SECONDS[unit], trim=True)
    return f"{number(float(value), trim=True)} {unit}".rstrip()


def interval(low: float, high: float) -> str:
    """Write an interval as `low to high`, or a dash where there is none."""
    if math.isnan(low) or math.isnan(high):
        return MISSING
    return f"{number(low)} to {number(high)}"


def percent(share: float) -> str:
    """Write a share of 1 as a percentage, without decimals from one percent on."""
    if not math.isfinite(share):
        return MISSING
    if 0 < share < 0.01:
        return "< 1 %"
    return f"{share * 100:.0f} %"


def gap(share: float) -> str:
    """Write how far a quality is from its bound as a percentage, so that small ones are told."""
    if not math.isfinite(share):
        return MISSING
    share = max(share, 0.0)  # a bound may pass its quality by a rounding
    return f"{share * 100:.1f} %" if share >= 0.001 or not share else f"{share * 100:.2g} %"


def times(ratio: float) -> str:
    """Write a cost ratio (after / before) as a factor: 0.125 gives `8 times faster`."""
    if ratio <= 1:
        return f"{number(1 / ratio, trim=True)} times faster"
    return f"{number(float(ratio), trim=True)} times slower"


def listing(items: Sequence[str], most: int = 4) -> str:
    """Join items as `a, b and c`; beyond `most` items the rest is counted."""
    shown = list(items)
    if len(shown) > most:
        shown = [*shown[: most - 1], f"{len(shown) - most + 1} more"]
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def plural(amount: int, noun: str) -> str:
    """Write an amount with its noun: `1 problem`, `2 problems`."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"
