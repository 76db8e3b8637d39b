"""How every figure looks, how it is written as SVG and PNG, and where its labels go."""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

# Okabe and Ito's palette, which most colour-blind people can tell apart, dark ones first.
BLUE, VERMILION, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, YELLOW = "#E69F00", "#56B4E9", "#000000", "#F0E442"
PALETTE = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, BLACK, YELLOW)
GREY, PALE = "#6B6B6B", "#D0D0D0"
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">")
WIDTH = 7.4

_STYLE = {
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
        """The SVG for use inside an HTML page."""
        body = self.svg[self.svg.index("<svg") :]
        body = re.sub(r'\s(?:xmlns(?::xlink)?|version|width|height)="[^"]*"', "", body, count=0)
        return body.replace("xlink:href", "href").strip()


@contextmanager
def style() -> Iterator[None]:
    """Apply the common look while a figure is drawn and written."""
    with mpl.rc_context(_STYLE):
        yield


def new_figure(height: float) -> tuple[Figure, Axes]:
    """Return an empty figure of common width and `height` in inches, with one pair of axes."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def finish(figure: Figure, slug: str, title: str, caption: str, data: pd.DataFrame) -> Drawing:
    """Write a figure as SVG and PNG, the same bytes every time."""
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


def text_colour_on(colour: str) -> str:
    """Black or white, whichever reads better on a colour."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "#FFFFFF" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.55 else "#000000"


_OFFSETS = (
    *((8, 0), (-8, 0), (0, 10), (0, -10), (8, 10), (8, -10), (-8, 10), (-8, -10)),
    *((dx, dy) for far in range(22, 160, 12) for dx in (0, 30, -30, 70, -70) for dy in (far, -far)),
)


def label_points(axes: Axes, points: Sequence[tuple[float, float, str]]) -> list[Annotation]:
    """Write a label beside each point (x, y, label), where it covers no point and no label.

    Labels that have to go far get a thin line to their point. Call when the axes are complete.
    """
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    marks = [axes.transData.transform((x, y)) for x, y, _ in points]
    taken = [Bbox.from_extents(x - 6, y - 6, x + 6, y + 6) for x, y in marks]
    inside = axes.get_window_extent()
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
