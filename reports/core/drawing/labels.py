"""Labels of points on figures, without overlaps."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from reports.core.drawing.canvas import GREY, settle

_OFFSETS = (
    *((8, 0), (-8, 0), (0, 10), (0, -10), (8, 10), (8, -10), (-8, 10), (-8, -10)),
    *((dx, dy) for far in range(22, 160, 12) for dx in (0, 30, -30, 70, -70) for dy in (far, -far)),
)


def label_points(
    axes: Axes, points: Sequence[tuple[float, float, str]], lines: Sequence[float] = ()
) -> list[Annotation]:
    """Write each label near its point (x, y, label) so that it covers no point, label or line.

    `lines` are the y values of horizontal lines. A thin line joins a distant label to its point.
    Call this when everything else is drawn.
    """
    settle(axes)
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
            is_inside = inside.containsx(box.x0) and inside.containsx(box.x1)
            is_inside = is_inside and inside.containsy(box.y0) and inside.containsy(box.y1)
            if is_inside and not box.count_overlaps(taken):
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
