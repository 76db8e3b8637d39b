"""The figure of a profile: the upper part of the flame graph on its page, in the page's colours."""

import math
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from reports.core import templating
from reports.core.drawing import canvas
from reports.core.drawing.canvas import Drawing
from reports.core.formatting import seconds
from reports.profile.page import FlameData, FlameNode

_ROWS = 14
_LEAST_SHARE = 0.01  # of the width; a narrower frame is left out
_LETTER = 0.0089  # the width of a letter, as a share of the figure's
_FEWEST_LETTERS = 4


class _Box(NamedTuple):
    node: FlameNode
    name: str
    label: str
    left: float
    width: float
    row: int


def draw_flames(data: FlameData, problem: str) -> Drawing:
    """Draw the upper frames of a page about two variants on `problem`, wide as their time."""
    boxes = list(_boxes(data))
    first, last = data.variants[0], data.variants[-1]
    rows = 1 + max(box.row for box in boxes)
    figure, axes = canvas.new_figure(0.5 + 0.2 * rows)
    for box in boxes:
        _draw_box(axes, box, data.variants)
    axes.set(xlim=(0, 1), ylim=(rows, 0))
    axes.set_axis_off()
    keys = {
        "more-3": f"{first} takes more",
        "same": "no difference beyond the noise",
        "less-3": f"{last} takes more",
    }
    canvas.legend_above(figure, *(Patch(color=_colours()[k], label=keys[k]) for k in keys))
    root = boxes[0].node
    caption = (
        f"`{first}` ({seconds(root.total)} per call under the profiler) against `{last}` "
        f"({seconds(root.total_against)}) on `{problem}`. Callers are above what they call; frames "
        "below the lowest row, and frames too narrow to be seen, are left out."
    )
    table = pd.DataFrame(
        [(box.row, box.name, box.node.total, box.node.total_against) for box in boxes],
        columns=["row", "frame", f"seconds in {first}", f"seconds in {last}"],
    )
    return canvas.finish(figure, "flames", "Flame graph of a difference", caption, table)


def _boxes(data: FlameData) -> Iterator[_Box]:
    """Yield the frames in view, each within the width of its caller, right of those before it."""
    rows: list[int] = []
    free: list[float] = []  # by node, where the next frame that it calls begins
    for node in data.nodes:
        width = node.width / data.nodes[0].width
        row, left = (rows[node.parent] + 1, free[node.parent]) if rows else (0, 0.0)
        if rows:
            free[node.parent] += width
        rows.append(row)
        free.append(left)
        if row < _ROWS and width >= _LEAST_SHARE:
            module, name = data.frames[node.frame]
            yield _Box(node, name, _label(module, name, width), left, width, row)


def _label(module: str, name: str, width: float) -> str:
    """Return a frame's name, without its module or cut if there is no room for it."""
    letters = int(width / _LETTER)
    short = name if len(name) <= letters else name.removeprefix(f"{module}.")
    if len(short) <= letters:
        return short
    return f"{short[: letters - 1]}…" if letters >= _FEWEST_LETTERS else ""


def _draw_box(axes: Axes, box: _Box, variants: tuple[str, ...]) -> None:
    kind = _kind(box.node)
    look: dict[str, Any] = {"color": _colours()[kind], "edgecolor": "white", "linewidth": 0.8}
    (drawn,) = axes.barh(box.row, box.width, 1, box.left, align="edge", **look)
    times = zip(variants, (box.node.total, box.node.total_against), strict=True)
    canvas.mark(drawn, "; ".join([box.name, *(f"{name} {seconds(time)}" for name, time in times)]))
    ink = _colours().get(f"ink{kind[4:]}", canvas.BLACK)  # of more-3 and less-3, it is ink-3
    axes.text(box.left + 0.004, box.row + 0.5, box.label, color=ink, va="center", fontsize=7)


def _kind(node: FlameNode) -> str:
    """Return the class of a frame's colour, as the page's script does."""
    if not node.differs:
        return "same"
    mine, against = node.total, node.total_against
    step = min(4, math.ceil(4 * abs(mine - against) / max(mine, against)))
    return f"{'more' if mine > against else 'less'}-{step}"


@cache
def _colours() -> dict[str, str]:
    """Return the colours of the page in light mode, by the names in its style sheet."""
    css = (templating.FOLDER / "flames.css").read_text()
    return dict(re.findall(r"--([\w-]+): (#\w{6})", css.partition("@media")[0]))
