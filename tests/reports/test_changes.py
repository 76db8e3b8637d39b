"""The comparison of two results files."""

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from made_up_results import cell, family_lines, past_lines, write
from page_parser import Page

from reports.changes import judge, write_comparison
from reports.core.frames import read_results
from reports.gate import headline


def compared(folder, a, b):
    return judge(
        *(read_results(write(folder / f"{n}.jsonl", lines)) for n, lines in (("a", a), ("b", b)))
    )


def changes(verdict):
    return [(d.what, d.kind) for one in verdict.judged for d in one.deviations]


def pair(**now):
    """Return lines of a reference and another variant, and the same with that variant changed."""
    a = [cell(decision="reference"), cell("even", ratio=0.5)]
    return a, [a[0], a[1] | now]


def interval(value, low, high):
    return {"value": value, "low": low, "high": high, "pairs": 6}


@pytest.mark.parametrize(
    ("now", "found"),
    [
        ({}, []),
        ({"fingerprint": "other"}, [("fingerprint", "changed")]),
        ({"counters": {"copies": 541_000, "lookups": 20}}, [("counters.copies", "regression")]),
        ({"counters": {"copies": 1_000, "lookups": 19}}, [("counters.lookups", "win")]),
        ({"quality": {"max_widget_ms": 24.0, "imbalance": 1.3 * (1 + 1e-12)}},
         [("quality.max_widget_ms", "regression")]),
        ({"ratio": interval(0.9, 0.8, 1.0)}, [("ratio", "regression")]),
        ({"ratio": interval(0.2, 0.1, 0.3)}, [("ratio", "win")]),
        ({"ratio": interval(0.53, 0.52, 0.6)}, []),
        ({"ratio": None}, []),
    ],
)  # fmt: skip
def test_each_kind_of_change_is_found(tmp_path, now, found):
    """Rounding is no change, nor is a ratio whose interval overlaps the earlier one."""
    verdict = compared(tmp_path, *pair(**now))
    assert changes(verdict) == found
    assert ("As expected" in headline(verdict)) == (not found)


def test_a_cell_that_failed_before_is_no_regression(tmp_path):
    """What fails in both files is no change, and what no longer fails is a win."""
    failed = cell("even", status="failed", reason="no luck", decision=None)
    a = [cell(decision="reference"), failed, cell("odd", decision="different", same_as="slow-copy")]
    assert changes(compared(tmp_path, a, a)) == []
    assert changes(compared(tmp_path, a, [a[0], cell("even"), a[2]])) == [("outcome", "win")]


@settings(max_examples=15)
@given(st.data())
def test_the_other_way_round_the_opposite_changed(tmp_path_factory, data):
    """The changes from B to A are those from A to B with the values exchanged."""
    folder = tmp_path_factory.mktemp("both-ways")
    lines = family_lines((10, 20))
    a = [line for line in lines if data.draw(st.booleans())] or lines
    b = []
    for line in a:
        counters = {"copies": data.draw(st.integers(0, 3)), "lookups": 2}
        b.append(line | {"counters": counters, "fingerprint": data.draw(st.sampled_from("xy"))})
    there, back = (
        {(one.cell, d.what, frozenset((d.expected, d.measured)))
         for one in compared(folder, *files).judged for d in one.deviations}
        for files in ((a, b), (b, a))
    )  # fmt: skip
    assert there == back


def test_page_figure_and_data_are_written(tmp_path):
    """The page has every cell, and every change with the worst kind first; both are files too."""
    a = [*family_lines(), *past_lines(), cell("odd", family="other")]
    b = [*(line | {"counters": {"copies": 1}} for line in a[:-1]), cell("new", family="other")]
    files = [write(tmp_path / f"{n}.jsonl", lines) for n, lines in (("a", a), ("b", b))]
    path = write_comparison(*files, tmp_path / "out")
    page = Page(path.read_text())
    cells = [row[0] for row in page.tables["all-cells-table-1"][1:]]
    assert cells == [line["cell"] for line in (*a, b[-1])]
    assert sorted(p.name for p in path.parent.iterdir()) == ["data", "figures", "index.html"]
    assert (path.parent / "figures" / "ratios.svg").exists()
    table = pd.read_csv(path.parent / "data" / "changes.csv")
    assert set(table["b"][table["what"] == "counters.copies"]) == {"1"}
    assert list(table["kind"].unique()) == ["missing", "win", "new"]
    assert len(page.tables["overview-table-1"]) == 1 + len(table)
