"""The figure of a page of flame graphs: what is drawn, how wide, in which colour."""

import pytest
from made_up_profiles import COMPILED, COPY, PLAN, PROBLEM, UPSTREAM, profile

from harness.measuring.profile.flame_graph import Frame
from harness.model.errors import UsageError
from reports.core.drawing import canvas
from reports.docs.blocks import record
from reports.profile.figure import draw_flames
from reports.profile.page import flame_page, read_data


@pytest.fixture
def draw(monkeypatch):
    """Return a function that draws data, and returns the drawing and matplotlib's figure."""
    figures = []
    finish = canvas.finish
    monkeypatch.setattr(canvas, "finish", lambda *args: figures.append(args[0]) or finish(*args))

    def drawn(data, problem=PROBLEM):
        with canvas.style():
            return draw_flames(data, problem), figures[-1]

    return drawn


def data_of(*profiles):
    return read_data(flame_page(profiles, PROBLEM), "page.html")


def test_the_data_of_a_page_are_read_back():
    data = data_of(UPSTREAM, COMPILED)
    assert data.variants == ("upstream", "compiled")
    root, plan, copy = data.nodes
    assert [data.frames[node.frame][1] for node in (plan, copy)] == [PLAN.text, COPY.text]
    assert (root.total, root.total_against) == pytest.approx((3.05, 1.22))
    assert (plan.parent, copy.parent, copy.own_against) == (0, 1, 0)


@pytest.mark.parametrize(
    "text", ["", "<html>", '<script id="data" type="application/json">[]</script>']
)
def test_any_other_text_is_refused(text):
    with pytest.raises(UsageError, match=r"^page\.html is no page of flame graphs\.$"):
        read_data(text, "page.html")


def test_frames_lie_below_their_caller_side_by_side_and_as_wide_as_their_time(draw):
    first, second, narrow = (Frame("m", name) for name in ("first", "second", "narrow"))
    mine = {(first,): 1.0, (first, second): 1.0, (narrow,): 0.01, (second,): 2.0}
    drawing, figure = draw(data_of(profile(mine), profile({(second,): 2.0}, "compiled")))
    bars = [bar.get_bbox() for bar in figure.axes[0].patches]
    whole = 4.01
    assert [(box.y0, box.x0 * whole, box.width * whole) for box in bars] == [
        pytest.approx(one) for one in [(0, 0, whole), (1, 0, 2), (2, 0, 1), (1, 2.01, 2)]
    ]
    assert drawing.data["frame"].tolist()[1:] == ["m.first", "m.second", "m.second"]
    assert "narrow" not in drawing.svg


def test_colours_say_which_variant_takes_more(draw):
    mine = {(PLAN,): 1.0, (COPY,): 1.0}
    drawing, figure = draw(data_of(profile(mine), profile({**mine, (PLAN,): 4.0}, "slower")))
    red, grey, blue = (key.get_facecolor() for key in figure.legends[0].legend_handles)
    _, copy, plan = (bar.get_facecolor() for bar in figure.axes[0].patches)
    assert drawing.data["frame"].tolist()[1:] == [COPY.text, PLAN.text]
    assert (copy, plan) == (grey, blue)
    assert len({red, grey, blue}) == 3


def test_no_name_of_the_recorded_profile_leaves_its_frame(draw):
    declared = record().declared.profile[0]
    page = record().page_of(declared)
    _, figure = draw(read_data(page.read_text(), str(page)), declared.problem)
    figure.draw_without_rendering()  # the last text was measured for a PNG of another resolution
    for bar, text in zip(figure.axes[0].patches, figure.axes[0].texts, strict=True):
        frame, name = bar.get_window_extent(), text.get_window_extent()
        assert not text.get_text() or name.x1 <= frame.x1 + 1, text.get_text()
        assert name.height <= frame.height
