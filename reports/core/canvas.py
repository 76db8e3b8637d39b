"""The common style of all figures, the chart of rows that most of them are, and their SVG files."""

import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from reports.core.formatting import number, seconds

# Okabe and Ito's palette, which most colour-blind people can distinguish. A grey replaces its
# yellow, which is too pale for a line on white.
BLUE, VERMILION, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, SILVER = "#E69F00", "#56B4E9", "#000000", "#767676"
PALETTE = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, BLACK, SILVER)
GREY, PALE, GRID = "#6B6B6B", "#D0D0D0", "#E4E4E4"
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">")
WIDTH = 7.4
_WRITE_NUMBER = partial(number, trim=True)
_LONGEST_NAME = 50

_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "text.parse_math": False,
    "svg.fonttype": "none",
}

NUMBERS = [step * 10.0**power for power in range(-9, 13) for step in (1, 2, 5)]
TIMES = [
    *(step * 10.0**power for power in range(-9, 1) for step in (1, 2, 5)),
    *(10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0),
    *(step * 3600.0 for step in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
]
_ROUNDEST = {*(10.0**power for power in range(-9, 13)), 60.0, 600.0, 3600.0, 36000.0}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A finished figure with its data; `slug` is unique in a report and names the files."""

    slug: str
    title: str
    caption: str
    data: pd.DataFrame
    svg: str


@contextmanager
def style() -> Iterator[None]:
    """Apply the common style while a figure is drawn and written."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # Characters that the font lacks are drawn as boxes; the page's table has the text.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        warnings.filterwarnings("ignore", "constrained_layout not applied", UserWarning)
        yield


def blank_figure(height: float, width: float = WIDTH) -> Figure:
    """Return a figure of `height` and `width` in inches, without axes."""
    return Figure(figsize=(width, height), layout="constrained")


def new_figure(height: float) -> tuple[Figure, Axes]:
    """Return an empty figure of `height` in inches, and its only Axes."""
    figure = blank_figure(height)
    return figure, figure.subplots()


def finish(figure: Figure, slug: str, title: str, caption: str, data: pd.DataFrame) -> Drawing:
    """Render a figure as SVG; equal figures give equal bytes."""
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_text(short(text.get_text()))
    svg = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": slug}):
        figure.savefig(svg, format="svg", metadata={"Creator": None, "Date": None})
    return Drawing(slug, title, caption, data, svg.getvalue())


def short(text: str, most: int = 100) -> str:
    """Cut the middle of lines longer than `most` characters; join more than four lines into one."""
    lines = text.split("\n")
    if len(lines) > 4:
        lines = [" ".join(lines)]
    return "\n".join(
        line if len(line) <= most else f"{line[: most - 16]}…{line[-15:]}" for line in lines
    )


def colour_of(position: int) -> str:
    """Return the colour of a family's nth variant or part, the same in all of its figures."""
    return PALETTE[position % len(PALETTE)]


def write_time(value: float) -> str:
    """Write the time at a tick, given in seconds, without zeros at its end."""
    return seconds(float(value), trim=True)


def log_axis(
    axis: Axis,
    write: Callable[[float], str] = _WRITE_NUMBER,
    among: Sequence[float] = NUMBERS,
) -> None:
    """Make an axis logarithmic, with about eight ticks `among` these round values."""
    axes = axis.axes
    axes.set(**{"xscale" if axis is axes.xaxis else "yscale": "log"})
    low, high = axis.get_view_interval()
    ticks = [tick for tick in among if low * 0.999 <= tick <= high * 1.001]
    if len(ticks) > 8:
        ticks = [tick for tick in ticks if tick in _ROUNDEST]
    shown = ticks[:: math.ceil(len(ticks) / 8)] if ticks else [low, high]
    axis.set_major_locator(FixedLocator(shown))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda tick, _: write(float(tick))))


def key(label: str, **look: Any) -> Line2D:
    """Return a legend entry for lines or points with these matplotlib properties."""
    return Line2D([], [], label=label, **look)


@dataclass(frozen=True, slots=True)
class Mark:
    """A value in a row of a chart, the ends of its interval, and the text to its right.

    A hollow mark is no measurement. Only the text is drawn if the value is NaN.
    """

    value: float
    text: str = ""
    low: float = math.nan
    high: float = math.nan
    is_hollow: bool = False


Looks = Mapping[str, tuple[str, str]]
"""The colour and the marker of each series, in the order of the legend."""


def draw_rows(
    axes: Axes, names: Sequence[str], series: Mapping[str, Sequence[Mark]], looks: Looks, scale: str
) -> None:
    """Draw rows with a mark of each series, from the top down, on a logarithmic axis around 1.

    `names` and the marks of a series have one entry per row. `scale` is the label of the axis.
    """
    ends = [
        end
        for marks in series.values()
        for mark in marks
        for end in (mark.value, mark.low, mark.high)
        if 0 < end < math.inf
    ]
    axes.set_xscale("log")
    axes.set_xlim(min([*ends, 1.0]) * 0.8, max([*ends, 2.0]) * 1.25)
    for turn, (name, marks) in enumerate(series.items()):
        colour, marker = looks[name]
        for row, mark in enumerate(marks):
            height = row + 0.34 * (turn - (len(series) - 1) / 2)
            end, ink = mark.value, BLACK
            if math.isnan(end):
                end, ink = axes.get_xlim()[0], GREY
            else:
                face = "white" if mark.is_hollow else colour
                axes.plot(end, height, marker, color=colour, markersize=5.5, markerfacecolor=face)
            if math.isfinite(mark.low) and math.isfinite(mark.high):
                axes.plot((mark.low, mark.high), (height, height), color=colour, linewidth=1.6)
                end = max(end, mark.high)
            white = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}  # hides the grid
            look: dict[str, Any] = {"va": "center", "fontsize": 8, "color": ink, "bbox": white}
            axes.annotate(mark.text, (end, height), (6, 0), textcoords="offset points", **look)
    axes.axvline(1.0, color=GREY, linewidth=0.8)
    axes.hlines([row - 0.5 for row in range(1, len(names))], *axes.get_xlim(), GRID, linewidth=0.8)
    log_axis(axes.xaxis)
    axes.set_yticks(range(len(names)), [short(name, _LONGEST_NAME) for name in names])
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_xlabel(scale)


def legend_above(figure: Figure, looks: Looks, *others: Line2D) -> None:
    """Write a legend above a figure, in three columns: an entry per series, then the others."""
    keys = [
        key(name, color=colour, marker=marker, linestyle="none")
        for name, (colour, marker) in looks.items()
    ]
    figure.legend(handles=[*keys, *others], loc="outside upper left", ncols=3)
