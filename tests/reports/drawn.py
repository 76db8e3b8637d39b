"""Drawings of made-up results, with their matplotlib figures."""

import pytest
from made_up_results import family_of
from matplotlib.text import Text

from reports.core import canvas
from reports.family.page import family_chapter


def draw(folder, lines, kind=None):
    """Draw all figures of results, or those of one function `kind`.

    Return each drawing with its matplotlib figure, by slug.
    """
    made, finish = [], canvas.finish

    def keep(figure, *rest):
        made.append(figure)
        return finish(figure, *rest)

    family = family_of(folder, lines)
    with pytest.MonkeyPatch.context() as patch, canvas.style():
        patch.setattr(canvas, "finish", keep)
        chapter = None if kind else family_chapter(family, [], [], {})
        found = list(kind(family)) if kind else [d for s in chapter.sections for d in s.drawings]
    return {d.slug: (d, figure) for d, figure in zip(found, made, strict=True)}


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


def said_in(figure):
    """Return a figure's visible texts as a set of strings."""
    return {text.get_text() for text in texts_of(figure)}
