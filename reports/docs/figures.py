"""Draw the figures of README and docs from the record.

`python -m reports.docs.figures` writes them; with `--check` it ends with 1 if one is outdated.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
from matplotlib.colors import to_rgb

from harness.model.errors import UsageError
from harness.model.files import read_file
from reports.core import canvas
from reports.core.canvas import BLUE, VERMILION, Drawing
from reports.core.formatting import seconds
from reports.docs.blocks import family_views, record, recorded_systems
from reports.family.figures import draw_fronts, draw_growth, draw_ladder
from reports.flames import FlameData, read_data
from reports.report.figure import draw_overview

FOLDER = Path("docs/figures")

_ROWS = 14
_LEAST_SHARE = 0.01  # of the width; a narrower frame is left out
_LETTERS = 112  # that fit into the figure's width
_FEWEST_LETTERS = 4
_PALE_GREY = 0.9


def _flames() -> Iterator[Drawing]:
    """Draw the first profile that the suite declares."""
    for profile in record().declared.profile[:1]:
        page = record().page_of(profile)
        yield draw_flames(read_data(read_file(page).decode(), str(page)), profile.problem)


def draw_flames(data: FlameData, problem: str) -> Drawing:
    """Draw the upper frames of a page about two variants on `problem`, wide as their time."""
    first, last = data.variants[0], data.variants[-1]
    rows: list[int] = []
    free: list[float] = []  # by node, where the next frame that it calls begins
    drawn = []
    figure, axes = canvas.new_figure(0.5 + 0.2 * _ROWS)
    for node in data.nodes:
        width = node.width / data.nodes[0].width
        row, left = (rows[node.parent] + 1, free[node.parent]) if rows else (0, 0.0)
        if rows:
            free[node.parent] += width
        rows.append(row)
        free.append(left)
        if row >= _ROWS or width < _LEAST_SHARE:
            continue
        module, name = data.frames[node.frame]
        drawn.append((row, name, node.total, node.total_against))
        # The more a frame differs, the stronger its colour, as on the page.
        colour = VERMILION if node.total > node.total_against else BLUE
        most = max(node.total, node.total_against)
        share = abs(node.total - node.total_against) / most if node.differs else 0.0
        face = [share * c + (1 - share) * _PALE_GREY for c in to_rgb(colour)]
        axes.barh(row, width, 1, left, align="edge", color=face, edgecolor="white", linewidth=0.8)
        letters = int(width * _LETTERS)
        label = name if len(name) <= letters else name.removeprefix(f"{module}.")
        if letters >= _FEWEST_LETTERS:
            axes.text(left + 0.004, row + 0.5, label[:letters], va="center", fontsize=7)
    axes.set(xlim=(0, 1), ylim=(1 + max(row for row, *_ in drawn), 0))
    axes.set_axis_off()
    more = {f"{first} takes more": VERMILION, f"{last} takes more": BLUE, "no difference": "0.9"}
    canvas.legend_above(figure, {name: (colour, "s") for name, colour in more.items()})
    root = data.nodes[0]
    caption = (
        f"`{first}` ({seconds(root.total)} per call under the profiler) against `{last}` "
        f"({seconds(root.total_against)}) on `{problem}`. Callers are above what they call; frames "
        "below the lowest row, and frames too narrow to be seen, are left out."
    )
    table = pd.DataFrame(
        drawn, columns=["row", "frame", f"seconds in {first}", f"seconds in {last}"]
    )
    return canvas.finish(figure, "flames", "Flame graph of a difference", caption, table)


def _of_family(
    name: str, draw: Callable[..., Iterator[Drawing]]
) -> Callable[[], Iterator[Drawing]]:
    return lambda: draw(family_views()[name])


def _growth_together() -> Iterator[Drawing]:
    """Draw the sweeps with more GPUs for more tables."""
    drawings = draw_growth(family_views()["embedding"])
    return (one for one in drawings if one.data["size_name"].str.contains("GPUs").any())


FIGURES: dict[str, Callable[[], Iterator[Drawing]]] = {
    "overview": lambda: draw_overview(recorded_systems()),
    "flames": _flames,
    "ladder": _of_family("embedding", draw_ladder),
    "growth": _of_family("embedding", draw_growth),
    "growth-together": _growth_together,
    "plans-that-move-little": _of_family("embedding", draw_fronts),
}
"""The figures by the names of their files; each is the first one that its function draws."""


def drawn(name: str) -> Drawing:
    """Draw a figure; raises UsageError if the record has nothing to draw it from."""
    with canvas.style():
        drawing = next(FIGURES[name](), None)
    if drawing is None:
        raise UsageError(f"The record has nothing to draw '{name}' from.")
    return drawing


def caption(name: str) -> str:
    """Return the caption of a figure, for a page that shows it; raises as `drawn` does."""
    return drawn(name).caption


def main(arguments: list[str]) -> None:
    """Write the figures, or with `--check` end with 1 and name the outdated ones."""
    wrong = []
    for name in FIGURES:
        path, svg = FOLDER / f"{name}.svg", drawn(name).svg
        if "--check" not in arguments:
            path.write_text(svg)
        elif not path.exists() or path.read_text() != svg:
            wrong.append(f"{path} differs from the record; `make figures` draws it.")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main(sys.argv[1:])
