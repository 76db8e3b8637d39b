"""Numbers, lists and names written for readers, and texts escaped for HTML, Markdown and CSV."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

if TYPE_CHECKING:
    import pandas as pd

MISSING = "—"
_TIMES, _UP_TO = "\N{MULTIPLICATION SIGN}", "\N{EN DASH}"

# Pairs of an upper limit in seconds and the unit of times below that limit.
_UNITS = ((1e-6, "ns"), (1e-3, "µs"), (1.0, "ms"), (120.0, "s"), (7200.0, "min"), (math.inf, "h"))
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_BYTES = (" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB")
_AMOUNTS = ("", " k", " M", " G", " T", " P")

_SOURCE = re.compile(r"\b([\w.-]+/[\w.-]+)#(\d+)\b")
_LINK = r'<a href="https://github.com/\1/pull/\2">\g<0></a>'
_CODE = re.compile(r"`([^`]*)`")
_MARKS = re.compile(r"[\\`*\[\]~$|]|(?<![^\W_])_|_(?![^\W_])")  # not the _ inside a word


def number(value: float, digits: int = 3, *, trim: bool = False) -> str:
    """Write a number with this many significant digits; whole numbers given as int stay exact.

    `trim` removes trailing zeros of the decimals, for use in sentences; tables keep them.
    """
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    scientific = f"{value:.{digits - 1}e}"
    magnitude = math.floor(math.log10(abs(float(scientific))) + 1e-9)
    if not -5 < magnitude < 15:
        return scientific
    decimals = digits - 1 - magnitude
    text = f"{round(value, decimals):,.{max(0, decimals)}f}"
    return text.rstrip("0").rstrip(".") if trim and "." in text else text


def figure(value: float) -> str:
    """Write a number with four significant digits; from 1,000 on, round it to a whole number."""
    if 1000 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return number(float(value), 4, trim=True)


def count(value: float) -> str:
    """Write a whole number exactly, and any other with three significant digits."""
    return number(int(value)) if math.isfinite(value) and value == int(value) else number(value)


def hundredths(value: float) -> str:
    """Write a number with two decimals, or a dash if it is not finite."""
    return f"{value:.2f}" if math.isfinite(value) else MISSING


def seconds(value: float, *, trim: bool = False) -> str:
    """Write a time, given in seconds, in the unit that fits its size: ns, µs, ms, s, min or h."""
    if not math.isfinite(value):
        return MISSING
    size = abs(float(f"{value:.2e}"))
    unit = next(unit for limit, unit in _UNITS if size < limit) if value else "s"
    return f"{number(value / _SECONDS[unit], trim=trim)} {unit}"


def in_bytes(value: float) -> str:
    """Write bytes in B, KiB, MiB and so on, with three significant digits."""
    return _scaled(value, 1024, _BYTES)


def bandwidth(value: float) -> str:
    """Write bytes per millisecond as GB/s."""
    return f"{value / 1e6:,.4g} GB/s"


def amount(value: float) -> str:
    """Write a number with a decimal prefix: `12`, `1.5 k`, `40 M`."""
    return _scaled(value, 1000, _AMOUNTS)


def _scaled(value: float, step: int, units: Sequence[str]) -> str:
    place = 0
    while value >= step - 0.5 and place < len(units) - 1:
        value /= step
        place += 1
    whole = value >= 99.95 or value == int(value)
    return f"{f'{value:.0f}' if whole else f'{value:#.3g}'}{units[place]}"


def quantity(value: float, unit: str) -> str:
    """Write a value with its unit; a time is converted to the unit that fits its size."""
    if not math.isfinite(value):
        return MISSING
    if unit in _SECONDS:
        return seconds(value * _SECONDS[unit], trim=True)
    return f"{number(float(value), trim=True)} {unit}".rstrip()


def change(before: float, after: float, unit: str) -> str:
    """Write a quantity before and after a change: `10 min → 2.5 min`."""
    return f"{quantity(before, unit)} → {quantity(after, unit)}"


def fact(name: str, value: Any) -> str:
    """Write a fact about a problem as `NAME NUMBER` or as `NAME: TEXT`."""
    return f"{name} {number(value)}" if isinstance(value, int | float) else f"{name}: {value}"


def interval(low: float, high: float, write: Callable[[float], str] = number) -> str:
    """Write an interval as `low to high`, or a dash if an end is NaN."""
    return MISSING if math.isnan(low) or math.isnan(high) else f"{write(low)} to {write(high)}"


def with_interval(
    value: float, low: float, high: float, write: Callable[[float], str] = number
) -> str:
    """Write a value, followed by its interval in brackets unless an end is NaN."""
    missing = math.isnan(low) or math.isnan(high)
    return write(value) + ("" if missing else f" ({interval(low, high, write)})")


def factor(value: float, low: float = math.nan, high: float = math.nan) -> str:
    """Write a speed-up with two digits, or three from 100 on, and its interval if it has one."""
    if not math.isfinite(value):
        return MISSING
    digits = 3 if value >= 100 else 2
    ends = f" ({number(low, digits)}{_UP_TO}{number(high, digits)})"
    return f"{number(float(value), digits)}{_TIMES}{'' if math.isnan(low + high) else ends}"


def reach(value: float, low: float, high: float) -> str:
    """Write the distance from a value to the farther end of its interval: `±6 %` of the value."""
    share = max(high - value, value - low) / value
    return f"±{share * 100:.{0 if share >= 0.01 else 1}f} %" if share < 1000 else "unbounded"


def percent(share: float) -> str:
    """Write a share (0.25) as a whole percentage (`25 %`), or as `< 1 %` if it is below 0.01."""
    if not math.isfinite(share):
        return MISSING
    if 0 < share < 0.01:
        return "< 1 %"
    return f"{share * 100:.0f} %"


def gap(share: float) -> str:
    """Write a gap to a bound, given as a share, as a percentage; small gaps get two digits."""
    if not math.isfinite(share):
        return MISSING
    if share < 1e-8:  # proven best; rounding may put a quality slightly beyond its bound
        share = 0.0
    return f"{share * 100:.1f} %" if share >= 0.001 or not share else f"{share * 100:.2g} %"


def listing(items: Sequence[str], most: int = 4) -> str:
    """Join items as `a, b and c`; if there are more than `most`, the last entry is `N more`."""
    shown = list(items)
    if len(shown) > most:
        shown = [*shown[: most - 1], f"{len(shown) - most + 1} more"]
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def names(items: Iterable[object], most: int = 4) -> str:
    """Join names as `listing` does, each in backticks; pages show them as code."""
    return listing([f"`{item}`" for item in items], most)


def plural(amount: int, noun: str) -> str:
    """Write a count with its noun: `1 problem`, `2 problems`."""
    ends_in_y = noun.endswith("y") and noun[-2] not in "aeo"
    many = f"{noun[:-1]}ies" if ends_in_y else f"{noun}s"
    return f"{amount:,} {noun if amount == 1 else many}"


def prose(text: str) -> Markup:
    """Return a text as escaped HTML.

    Names in backticks become code, and each owner/repository#number a link to GitHub.
    """
    linked = _SOURCE.sub(_LINK, str(escape(text)))
    return Markup(_CODE.sub(r"<code>\1</code>", linked).replace(" %", "&nbsp;%"))


def markdown(text: str) -> str:
    """Return a text as escaped Markdown on one line; names in backticks become code."""
    parts = _CODE.split(" ".join(text.split()))  # parts at odd places were in backticks
    plain = [part.replace("&", "&amp;").replace("<", "&lt;") for part in parts]
    return "".join(
        code_in_table(part) if place % 2 else _MARKS.sub(r"\\\g<0>", plain[place])
        for place, part in enumerate(parts)
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


def csv(frame: "pd.DataFrame") -> str:
    """Return a frame as CSV, with an apostrophe before each text that a spreadsheet would evaluate.

    Columns of numbers are unchanged, also their negative numbers.
    """
    from pandas.api.types import is_numeric_dtype  # only reports need it; importing takes a second

    def inert(value: Any) -> Any:
        is_formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@"))
        return f"'{value}" if is_formula else value

    written = frame.rename(columns=inert)
    for column in written.columns[[not is_numeric_dtype(t) for t in written.dtypes]]:
        written[column] = written[column].map(inert)
    return written.to_csv(index=False)
