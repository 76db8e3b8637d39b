"""The comparison of two results files."""

import copy
import math

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from made_up_results import cell, family_lines, over_budget, past_lines, write

from harness.model.errors import UsageError
from reports.changes.data import Changes
from reports.changes.findings import sentences
from reports.changes.page import write_comparison
from reports.changes.table import cells_table
from reports.core.frames import read_results

AT = "@crates[boxes=10,seed=1]/toy_rack:4"


def compared(folder, a, b):
    return Changes(
        *(read_results(write(folder / f"{n}.jsonl", lines)) for n, lines in (("a", a), ("b", b)))
    )


def told(changes):
    return [(each.kind, each.sentence) for each in sentences(changes)]


def changed(line, **changes):
    return copy.deepcopy(line) | changes


def pair(**changes):
    """Return lines of a reference and another variant, and the same with that variant changed."""
    a = [cell(decision="reference"), cell("even", ratio=0.5)]
    return a, [a[0], changed(a[1], **changes)]


def interval(value, low, high):
    return {"value": value, "low": low, "high": high, "pairs": 6}


def test_of_the_same_file_nothing_changed(tmp_path):
    changes = compared(tmp_path, family_lines(), family_lines())
    assert told(changes) == [
        ("verdict", "No decision, counter, quality or ratio changed, from A to B."),
        ("time", "24 ratios changed by no more than the intervals."),
        ("measured with", "No cell was measured on the same machine in both files."),
    ]  # fmt: skip
    assert changes.counters.empty
    assert changes.qualities.empty


def test_a_decision_that_changed_comes_first(tmp_path):
    changes = compared(tmp_path, *pair(fingerprint="other"))
    first, second, *_ = told(changes)
    assert first == ("verdict", f"`boxing/even{AT}` has another decision, from A to B.")
    assert second == ("decisions", f"1 cell with another decision than before: `boxing/even{AT}`.")


def test_counters_are_compared_exactly_the_largest_growth_first(tmp_path):
    a, b = pair(counters={"copies": 541_000, "lookups": 19})
    changes = compared(tmp_path, a, b)
    summary, *_ = sentences(changes)
    assert f"`copies` of `boxing/even{AT}`" in summary.sentence
    assert "541" in summary.sentence
    assert "1 counter grew and 1 counter fell" in summary.detail
    said = [text for kind, text in told(changes) if kind == "counters"]
    assert said == [
        f"1 counter grew: `copies` of `boxing/even{AT}` 1,000 → 541,000.",
        f"1 counter fell: `lookups` of `boxing/even{AT}` 20 → 19.",
    ]
    assert changes.counters["factor"].tolist() == [541.0, 0.95]


def test_a_count_from_none_is_growth(tmp_path):
    a, b = pair(counters={"copies": 5})
    a[1]["counters"] = {"copies": 0}
    changes = compared(tmp_path, a, b)
    assert changes.counters["factor"].tolist() == [math.inf]
    assert "0 → 5" in next(text for kind, text in told(changes) if kind == "counters")


@pytest.mark.parametrize(
    ("better", "now", "effect"), [("lower", 24.0, "worse"), ("higher", 24.0, "better")]
)
def test_the_family_says_which_quality_is_worse(tmp_path, better, now, effect):
    a, b = pair(quality={"max_widget_ms": now, "imbalance": 1.3 * (1 + 1e-12)})
    for line in (*a, *b):
        line["qualities"] = [line["qualities"][0] | {"better": better}, line["qualities"][1]]
    changes = compared(tmp_path, a, b)
    assert (effect, f"1 quality got {effect}: `max_widget_ms` of `boxing/even{AT}` 20 ms → 24 ms "
            "(20 % more).") in told(changes)  # fmt: skip
    assert changes.qualities["change"].tolist() == pytest.approx([0.2])


@pytest.mark.parametrize(
    ("now", "moved"),
    [
        (interval(0.9, 0.8, 1.0), "more"),
        (interval(0.2, 0.1, 0.3), "less"),
        (interval(0.53, 0.52, 0.6), "within"),
        (None, ""),
    ],
)
def test_a_ratio_moves_where_the_intervals_have_nothing_in_common(tmp_path, now, moved):
    changes = compared(tmp_path, *pair(ratio=now))
    assert changes.cells.set_index("cell")["moved"][f"boxing/even{AT}"] == moved
    text = " ".join(text for kind, text in told(changes) if kind == "time")
    assert (f"{moved} time than before" in text) == (moved in ("more", "less"))


def test_ratios_over_another_variant_are_not_set_side_by_side(tmp_path):
    a = [cell("slow-copy", decision="reference"), cell("even", ratio=0.5)]
    b = [changed(line, against="no-copy") for line in a]
    b[1]["ratio"] = interval(0.1, 0.09, 0.11)
    assert set(compared(tmp_path, a, b).cells["moved"]) == {""}


def on(machine, lines):
    return [changed(line, environment=line["environment"] | {"machine": machine}) for line in lines]


