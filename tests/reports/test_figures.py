"""The figures of a family: what they show, that it can be read, and that it repeats."""

import itertools
import math
import random
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st
from made_up_results import (
    cell,
    family_lines,
    family_of,
    over_budget,
    past_lines,
    results_of,
    with_ranks,
)
from matplotlib.text import Text

from reports.core import canvas
from reports.family.growth import draw_growth, fit_exponent, series_of
from reports.family.ladder import ladder
from reports.family.page import family_chapter
from reports.family.quality import compared_plans, draw_ranks


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


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return draw(tmp_path_factory.mktemp("whole"), family_lines())


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    return draw(tmp_path_factory.mktemp("past"), [*family_lines(), *past_lines()])


def crowded(count):
    """Return the lines of a family of many variants with long names and nearly equal times."""
    sizes = (10, 11, 12, 900)
    lines = [cell(boxes=boxes, decision="reference", seconds=boxes) for boxes in sizes]
    return lines + [
        cell(
            f"a-variant-with-a-rather-long-name-{index}",
            boxes=boxes,
            seconds=(0.5 + 0.01 * index) * boxes,
            ratio=0.5 + 0.01 * index,
            same_as="slow-copy",
            decision="same",
            claim={"before": 1200 - 10 * index, "after": 1190 - 10 * index, "unit": "s"},
        )
        for index in range(count)
        for boxes in sizes
    ]


@pytest.mark.parametrize(
    "lines", [[*family_lines(), *past_lines()], crowded(8)], ids=["past", "many"]
)
def test_no_text_is_cut_or_lies_on_another(tmp_path, lines):
    """Texts stay within the figure and apart, also where names are long and values alike."""
    for _, figure in draw(tmp_path, lines).values():
        boxes = [(t.get_text(), t.get_window_extent()) for t in texts_of(figure)]
        page = figure.bbox.padded(1)
        for text, box in boxes:
            assert page.x0 <= box.x0 <= box.x1 <= page.x1, f"{text} is cut"
            assert page.y0 <= box.y0 <= box.y1 <= page.y1, f"{text} is cut"
        for (one, a), (other, b) in itertools.combinations(boxes, 2):
            assert not a.padded(-1).overlaps(b.padded(-1)), f"'{one}' and '{other}' overlap"


def test_figures_are_svg_with_their_data(whole):
    """Every figure is well-formed, keeps texts as texts, and loads nothing."""
    assert list(whole) == ["boxing-quality", "boxing-size-1", "boxing-ladder"]
    for drawing, _ in whole.values():
        assert ElementTree.fromstring(drawing.svg).tag.endswith("svg")
        assert not re.search(r'href="(?!#)', drawing.svg)
        assert "variant" in drawing.data.columns
    assert ">quick-copy</text>" in whole["boxing-ladder"][0].svg


def test_the_ladder_shows_claims_beside_measurements(whole, past):
    """Claims, intervals and reasons are texts; problems with another baseline are left out."""
    said = said_in(whole["boxing-ladder"][1])
    assert "0.125 (10 min → 2.5 min)" in said
    assert "0.370 (0.355 to 0.389)" in said
    assert "no figure published (made-up/boxes#12)" in said
    drawing = past["boxing-ladder"][0]
    assert "Measured on `crates[boxes=80,seed=1]/toy_rack:4`" in drawing.caption
    assert set(drawing.data["variant"]) == {"slow-copy", "half-copy", "quick-copy", "no-copy"}


@pytest.mark.parametrize(
    ("claims", "shares"),
    [
        ([None, (1200, 600), (600, 150)], [1.0, 0.5, 0.125]),
        ([(1200, 600), None, (600, 150)], [0.5, None, 0.125]),
        ([(100, 50), (100, 25), (8, 2, "ms")], [0.5, 0.25, None]),
        ([(100, 50), (20, 10, "s", "another"), (50, 25)], [0.5, None, 0.25]),
        ([None, None], [None, None]),
    ],
)
def test_published_shares_are_of_the_first_published_cost(tmp_path, claims, shares):
    """A claim of another problem takes no part, nor do variants that decide on their own."""
    fields = ("before", "after", "unit", "conditions")
    lines = [
        cell(
            f"step-{place}" if place else "slow-copy",
            same_as=f"step-{place - 1}" if place > 1 else "slow-copy" if place else None,
            claim=claim
            and dict(zip(fields, (*claim, "s", "")[: max(4, len(claim))], strict=False)),
        )
        for place, claim in enumerate(claims)
    ]
    rungs = ladder(family_of(tmp_path, [*lines, cell("own")]))
    assert [rung.share for rung in rungs] == shares


