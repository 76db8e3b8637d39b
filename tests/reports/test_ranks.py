"""The figure of ranks' loads under two plans."""

import pytest
from drawn import draw, said_in
from made_up_ranks import with_ranks
from made_up_results import cell, family_lines, family_of, over_budget

from reports.family.ranks import compared_plans, draw_ranks


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
