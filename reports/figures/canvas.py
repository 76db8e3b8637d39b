"""How every figure looks, how it is written as SVG and PNG, and where its labels go."""

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, MultipleLocator, NullLocator
from matplotlib.transforms import Bbox

from reports.formatting import number, seconds

# Okabe and Ito's palette, which most colour-blind people can tell apart. Its yellow is left out,
# too pale for a line on white, and a grey added.
BLUE, VERMILION, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, SILVER = "#E69F00", "#56B4E9", "#000000", "#767676"
PALETTE = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, BLACK, SILVER)
GREY, PALE = "#6B6B6B", "#D0D0D0"
HATCHES = ("", "///", "\\\\\\\\\\\\", "---", "|||", "xxx", "+++", "/|/|", "-\\\\-\\\\")
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">")
WIDTH = 7.4

# What turns around in dark mode, by the variable of the page's style that it becomes there.
_NEUTRAL = {
    "#000000": "ink",
    "#ffffff": "card",
    "#333333": "ink",
    GREY.lower(): "figure-grey",
    PALE.lower(): "figure-pale",
    "#e4e4e4": "figure-grid",
}
_PAINT = re.compile(r"\b(fill|stroke): (#[0-9a-f]{6})")
# Black and white that stay, because they stand on a colour that stays.
_WHITE_ON_COLOUR, _BLACK_ON_COLOUR = "#FEFEFE", "#010101"

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

    `svg` is a whole SVG file, `inline` the same without what HTML must not hold twice. The ids of
    both start with `slug`, which is unique in a report and names the files.
    """

    slug: str
    title: str
    caption: str
    data: pd.DataFrame
    svg: str
    png: bytes

    @property
    def inline(self) -> str:
        """The SVG for use inside an HTML page, whose style sheet says what is light and dark."""
        body = self.svg[self.svg.index("<svg") :]
        head, rest = body.split(">", 1)
        head = re.sub(r'\s(?:xmlns(?::xlink)?|version|width|height)="[^"]*"', "", head)
        return _PAINT.sub(_themed, f"{head}>{rest}".replace("xlink:href", "href")).strip()


def _themed(paint: re.Match[str]) -> str:
    neutral = _NEUTRAL.get(paint[2])
    return f"{paint[1]}: var(--{neutral}, {paint[2]})" if neutral else paint[0]


@contextmanager
def style() -> Iterator[None]:
    """Apply the common look while a figure is drawn and written."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # A script that the font lacks is drawn as boxes, and the table has the text.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        warnings.filterwarnings("ignore", "constrained_layout not applied", UserWarning)
        yield


def new_figure(height: float) -> tuple[Figure, Axes]:
    """Return an empty figure of common width and `height` in inches, with one pair of axes."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def finish(figure: Figure, slug: str, title: str, caption: str, data: pd.DataFrame) -> Drawing:
    """Write a figure as SVG and PNG, the same bytes every time."""
    _shorten_texts(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # all has its place, which each file would seek anew, twice
    svg, png = io.StringIO(), io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": slug}):
        empty = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(svg, format="svg", metadata=empty)
    figure.savefig(png, format="png", dpi=200, metadata={"Software": None})
    return Drawing(slug, title, caption, data, _own_ids(svg.getvalue(), slug), png.getvalue())


def _own_ids(svg: str, slug: str) -> str:
    """Give every id of an SVG file a prefix, so that several can stand in one page."""
    svg = re.sub(r'\bid="', f'id="{slug}-', svg)
    svg = re.sub(r'href="#', f'href="#{slug}-', svg)
    svg = svg.replace("url(#", f"url(#{slug}-")
    # matplotlib's style sheet would reach beyond its figure once the SVG stands in a page.
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    return svg.replace("<svg ", '<svg stroke-linejoin="round" stroke-linecap="butt" ', 1)


def colour_of(position: int) -> str:
    """The colour of the nth variant or phase of a family, the same in all of its figures."""
    return PALETTE[position % len(PALETTE)]


def is_repeated(position: int) -> bool:
    """Whether the nth colour was used before, so that a line must tell the two apart."""
    return position >= len(PALETTE)


def hatch_of(position: int) -> str:
    """The pattern of the nth phase, which tells it from the others in print without colours.

    There is one more pattern than colours, so that the two do not repeat together.
    """
    return HATCHES[position % len(HATCHES)]


def luminance(colour: str) -> float:
    """Relative luminance of an sRGB colour `#RRGGBB`, from 0 to 1 (WCAG 2.2)."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast of two sRGB colours, from 1 to 21 (WCAG 2.2)."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def text_colour_on(colour: str) -> str:
    """Black or white, whichever reads better on a colour, in the dark as by day."""
    if colour in (BLACK, PALE):  # these turn around in the dark, and so must what stands on them
        return "#FFFFFF" if colour == BLACK else "#000000"
    return max(_WHITE_ON_COLOUR, _BLACK_ON_COLOUR, key=lambda each: contrast(each, colour))


_MINUTE, _HOUR = 60.0, 3600.0
_ROUND_TIMES = (
    *(step * 10.0**power for power in range(-9, 1) for step in (1, 2, 5)),
    *(10.0, 20.0, 30.0),
    *(step * unit for unit in (_MINUTE, _HOUR) for step in (1, 2, 5, 10, 20, 30)),
    *(step * 10.0**power * _HOUR for power in (2, 3) for step in (1, 2, 5)),
)
_FEW_TIMES = (*(10.0**power for power in range(-9, 2)), _MINUTE, 10 * _MINUTE, _HOUR, 10 * _HOUR)