def test_a_different_decision_has_no_mark(tmp_path):
    """Doing something else in less time is no speed-up."""
    lines = family_lines((10,))
    lines[2] |= {"decision": "different"}
    made = draw(tmp_path, lines)
    said = said_in(made["boxing-ladder"][1])
    assert "different decision" in said
    assert not any(text.startswith("0.370") for text in said)
    assert not any("quick-copy" in text for text in said_in(made["boxing-quality"][1]))


def test_stopped_calls_are_hollow(tmp_path):
    """With progress a point at the projected time, else a triangle on the line of the budget."""
    lines = [line | {"settings": {"budget": 30.0}} for line in family_lines()]
    lines[-2] |= {"status": "over budget", "cpu_s": None, "wall_s": None, "ratio": None}
    drawing, figure = draw(tmp_path, lines, draw_growth)["boxing-size-1"]
    hollow = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "white"]
    points = {(line.get_marker(), *line.get_ydata()) for line in hollow if len(line.get_ydata())}
    assert {mark[1:] for mark in points if mark[0] == "^"} == {(30.0,)}
    assert {mark[1:] for mark in points if mark[0] != "^"} == {(1909.0,)}
    assert "slow-copy\nsize^1.50 (1.50 to 1.50)" in said_in(figure)
    data = drawing.data.set_index(["variant", "size"])
    assert data.loc[("even", 80.0), "stopped"]
    assert data.loc[("exhaustive", 80.0), "projected"]


def test_the_quality_is_drawn_with_its_bound_and_the_gaps(whole, past):
    """The bound is a dashed line, and each variant is named with its gap."""
    drawing, figure = past["boxing-quality"]
    assert {"proven bound", "certified (0.05 %)", "sorted (50.0 %)"} <= said_in(figure)
    (bound,) = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert list(bound.get_ydata()) == [2560.0, 2560.0]
    assert drawing.data.set_index("variant").loc["certified", "gap"] == pytest.approx(0.0005)
    assert "proven bound" not in said_in(whole["boxing-quality"][1])


def higher_is_better(lines):
    return [line | {"qualities": [line["qualities"][0] | {"better": "higher"}]} for line in lines]


@pytest.mark.parametrize(
    ("lines", "variants"),
    [
        (with_ranks(family_lines((10,))), ["slow-copy", "exhaustive"]),
        (higher_is_better(with_ranks(family_lines((10,)))), ["slow-copy", "even"]),
        (
            with_ranks(
                [
                    cell(decision="reference", fingerprint="one"),
                    cell("twin", same_as="slow-copy", decision="same", fingerprint="one"),
                ]
            ),
            ["slow-copy"],
        ),
        (
            [
                over_budget("slow-copy", 10),
                *with_ranks([cell("even", quality={"max_widget_ms": 2.0}), cell("odd")]),
            ],
            ["even", "odd"],
        ),
        ([cell()], []),
    ],
    ids=["best", "higher", "same plan", "stopped", "no loads"],
)
def test_the_reference_stands_beside_the_best_other_plan(tmp_path, lines, variants):
    """The first plan is the baseline's, or another one's if the baseline has none."""
    cells = compared_plans(family_of(tmp_path, lines))
    assert [cell.variant for cell in cells] == variants


@pytest.mark.parametrize("amount", [1, 6, 3000])
def test_both_plans_are_drawn_on_one_scale_with_the_capacity(tmp_path, amount):
    """Each figure has both plans, whole and to one scale, and a line at the capacity."""
    lines = with_ranks(family_lines((10,)), amount)
    ((drawing, figure),) = draw(tmp_path, lines, draw_ranks).values()
    for left, right in zip(figure.axes[::2], figure.axes[1::2], strict=True):
        assert left.get_ylim() == right.get_ylim()
        assert left.get_ylim()[0] <= 0
    lines = [line for each in figure.axes for line in each.lines if line.get_linestyle() == "--"]
    assert [line.get_ydata()[0] for line in lines] == [16.0, 16.0], "of memory, not of time"
    said = said_in(figure)
    assert any(text.startswith("slow-copy\nmost 20.0") for text in said)
    assert any(text.startswith("exhaustive\nmost 18.2") for text in said)
    assert len(drawing.data) == 2 * amount * 2, "figures that are 0 for all ranks are left out"
    assert len(drawing.svg) < 200_000


@given(
    exponent=st.floats(-2, 4),
    coefficient=st.floats(1e-6, 1e3),
    sizes=st.lists(st.integers(1, 10_000), min_size=3, max_size=8, unique=True),
)
def test_a_power_law_is_recovered(exponent, coefficient, sizes):
    """Times without noise give their exponent."""
    fit = fit_exponent(sizes, [coefficient * size**exponent for size in sizes])
    assert fit is not None
    assert fit.exponent == pytest.approx(exponent, abs=1e-5)
    assert fit.low - 1e-9 <= fit.exponent <= fit.high + 1e-9