def test_seconds_are_shown_where_one_machine_measured_both(tmp_path):
    lines = family_lines((10,))
    here = compared(tmp_path, on("m1", lines), on("m1", lines))
    titles = [column.title for column in cells_table(here).columns]
    assert titles[-1] == "CPU time in B (information)"
    assert not [text for kind, text in told(here) if kind == "measured with"]
    apart = compared(tmp_path, on("m1", lines), on("m2", lines))
    assert apart.cells[["cpu_s_a", "cpu_s_b"]].isna().all(axis=None)
    assert not [c.title for c in cells_table(apart).columns if "CPU" in c.title]
    assert ("measured with", "Versions, machines or settings differ: machine m1 → m2.") in told(
        apart
    )


def test_cells_of_one_file_alone_and_lost_ones_are_told(tmp_path):
    a = [cell(decision="reference"), cell("even", ratio=0.5), cell("odd")]
    b = [a[0], over_budget("even", 10), cell("new")]
    changes = compared(tmp_path, a, b)
    assert dict(told(changes))["verdict"] == f"`boxing/even{AT}` no longer succeeds, from A to B."
    assert [text for kind, text in told(changes) if kind in ("outcome", "cells")] == [
        f"1 cell went from faster to over budget: `boxing/even{AT}`.",
        f"1 cell only in A: `boxing/odd{AT}`.",
        f"1 cell only in B: `boxing/new{AT}`.",
    ]
    assert changes.cells["where"].tolist() == ["both", "both", "only A", "only B"]


def test_files_without_a_common_cell(tmp_path):
    changes = compared(tmp_path, [cell("a")], [cell("b")])
    assert told(changes)[0] == ("verdict", "The two files have no cell in common.")


def test_other_versions_are_told(tmp_path):
    lines = family_lines((10,))
    newer = [
        changed(line, environment=line["environment"] | {"packages": {"widgets": "2.0"}})
        for line in lines
    ]
    said = dict(told(compared(tmp_path, lines, newer)))
    assert "measured with" in said
    table = compared(tmp_path, lines, newer).settings.set_index("what")
    assert tuple(table.loc["widgets"]) == ("1.2.3", "2.0")
    assert tuple(table.loc["gadgets"]) == ("4.5", "")


@settings(max_examples=15)
@given(st.data())
def test_the_other_way_round_the_opposite_changed(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("both-ways")
    lines = family_lines((10, 20))
    a = [line for line in lines if data.draw(st.booleans())] or lines
    b = []
    for line in a:
        counters = {"copies": data.draw(st.integers(0, 3)), "lookups": 2}
        b.append(changed(line, counters=counters, fingerprint=data.draw(st.sampled_from("xy"))))
    there, back = compared(folder, a, b), compared(folder, b, a)
    assert there.cells["decision"].tolist() == back.cells["decision"].tolist()
    keys = ["cell", "name"]
    one = there.counters.sort_values(keys).reset_index(drop=True)
    other = back.counters.sort_values(keys).reset_index(drop=True)
    pd.testing.assert_frame_equal(
        one[[*keys, "a", "b"]], other[[*keys, "b", "a"]].set_axis([*keys, "a", "b"], axis=1)
    )


def test_page_markdown_figure_and_data_are_written(tmp_path):
    a = [*family_lines(), *past_lines()]
    b = [changed(line, counters={"copies": 1}) for line in a]
    page = write_comparison(
        write(tmp_path / "a.jsonl", a), write(tmp_path / "b.jsonl", b), tmp_path / "out"
    )
    text, markdown = page.read_text(), page.with_name("report.md").read_text()
    for line in a:
        assert line["cell"] in text
        assert f"`{line['cell']}`" in markdown
    assert sorted(each.name for each in page.parent.iterdir()) == [
        "data", "figures", "index.html", "report.md"
    ]  # fmt: skip
    assert (page.parent / "figures" / "ratios.png").read_bytes().startswith(b"\x89PNG")
    rows = pd.read_csv(page.parent / "data" / "counters.csv")
    assert set(rows["b"]) == {1}


@pytest.mark.usefixtures("undrawn")
def test_a_comparison_replaces_a_report_whole(tmp_path):
    from reports.report.page import write_report

    results = write(tmp_path / "r.jsonl", family_lines())
    write_report(results, tmp_path / "out")
    write_comparison(results, results, tmp_path / "out")
    assert [each.name for each in (tmp_path / "out" / "figures").glob("*.png")] == ["ratios.png"]


@pytest.mark.parametrize("content", ["", "{", '{"schema": 99}\n'])
def test_what_cannot_be_read_leaves_nothing(tmp_path, content):
    good = write(tmp_path / "good.jsonl", [cell()])
    bad = tmp_path / "bad.jsonl"
    bad.write_text(content)
    for files in ((good, bad), (bad, good)):
        with pytest.raises(UsageError):
            write_comparison(*files, tmp_path / "out")
    assert not (tmp_path / "out").exists()
