"""Draw the figures of README and docs from the record.

`python -m reports.docs.figures` writes them; with `--check` it ends with 1 if one is outdated.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.model.errors import UsageError
from reports.core import canvas
from reports.core.canvas import Drawing
from reports.docs.blocks import family_views, recorded_systems
from reports.family.growth import draw_growth
from reports.family.ladder import draw_ladder
from reports.family.quality import draw_fronts
from reports.report.systems import draw_overview

FOLDER = Path("docs/figures")


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