def test_the_interval_holds_the_exponent_as_often_as_it_says():
    """Of 1,000 noisy series, 95 % of the intervals contain the exponent."""
    noise, sizes = random.Random(1), [10, 20, 40, 80]
    fits = [
        fit_exponent(sizes, [size**1.5 * math.exp(noise.gauss(0, 0.1)) for size in sizes])
        for _ in range(1000)
    ]
    assert 930 <= sum(fit.low <= 1.5 <= fit.high for fit in fits) <= 970


@pytest.mark.parametrize("sizes", [[], [10], [10, 20], [10, 20, 10, 20]])
def test_fewer_than_three_sizes_give_no_exponent(sizes):
    """Two points leave no error to estimate."""
    assert fit_exponent(sizes, [1.0] * len(sizes)) is None


def series(tmp_path, lines, least_sizes=1):
    found = series_of(results_of(tmp_path, lines).records, least_sizes)
    return {(each.sweep, each.variant): each for each in found}


def test_problems_that_differ_only_in_size_are_one_sweep(tmp_path):
    """A problem with another seed is no part of it; a projection takes no part in the fit."""
    other = cell(boxes=160, workload="crates[boxes=160,seed=2]")
    other["cell"] = "boxing/slow-copy@crates[boxes=160,seed=2]/toy_rack:4"
    found = series(tmp_path, [*family_lines(), other])
    assert {sweep for sweep, _ in found} == {"crates[seed=1]/toy_rack:4"}
    fits = {variant: each.fit.exponent for (_, variant), each in found.items()}
    assert fits["slow-copy"] == pytest.approx(1.5)
    assert fits["exhaustive"] == pytest.approx(2.5)
    (*measured, last) = found["crates[seed=1]/toy_rack:4", "exhaustive"].points
    assert (len(measured), last.size, last.seconds) == (4, 80, 1909.0)
    assert last.kind == "projected"


def test_a_sweep_of_several_machines_is_a_series_for_each(tmp_path):
    """The machine is named only in a sweep that several machines measured."""
    lines = family_lines()
    for line in lines:
        machine = "bb" if line["size"] >= 40 else "aa"
        line["environment"] = line["environment"] | {"machine": machine}
    elsewhere = [cell(boxes=n, workload=f"crates[boxes={n},seed=2]") for n in (5, 10)]
    for line in elsewhere:
        line["cell"] = f"boxing/slow-copy@{line['workload']}/toy_rack:4"
        line["environment"] = line["environment"] | {"machine": "bb"}
    found = series(tmp_path, [*lines, *elsewhere])
    assert {sweep for sweep, _ in found} == {
        "crates[seed=1]/toy_rack:4 on machine aa",
        "crates[seed=1]/toy_rack:4 on machine bb",
        "crates[seed=2]/toy_rack:4",
    }


def test_short_series_failures_and_different_decisions_are_left_out(tmp_path):
    """A series needs five sizes, each with a time of the decision that must be made."""
    lines = [line for line in family_lines() if (line["variant"], line["size"]) != ("even", 5)]
    lines += [cell("odd", boxes=n, decision="different") for n in (5, 10, 20, 40, 80)]
    lines += [cell("bad", boxes=n, status="failed") for n in (5, 10, 20, 40, 80)]
    variants = {variant for _, variant in series(tmp_path, lines, 5)}
    assert variants == {"slow-copy", "half-copy", "quick-copy", "no-copy", "exhaustive"}
    assert series(tmp_path, [cell()]) == {}


def test_the_only_number_of_a_workload_sets_its_size(tmp_path):
    """Where no parameter has the size's name, the only number is left out of the sweep's name."""
    lines = []
    for params in (10, 20, 40):
        workload = f"step[kind=fused,params={params}]"
        named = {"workload": workload, "cell": f"boxing/slow-copy@{workload}/toy_rack:4"}
        lines.append(cell(**named, size_name="ops", size=3 * params + 1))
    ((sweep, _), found), *_ = series(tmp_path, lines).items()
    assert sweep == "step[kind=fused]/toy_rack:4"
    assert [point.size for point in found.points] == [31, 61, 121]


def test_sizes_that_grow_with_the_gpus_are_one_sweep(tmp_path):
    """Their size is the square root of both multiplied."""
    lines = []
    for doublings in range(5):
        boxes, gpus = 10 * 2**doublings, 4 * 2**doublings
        line = cell(boxes=boxes, gpus=gpus, seconds=1.5 * boxes)
        lines.append(line | {"cell": f"{line['cell'].rpartition(':')[0]}:{gpus}"})
    (found,) = series(tmp_path, lines).values()
    assert (found.sweep, found.size_name) == ("crates[seed=1]/toy_rack", "sqrt(boxes * GPUs)")
    assert [p.size for p in found.points] == [math.sqrt(40) * 2**n for n in range(5)]
    assert found.fit.exponent == pytest.approx(1.0)
