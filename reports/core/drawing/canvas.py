"""The common style of all figures, helpers to draw them, and their files as SVG and PNG."""

import io
import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, MultipleLocator, NullLocator

from reports.core.formatting import interval, number, seconds

# Okabe and Ito's palette, which most colour-blind people can distinguish. A grey replaces its
# yellow, which is too pale for a line on white.
BLUE, VERMILION, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, SILVER = "#E69F00", "#56B4E9", "#000000", "#767676"
PALETTE = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, BLACK, SILVER)
GREY, PALE = "#6B6B6B", "#D0D0D0"
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">")
WIDTH = 7.4

# Neutral colours, which dark mode inverts, and the CSS variable of each in the page's style sheet.
_NEUTRAL = {
    "#000000": "ink",
    "#ffffff": "card",
    "#333333": "ink",
    GREY.lower(): "figure-grey",
    PALE.lower(): "figure-pale",
    "#e4e4e4": "figure-grid",
}
_MARKED = re.compile(r'<g id="(mark|key):(\d*):([^"]*)">')
_PAINT = re.compile(r"\b(fill|stroke): (#[0-9a-f]{6})")

_LONGEST_LINE, LONGEST_NAME, _MOST_LINES = 100, 50, 4

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
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "hatch.linewidth": 0.6,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "figure.dpi": 100.0,
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A finished figure with its data.

    `svg` is a complete SVG file, `inline` the same image to embed in HTML. The ids in both start
    with `slug`, which is unique in a report and is also the name of the files.
    """

    slug: str
    title: str
    caption: str
    data: pd.DataFrame
    svg: str
    png: bytes

    def as_file(self, suffix: str) -> str | bytes:
        """Return the content of a file with this suffix, `.svg` or `.png`."""
        return self.svg if suffix.lower() == ".svg" else self.png

    @property
    def inline(self) -> str:
        """The SVG for use inside an HTML page, where a style sheet sets light and dark colours."""
        body = self.svg[self.svg.index("<svg") :]
        head, rest = body.split(">", 1)
        head = re.sub(r'\s(?:xmlns(?::xlink)?|version|width|height)="[^"]*"', "", head)
        return _PAINT.sub(_themed, f"{head}>{rest}".replace("xlink:href", "href")).strip()


def _themed(paint: re.Match[str]) -> str:
    neutral = _NEUTRAL.get(paint[2])
    return f"{paint[1]}: var(--{neutral}, {paint[2]})" if neutral else paint[0]


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
    """Return an empty figure of common width and `height` in inches, and its only Axes."""
    figure = blank_figure(height)
    return figure, figure.subplots()


def finish(figure: Figure, slug: str, title: str, caption: str, data: pd.DataFrame) -> Drawing:
    """Render a figure as SVG and PNG; equal figures give equal bytes."""
    _shorten_texts(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # the layout is final; saving would compute it twice per file
    svg, png = io.StringIO(), io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": slug}):
        empty = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(svg, format="svg", metadata=empty)
    figure.savefig(png, format="png", dpi=200, metadata={"Software": None})
    written = _own_ids(_with_marks(svg.getvalue()), slug)
    return Drawing(slug, title, caption, data, written, png.getvalue())


def mark(artist: Artist, tooltip: str, series: int | None = None) -> None:
    """Attach a tooltip to an artist; a click on the legend's entry number `series` hides it."""
    plain = tooltip.replace('"', "'")  # the SVG puts it between double quotes
    artist.set_gid(f"mark:{'' if series is None else series}:{plain}")


def _with_marks(svg: str) -> str:
    """Replace the ids set by `mark` and `make_switches` with titles and data attributes."""
    places = itertools.count(1)

    def written(found: re.Match[str]) -> str:
        kind, series, tooltip = found.groups()  # the text was escaped for an attribute
        name = "series" if kind == "mark" else "key"
        of = f' data-{name}="{series}"' if series else ""
        title = f"<title>{tooltip}</title>" if tooltip else ""
        return f'<g id="{kind}-{next(places)}"{of}>{title}'

    return _MARKED.sub(written, svg)


def _own_ids(svg: str, slug: str) -> str:
    """Prefix every id of an SVG file with `slug`, so that one page can contain several figures."""
    svg = re.sub(r'\bid="', f'id="{slug}-', svg)
    svg = re.sub(r'href="#', f'href="#{slug}-', svg)
    svg = svg.replace("url(#", f"url(#{slug}-")
    # In a page, matplotlib's style sheet would apply to more than its own figure.
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    return svg.replace("<svg ", '<svg stroke-linejoin="round" stroke-linecap="butt" ', 1)


def colour_of(position: int) -> str:
    """Return the colour of a family's nth variant or part, the same in all of its figures."""
    return PALETTE[position % len(PALETTE)]


Ends = tuple[float, float]
"""The lower and the upper end of an interval; NaN where there is none."""
NO_ENDS: Ends = (math.nan, math.nan)

_MINUTE, _HOUR = 60.0, 3600.0
_ROUND_TIMES = (
    *(step * 10.0**power for power in range(-9, 1) for step in (1, 2, 5)),
    *(10.0, 20.0, 30.0),
    *(step * unit for unit in (_MINUTE, _HOUR) for step in (1, 2, 5, 10, 20, 30)),
    *(step * 10.0**power * _HOUR for power in (2, 3) for step in (1, 2, 5)),
)
_FEW_TIMES = (*(10.0**power for power in range(-9, 2)), _MINUTE, 10 * _MINUTE, _HOUR, 10 * _HOUR)


ROUND_NUMBERS = [step * 10.0**power for power in range(-9, 10) for step in (1, 2, 5)]


