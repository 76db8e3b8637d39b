"""The figures and tables of ranks' loads under two plans."""

import pytest
from drawn import draw, said_in
from made_up_ranks import COLUMNS, ranks, with_ranks
from made_up_results import cell, family_lines, family_of, over_budget, write

from reports.family.figures import draw_ranks
from reports.family.ranks import (
    loads_table,
    ranks as ranks_of,
    ranks_caption,
    ranks_table,
)
from reports.report.page import write_report


def view_of(folder, lines):
    return ranks_of(family_of(folder, lines))


def test_the_reference_stands_beside_the_best_other_plan(tmp_path):
    view = view_of(tmp_path, with_ranks(family_lines((10,))))
    assert view.problem == "crates[boxes=10,seed=1]/toy_rack:4"
    assert view.variants == ("slow-copy", "exhaustive")
    assert view.of("exhaustive", "ms")["value"].tolist() == pytest.approx([4.55, 9.1, 13.65, 18.2])
    assert view.names == ["ms", "HBM GiB"], "no rank has anything of the third"


def test_where_more_is_better_the_best_plan_is_another(tmp_path):
    lines = with_ranks(family_lines((10,)))
    for line in lines:
        line["qualities"] = [line["qualities"][0] | {"better": "higher"}]
    view = view_of(tmp_path, lines)
    assert view.variants == ("slow-copy", "even")


def test_the_same_plan_is_not_set_beside_itself(tmp_path):
    lines = with_ranks(
        [
            cell(decision="reference", fingerprint="one"),
            cell("twin", ratio=0.5, same_as="slow-copy", decision="same", fingerprint="one"),
        ]
    )
    view = view_of(tmp_path, lines)
    assert view.variants == ("slow-copy",)


def test_where_the_reference_was_stopped_another_stands_first(tmp_path):
    lines = [
        over_budget("slow-copy", 10),
        *with_ranks([cell("even", quality={"max_widget_ms": 2.0}), cell("odd")]),
    ]
    view = view_of(tmp_path, lines)
    assert view.variants == ("even", "odd")


def test_of_many_ranks_the_table_holds_those_at_both_ends(tmp_path):
    view = view_of(tmp_path, with_ranks(family_lines((10,)), amount=4096))
    held = [row[0].text for row in ranks_table(view).rows]
    assert held == [f"{rank:,}" for rank in (*range(4095, 4087, -1), *range(7, -1, -1))]
    assert "of 4,096 ranks under `slow-copy`" in ranks_caption(view)


@pytest.mark.usefixtures("undrawn")
def test_results_that_tell_of_no_ranks_have_no_such_section(tmp_path):
    found = family_lines((10,))[::5]
    nothing = (None, {**ranks(1.0), "rows": []})
    for told in nothing:
        assert view_of(tmp_path, [line | {"ranks": told} for line in found]) is None
    lines = [line | {"ranks": told} for line, told in zip(found, nothing, strict=True)]
    page = write_report(write(tmp_path / "r.jsonl", lines), tmp_path / "out")
    assert "The load of each rank" not in page.read_text()


def test_the_tables_hold_every_rank_and_the_heaviest(tmp_path):
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
    assert len(drawing.data) == 2 * amount * len(COLUMNS)
    assert len(drawing.svg) < 200_000


def test_the_report_has_figure_tables_and_data(tmp_path):
    lines = with_ranks(family_lines((10,))[::5])
    page = write_report(write(tmp_path / "r.jsonl", lines), tmp_path / "out")
    assert "The load of each rank" in page.read_text()
    assert (page.parent / "figures" / "boxing-ranks.svg").exists()
    data = (page.parent / "data" / "boxing-ranks.csv").read_text()
    assert "exhaustive,3,ms,18.2,,True" in data