def log_time(axes: Axes, which: Literal["x", "y"]) -> None:
    """Make an axis logarithmic in seconds, with ticks at round times."""
    if which == "x":
        axes.set_xscale("log")
        low, high = axes.get_xlim()
    else:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
    ticks = [time for time in _ROUND_TIMES if low <= time <= high]
    if len(ticks) > 8:
        ticks = [time for time in _FEW_TIMES if low <= time <= high]
    if len(ticks) < 3:
        ticks = [time for time in MaxNLocator(5).tick_values(low, high) if low <= time <= high]
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(TIME)


_ROUND = [step * 10.0**power for power in range(-9, 10) for step in (1, 2, 5)]


def log_number(axes: Axes) -> None:
    """Make the x axis logarithmic, with ticks at 1, 2, 5, 10 and so on."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    ticks = [tick for tick in _ROUND if low * 0.999 <= tick <= high]
    if len(ticks) > 9:
        ticks = [tick for tick in ticks if f"{tick:e}".startswith("1")]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: number(float(tick), trim=True)))


TIME = FuncFormatter(lambda time, _: seconds(time, trim=True))


def linear_time(axes: Axes) -> None:
    """Give an x axis from 0, in seconds, ticks at multiples of a round time."""
    longest = axes.get_xlim()[1]
    step = next((time for time in _ROUND_TIMES if longest <= 6 * time), longest / 5)
    axes.xaxis.set_major_locator(MultipleLocator(step))
    axes.xaxis.set_major_formatter(TIME)


def write_beside(axes: Axes, x: float, y: float, text: str, colour: str = "black") -> None:
    """Write a text to the right of (x, y), on white so that no grid line crosses it."""
    axes.annotate(
        text,
        (x, y),
        (6, 0),
        textcoords="offset points",
        va="center",
        color=colour,
        fontsize=8.5,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
    )


def make_room(axes: Axes) -> None:
    """Let the x axis run from 0 to where every text beside a bar still fits."""
    _settle(axes)
    width = axes.get_window_extent().width
    needed = [axes.dataLim.x1 * 1.02]
    for text in axes.texts:
        if isinstance(text, Annotation):
            left = width - text.get_window_extent().width - 16
            needed.append(text.xy[0] * width / max(left, width / 3))
    axes.set_xlim(0, max(needed))


def make_log_room(axes: Axes) -> None:
    """Let a logarithmic x axis run on to where every text beside a bar still fits."""
    _settle(axes)
    width = axes.get_window_extent().width
    low, high = axes.get_xlim()
    needed = [math.log(high / low)]
    for text in axes.texts:
        if isinstance(text, Annotation) and text.xycoords == "data":
            left = width - text.get_window_extent().width - 16
            needed.append(math.log(text.xy[0] / low) * width / max(left, width / 3))
    axes.set_xlim(low, low * math.exp(max(needed)))


def _settle(axes: Axes) -> None:
    figure = axes.figure
    assert isinstance(figure, Figure)
    _shorten_texts(figure)
    figure.draw_without_rendering()


def short(text: str, most: int = _LONGEST_LINE) -> str:
    """Leave out the middle of a text's lines that would not fit a figure, and join many lines."""
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


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Write a name at each row of horizontal bars, from the top down."""
    axes.set_yticks(range(len(names)), [short(name, LONGEST_NAME) for name in names])
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)


_OFFSETS = (
    *((8, 0), (-8, 0), (0, 10), (0, -10), (8, 10), (8, -10), (-8, 10), (-8, -10)),
    *((dx, dy) for far in range(22, 160, 12) for dx in (0, 30, -30, 70, -70) for dy in (far, -far)),
)


def label_points(
    axes: Axes, points: Sequence[tuple[float, float, str]], lines: Sequence[float] = ()
) -> list[Annotation]:
    """Write a label beside each point (x, y, label), where it covers no point and no label.

    Nor does it cover the horizontal `lines`, given by their y. Labels that have to go far get a
    thin line to their point. Call when the axes are complete.
    """
    _settle(axes)
    marks = [axes.transData.transform((x, y)) for x, y, _ in points]
    taken = [Bbox.from_extents(x - 6, y - 6, x + 6, y + 6) for x, y in marks]
    inside = axes.get_window_extent()
    heights = [axes.transData.transform((points[0][0], y))[1] for y in lines]
    taken += [Bbox.from_extents(inside.x0, y - 1, inside.x1, y + 1) for y in heights]
    labels = []
    for x, y, text in points:
        label = axes.annotate(text, (x, y), (0, 0), textcoords="offset points", fontsize=8.5)
        for dx, dy in _OFFSETS:
            _place(label, dx, dy)
            box = label.get_window_extent().padded(2)
            within = inside.x0 <= box.x0 <= box.x1 <= inside.x1
            if (
                within
                and inside.y0 <= box.y0
                and box.y1 <= inside.y1
                and not box.count_overlaps(taken)
            ):
                break
        taken.append(box)
        if abs(dx) + abs(dy) > 20:
            axes.annotate(
                "",
                (x, y),
                (dx, dy - 4 if dy > 0 else dy + 4),
                textcoords="offset points",
                arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.6, "shrinkB": 4},
            )
        labels.append(label)
    return labels


def _place(label: Annotation, dx: float, dy: float) -> None:
    label.set_position((dx, dy))
    label.set_horizontalalignment("left" if dx > 0 else "right" if dx < 0 else "center")
    label.set_verticalalignment("bottom" if dy > 0 else "top" if dy < 0 else "center")
