"""Drawings of made-up results, with their matplotlib figures."""

import pytest
from made_up_results import family_of
from matplotlib.text import Text

import reports.core.drawing.canvas
import reports.family.page
from reports.core.drawing.canvas import finish, style


def draw(folder, lines, kind=None):
    """Draw all figures of results, or those of one function `kind`.

    Return each drawing with its matplotlib figure, by slug.
    """
    made = []

    def keep(figure, *rest):
        made.append(figure)
        return finish(figure, *rest)

    family = family_of(folder, lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports.core.drawing.canvas, "finish", keep)
        if kind:
            with style():
                drawings = list(kind(family))
        else:
            drawings = [d for some in reports.family.page.figures(family).values() for d in some]
    return {d.slug: (d, figure) for d, figure in zip(drawings, made, strict=True)}


def texts_of(figure):
    """Return a figure's visible texts, without the tick labels beyond the ends of an axis."""
    figure.draw_without_rendering()
    outside = set()
    for axes in figure.axes:
        for axis, place in ((axes.xaxis, 0), (axes.yaxis, 1)):
            low, high = sorted(axis.get_view_interval())
            labels = axis.get_ticklabels(which="both")
            outside |= {t for t in labels if not low <= t.get_position()[place] <= high}
    texts = [t for t in figure.findobj(Text) if t.get_visible()]
    return [t for t in texts if t.get_text().strip() and t not in outside]
