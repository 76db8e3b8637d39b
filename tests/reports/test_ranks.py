"""The figures and tables of ranks' loads under two plans."""

import pytest
from drawn import draw, said_in
from made_up_ranks import with_ranks
from made_up_results import cell, family_lines, family_of, over_budget

from reports.family.figures import draw_ranks
from reports.family.ranks import loads_table, rank_view, ranks_caption, ranks_table


def view_of(folder, lines):
    return rank_view(family_of(folder, lines))


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
    ],
    ids=["best", "higher", "same plan", "stopped"],
)
def test_the_reference_stands_beside_the_best_other_plan(tmp_path, lines, variants):
    """The first plan is the baseline's, or another one's if the baseline has none."""
    assert list(view_of(tmp_path, lines).plans) == variants


def test_of_many_ranks_the_table_has_those_at_both_ends(tmp_path):
    """It has the 8 heaviest and lightest ranks under the first plan."""
    view = view_of(tmp_path, with_ranks(family_lines((10,)), amount=4096))
    shown = [row[0].text for row in ranks_table(view).rows]
    assert shown == [f"{rank:,}" for rank in (*range(4095, 4087, -1), *range(7, -1, -1))]
    assert "of 4,096 ranks under `slow-copy`" in ranks_caption(view)


def test_the_tables_have_every_rank_and_the_heaviest(tmp_path):
    """Figures that are 0 for all ranks are left out; a missing capacity is a dash."""
    view = view_of(tmp_path, with_ranks(family_lines((10,)), amount=6))
    table = ranks_table(view)
    assert [column.title for column in table.columns] == [
        "rank", "ms, slow-copy", "ms, exhaustive", "HBM GiB, slow-copy", "HBM GiB, exhaustive"
    ]  # fmt: skip
    assert [row[0].text for row in table.rows] == ["0", "1", "2", "3", "4", "5"]
    assert [entry.text for entry in table.rows[5]] == ["5", "20.0", "18.2", "15.0", "15.0"]
    loads = {
        (row[0].text, row[1].text): [e.text for e in row[2:]] for row in loads_table(view).rows
    }
    assert loads["slow-copy", "ms"] == ["20.0", "5", "11.7", "1.71", "—", "—"]
    assert loads["exhaustive", "HBM GiB"] == ["15.0", "5", "12.5", "1.20", "16.0", "94 %"]


@pytest.mark.parametrize("amount", [1, 4, 3000])
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
    assert len(drawing.data) == 2 * amount * 2
    assert len(drawing.svg) < 200_000