def log_time(axes: Axes, which: Literal["x", "y"]) -> None:
    """Make an axis logarithmic in seconds, with ticks at round times."""
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    ticks = [time for time in _ROUND_TIMES if low <= time <= high]
    if len(ticks) > 8:
        ticks = [time for time in _FEW_TIMES if low <= time <= high]
    if len(ticks) < 3:
        ticks = [time for time in MaxNLocator(5).tick_values(low, high) if low <= time <= high]
    set_ticks(axis, ticks, _time)


def log_number(axes: Axes) -> None:
    """Make the x axis logarithmic, with ticks at 1, 2, 5, 10 and so on."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    ticks = [tick for tick in ROUND_NUMBERS if low * 0.999 <= tick <= high]
    if len(ticks) > 9:
        ticks = [tick for tick in ticks if f"{tick:e}".startswith("1")]
    set_ticks(axes.xaxis, ticks, lambda tick: number(float(tick), trim=True))


def set_ticks(axis: Axis, ticks: Sequence[float], write: Callable[[float], str]) -> None:
    """Set the ticks of an axis and label them by `write`; remove all other ticks."""
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda tick, _: write(tick)))


def _time(tick: float) -> str:
    return seconds(tick, trim=True)


def linear_time(axes: Axes) -> None:
    """Set the ticks of an x axis, in seconds from 0, at multiples of a round time."""
    longest = axes.get_xlim()[1]
    step = next((time for time in _ROUND_TIMES if longest <= 6 * time), longest / 5)
    axes.xaxis.set_major_locator(MultipleLocator(step))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: _time(tick)))


def key(label: str, **look: Any) -> Line2D:
    """Return a legend entry for lines or points with these matplotlib properties."""
    return Line2D([], [], label=label, **look)


def make_switches(legend: Legend) -> None:
    """Let the nth entry of a legend hide and show the nth series, as `mark` numbers them."""
    for series, parts in enumerate(zip(legend.legend_handles, legend.texts, strict=True)):
        for part in filter(None, parts):
            part.set_gid(f"key:{series}:")


def legend_above(figure: Figure, *keys: Line2D | Patch) -> None:
    """Write a legend above a figure, in three columns."""
    figure.legend(handles=keys, loc="outside upper left", ncols=3)


def draw_interval(axes: Axes, place: float, value: float, ends: Ends, **look: Any) -> None:
    """Draw a value's interval as a horizontal error bar at the y position `place`."""
    low, high = ends
    axes.errorbar(value, place, xerr=[[value - low], [high - value]], capsize=3, **look)


def draw_bar(
    axes: Axes,
    place: float,
    value: float,
    text: str,
    name: str,
    ends: Ends = NO_ENDS,
    start: float = 0.0,
    text_colour: str = "black",
    **look: Any,
) -> None:
    """Draw a horizontal bar with its interval, if it has one, and write `text` to its right.

    The bar's tooltip is `name` and the same text. If the value is NaN, only `text` is written.
    """
    if math.isnan(value):
        colour = VERMILION if text_colour == "black" else text_colour
        write_right_of(axes, start, place, text, color=colour)
        return
    (bar,) = axes.barh(place, value - start, left=start, **look)
    end = max(value, start)
    if all(map(math.isfinite, ends)):
        draw_interval(axes, place, value, ends, color="black", linewidth=1)
        end, text = max(ends[1], start), f"{text} ({interval(*ends)})"
    mark(bar, f"{name}: {text}")
    write_right_of(axes, end, place, text, color=text_colour)


def write_right_of(axes: Axes, x: float, y: float, text: str, **look: Any) -> None:
    """Write a text to the right of (x, y), on white so that no grid line crosses it."""
    white = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    look = {"va": "center", "fontsize": 8.5, "bbox": white, **look}
    axes.annotate(text, (x, y), (6, 0), textcoords="offset points", **look)


def make_room(axes: Axes) -> None:
    """Extend the x axis until every text next to a bar fits; a linear axis starts at 0."""
    settle(axes)
    width = axes.get_window_extent().width
    low, high = axes.get_xlim()
    is_log = axes.get_xscale() == "log"
    needed = [math.log(high / low) if is_log else axes.dataLim.x1 * 1.02]
    for text in axes.texts:
        if isinstance(text, Annotation) and text.xycoords == "data":
            left = width - text.get_window_extent().width - 16
            far = math.log(text.xy[0] / low) if is_log else text.xy[0]
            needed.append(far * width / max(left, width / 3))
    axes.set_xlim(low if is_log else 0, low * math.exp(max(needed)) if is_log else max(needed))


def settle(axes: Axes) -> None:
    """Shorten texts and compute the figure's layout, so that the sizes of texts are known."""
    figure = axes.figure
    assert isinstance(figure, Figure)
    _shorten_texts(figure)
    figure.draw_without_rendering()


def short(text: str, most: int = _LONGEST_LINE) -> str:
    """Cut the middle of lines longer than `most` characters; join more than four lines into one."""
    lines = text.split("\n")
    if len(lines) > _MOST_LINES:
        lines = [" ".join(lines)]
    return "\n".join(
        line if len(line) <= most else f"{line[: most - 16]}…{line[-15:]}" for line in lines
    )


def _shorten_texts(figure: Figure) -> None:
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_text(short(text.get_text()))


def name_rows(axes: Axes, names: Sequence[str], scale: str = "") -> None:
    """Name each row of horizontal bars, from the top down, and label the x axis with `scale`."""
    axes.set_yticks(range(len(names)), [short(name, LONGEST_NAME) for name in names])
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    if scale:
        axes.grid(axis="x")
        axes.set_xlabel(scale)
