import itertools
import random
import re
from xml.etree import ElementTree

import pytest
from drawn import draw, texts_of
from made_up_results import cell, family_lines, past_lines

from reports.core.drawing.canvas import new_figure, style
from reports.core.drawing.labels import label_points
from reports.family.growth import draw_growth
from reports.family.speedups import draw_speedups


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return draw(tmp_path_factory.mktemp("whole"), family_lines())


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    return draw(tmp_path_factory.mktemp("past"), [*family_lines(), *past_lines()])


def assert_no_overlap(figure):
    boxes = [(t.get_text(), t.get_window_extent()) for t in texts_of(figure)]
    page = figure.bbox.padded(1)
    for text, box in boxes:
        assert page.x0 <= box.x0 <= box.x1 <= page.x1, f"{text} is cut"
        assert page.y0 <= box.y0 <= box.y1 <= page.y1, f"{text} is cut"
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        assert not a.padded(-1).overlaps(b.padded(-1)), f"'{one}' and '{other}' overlap"


def crowded(count):
    """Return the lines of a family of many variants with long names and nearly equal times."""
    lines = [cell(boxes=boxes, decision="reference", seconds=boxes) for boxes in (10, 11, 12, 900)]
    for index in range(count):
        for boxes in (10, 11, 12, 900):
            ratio = 0.5 + 0.01 * index
            lines.append(
                cell(
                    f"a-variant-with-a-rather-long-name-{index}",
                    boxes=boxes,
                    seconds=ratio * boxes,
                    ratio=ratio,
                    same_as="slow-copy",
                    decision="same",
                    claim={"before": 1200 - 10 * index, "after": 1190 - 10 * index, "unit": "s"},
                )
            )
    return lines


def test_no_text_is_cut_or_lies_on_another(whole):
    for _, figure in whole.values():
        assert_no_overlap(figure)


def test_nor_beside_a_bound_or_a_projection(past):
    for _, figure in past.values():
        assert_no_overlap(figure)
    (axes,) = past["boxing-quality"][1].axes
    (bound,) = [line for line in axes.lines if line.get_linestyle() == "--"]
    height = axes.transData.transform((1, bound.get_ydata()[0]))[1]
    labels = [t for t in texts_of(past["boxing-quality"][1]) if t.get_text().endswith("%)")]
    assert len(labels) == 3
    for label in labels:
        box = label.get_window_extent()
        assert not box.y0 < height < box.y1, f"the bound crosses {label.get_text()}"


def test_nor_where_it_is_crowded(tmp_path):
    for _, figure in draw(tmp_path, crowded(8)).values():
        assert_no_overlap(figure)


@pytest.mark.parametrize("seed", [1, 2])
def test_labels_avoid_each_other_and_the_points(seed):
    place = random.Random(seed)
    points = [(place.random(), place.random() ** 3, f"label-{n}") for n in range(12)]
    with style():
        _, axes = new_figure(4.0)
        axes.plot(*zip(*[p[:2] for p in points], strict=True), "o")
        axes.margins(0.2)
        labels = label_points(axes, points)
        boxes = [label.get_window_extent() for label in labels]
        marks = [axes.transData.transform(p[:2]) for p in points]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert not any(box.contains(*mark) for box in boxes for mark in marks)


def test_every_view_is_drawn_with_its_data(whole):
    assert list(whole) == ["boxing-ladder", "boxing-size-1", "boxing-quality"]
    for drawing, _ in whole.values():
        assert drawing.png.startswith(b"\x89PNG")
        assert ElementTree.fromstring(drawing.svg).tag.endswith("svg")
        assert "variant" in drawing.data.columns


def test_the_same_results_give_the_same_bytes(whole, tmp_path):
    again = draw(tmp_path, family_lines())
    assert [(d.svg, d.png) for d, _ in again.values()] == [
        (d.svg, d.png) for d, _ in whole.values()
    ]


def test_text_stays_text_and_ids_are_the_figures_own(whole):
    ids = [i for d, _ in whole.values() for i in re.findall(r'\bid="([^"]*)"', d.inline)]
    assert len(ids) == len(set(ids))
    for slug, (drawing, _) in whole.items():
        used = re.findall(r'(?:url\(|href=")#([^")]*)', drawing.inline)
        assert used
        assert set(used) <= set(re.findall(r'\bid="([^"]*)"', drawing.inline))
        assert all(i.startswith(slug) for i in used)
        assert "<style" not in drawing.inline
        assert "http" not in drawing.inline
    assert ">quick-copy</text>" in whole["boxing-ladder"][0].inline


def test_the_ladder_shows_claims_beside_intervals(whole):
    said = {t.get_text() for t in texts_of(whole["boxing-ladder"][1])}
    assert "0.125 (10 min → 2.5 min)" in said
    assert "0.370 (0.355 to 0.389)" in said
    assert "no figure published (made-up/boxes#12)" in said


