"""Reports whose figures nobody looks at need none."""

import pytest
from matplotlib.figure import Figure


@pytest.fixture
def undrawn(monkeypatch):
    """Leave all figures blank: drawing them is most of what a report takes."""

    def blank(figure, file, format, **options):
        file.write("<svg></svg>" if format == "svg" else b"")

    monkeypatch.setattr(Figure, "savefig", blank)
    monkeypatch.setattr(Figure, "draw_without_rendering", lambda figure: None)