def test_a_different_decision_gets_words_in_place_of_a_bar(tmp_path):
    lines = family_lines((10,))
    lines[2] |= {"decision": "different"}
    made = draw(tmp_path, lines)
    said = {t.get_text() for t in texts_of(made["boxing-ladder"][1])}
    assert "different decision" in said
    assert not any(text.startswith("0.370") for text in said)
    assert "quick-copy" not in {t.get_text() for t in texts_of(made["boxing-quality"][1])}


def test_projections_are_hollow_and_named(whole):
    drawing, figure = whole["boxing-size-1"]
    hollow = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "white"]
    assert [line.get_ydata().tolist() for line in hollow] == [[1909.0]]
    said = {t.get_text() for t in texts_of(figure)}
    assert "projection, not measured" in said
    assert "slow-copy\nsize^1.50 (1.50 to 1.50)" in said
    assert drawing.data["projected"].sum() == 1


def test_a_name_is_not_read_as_a_formula(tmp_path):
    lines = [*family_lines((10,))[::5], cell("cost_$a^2$", ratio=0.4)]
    made = draw(tmp_path, lines)
    assert "cost_$a^2$" in made["boxing-quality"][0].svg


def test_the_quality_is_drawn_with_its_bound_and_the_gaps(past):
    drawing, figure = past["boxing-quality"]
    said = {t.get_text() for t in texts_of(figure)}
    assert {"proven bound", "certified (0.05 %)", "sorted (50.0 %)"} <= said
    (bound,) = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert list(bound.get_ydata()) == [2560.0, 2560.0]
    data = drawing.data.set_index("variant")
    assert data.loc["certified", "bound"] == 2560.0
    assert data.loc["certified", "gap"] == pytest.approx(0.0005)


def test_no_bound_is_drawn_where_there_is_none(whole):
    figure = whole["boxing-quality"][1]
    assert "proven bound" not in {t.get_text() for t in texts_of(figure)}
    assert not [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]


def test_speed_ups_are_drawn_and_projections_told_apart(past):
    drawing, figure = past["boxing-against"]
    said = {t.get_text() for t in texts_of(figure)}
    assert "36.6 (34.9 to 38.1)" in said
    assert "≥ 214 (projected)" in said
    assert "from a projection, not measured" in said
    assert "times as fast as no-copy, log scale" in said
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    outlined = [bar for bar in axes.patches if bar.get_linestyle() == "--"]
    assert [bar.get_facecolor() for bar in outlined] == [(1.0, 1.0, 1.0, 1.0)] * 3
    assert len(axes.patches) == 6
    data = drawing.data.set_index(["problem", "variant"])
    small, large = data.index.get_level_values("problem").unique()
    assert data.loc[(small, "compiled"), "times_as_fast"] == pytest.approx(36.57, rel=1e-3)
    assert not data.loc[(small, "compiled"), "projected"]
    assert data.loc[(large, "compiled"), "projected"]
    assert data.loc[(large, "compiled"), ["low", "high"]].isna().all()
    assert data.loc[(small, "no-copy"), "times_as_fast"] == 1.0
    assert data.loc[(small, "certified"), "gap"] == pytest.approx(0.0005)


def test_problems_compared_with_another_are_not_in_the_ladder(past):
    drawing = past["boxing-ladder"][0]
    assert "Measured on `crates[boxes=80,seed=1]/toy_rack:4`" in drawing.caption
    assert set(drawing.data["variant"]) == {"slow-copy", "half-copy", "quick-copy", "no-copy"}


def test_without_a_measurement_there_is_no_such_figure(tmp_path):
    lines = [line | {"ratio": None, "projection_s": None} for line in past_lines((400,), (400,))]
    assert draw(tmp_path, lines, draw_speedups) == {}


def test_where_the_budget_ended_is_drawn(tmp_path):
    lines = [line | {"settings": {"budget": 30.0}} for line in family_lines()]
    lines[-2] |= {"status": "over budget", "cpu_s": None, "wall_s": None, "ratio": None}
    drawing, figure = draw(tmp_path, lines, draw_growth)["boxing-size-1"]
    said = {t.get_text() for t in texts_of(figure)}
    assert {"budget of a call, 30 s (wall)", "stopped there, takes longer"} <= said
    (limit,) = [line for line in figure.axes[0].lines if line.get_linestyle() == ":"]
    assert list(limit.get_ydata()) == [30.0, 30.0]
    (mark,) = [
        line
        for line in figure.axes[0].lines
        if line.get_markerfacecolor() == "white" and line.get_marker() == "^"
    ]
    assert (mark.get_xdata().tolist(), mark.get_ydata().tolist()) == ([80.0], [30.0])
    data = drawing.data.set_index(["variant", "size"])
    assert data.loc[("even", 80.0), "stopped"]
    assert data.loc[("exhaustive", 80.0), "projected"]
    assert_no_overlap(figure)
