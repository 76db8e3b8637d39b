"""The comparison of two results files."""

import copy

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from made_up_results import cell, family_lines, over_budget, past_lines, write
from page_parser import Page

from harness.model.errors import UsageError
from reports.changes import Changes, findings, write_comparison
from reports.core.frames import read_results

AT = "@crates[boxes=10,seed=1]/toy_rack:4"


def compared(folder, a, b):
    return Changes(
        *(read_results(write(folder / f"{n}.jsonl", lines)) for n, lines in (("a", a), ("b", b)))
    )


def told(changes):
    return [(each.kind, each.sentence) for each in findings(changes)]


def pair(**changes):
    """Return lines of a reference and another variant, and the same with that variant changed."""
    a = [cell(decision="reference"), cell("even", ratio=0.5)]
    return a, [a[0], copy.deepcopy(a[1]) | changes]


def interval(value, low, high):
    return {"value": value, "low": low, "high": high, "pairs": 6}


def test_of_the_same_file_nothing_changed(tmp_path):
    """Equal files have one finding, which says that nothing changed."""
    changes = compared(tmp_path, family_lines(), family_lines())
    assert told(changes) == [("verdict", "Nothing changed, from A to B.")]
    assert changes.changes == []
    none = compared(tmp_path, [cell("a")], [cell("b")])
    assert told(none)[0] == ("verdict", "The two files have no cell in common.")


@pytest.mark.parametrize(
    ("now", "kind", "sentence"),
    [
        ({"fingerprint": "other"}, "decision", "1 decision changed: "),
        ({"counters": {"copies": 541_000, "lookups": 20}}, "counters",
         f"1 counter grew: `copies` of `boxing/even{AT}` 1,000 → 541,000 (worse, up 541 times)."),
        ({"counters": {"copies": 1_000, "lookups": 19}}, "counters",
         f"1 counter fell: `lookups` of `boxing/even{AT}` 20 → 19 (better, down 5 %)."),
        ({"ratio": interval(0.9, 0.8, 1.0)}, "ratio", "1 ratio rose: "),
        ({"ratio": interval(0.2, 0.1, 0.3)}, "ratio", "1 ratio fell: "),
        ({"ratio": interval(0.53, 0.52, 0.6)}, "", ""),
        ({"ratio": None}, "", ""),
        ({"ratio": interval(0.1, 0.09, 0.11), "against": "no-copy"}, "", ""),
    ],
)  # fmt: skip
def test_each_kind_of_change_is_told(tmp_path, now, kind, sentence):
    """Decisions, counters and ratios beyond both intervals are told; the largest comes first."""
    a, b = pair(**now)
    if "against" in now:
        b[0] = b[0] | {"against": "no-copy"}
    first, *rest = told(compared(tmp_path, a, b))
    if not kind:
        assert (first[1], rest) == ("Nothing changed, from A to B.", [])
        return
    ((said, text),) = rest
    assert said == kind
    assert text.startswith(sentence)
    assert first[1].startswith("Largest change: ")
    assert f"`boxing/even{AT}`" in first[1]


@pytest.mark.parametrize(("better", "effect"), [("lower", "worse"), ("higher", "better")])
def test_the_family_says_which_quality_is_worse(tmp_path, better, effect):
    """The direction of a quality is declared, and rounding is no change."""
    a, b = pair(quality={"max_widget_ms": 24.0, "imbalance": 1.3 * (1 + 1e-12)})
    for line in (*a, *b):
        line["qualities"] = [line["qualities"][0] | {"better": better}, line["qualities"][1]]
    (_, (kind, text)) = told(compared(tmp_path, a, b))
    assert kind == "quality"
    assert text == (
        f"1 quality got {effect}: `max_widget_ms` of `boxing/even{AT}` 20.0 → 24.0 "
        f"({effect}, up 20 %)."
    )


def test_lost_cells_and_cells_of_one_file_are_told(tmp_path):
    """A cell that no longer succeeds is the first finding."""
    a = [cell(decision="reference"), cell("even", ratio=0.5), cell("odd")]
    b = [a[0], over_budget("even", 10), cell("new")]
    changes = compared(tmp_path, a, b)
    said = told(changes)
    lost = f"`boxing/even{AT}` ok → over budget (worse)"
    assert said[0][1] == f"Largest change: {lost}, from A to B."
    assert said[1] == ("outcome", f"1 cell no longer ok: {lost}.")
    assert said[-2:] == [
        ("cells", f"1 cell only in A: `boxing/odd{AT}`."),
        ("cells", f"1 cell only in B: `boxing/new{AT}`."),
    ]


def test_other_versions_and_machines_are_told(tmp_path):
    """What the two files were measured with is compared."""
    lines = family_lines((10,))
    environment = {"packages": {"widgets": "2.0"}, "machine": "m2"}
    newer = [line | {"environment": line["environment"] | environment} for line in lines]
    said = dict(told(compared(tmp_path, lines, newer)))["measured with"]
    assert "widgets 1.2.3 → 2.0" in said
    assert "gadgets 4.5 → —" in said
    assert "machine — → m2" in said


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
    there, back = compared(folder, a, b), compared(folder, b, a)
    assert {
        (c.cell, c.name, c.deviation.expected, c.deviation.measured) for c in there.changes
    } == {(c.cell, c.name, c.deviation.measured, c.deviation.expected) for c in back.changes}


def test_page_figure_and_data_are_written(tmp_path):
    """The page has every cell, every change, and seconds where one machine measured both."""
    a = [
        line | {"environment": line["environment"] | {"machine": "m1"}}
        for line in [*family_lines(), *past_lines()]
    ]
    b = [line | {"counters": {"copies": 1}} for line in a]
    files = [write(tmp_path / f"{n}.jsonl", lines) for n, lines in (("a", a), ("b", b))]
    path = write_comparison(*files, tmp_path / "out")
    page = Page(path.read_text())
    heading, *rows = page.tables["all-cells-table-1"]
    assert [row[0] for row in rows] == [line["cell"] for line in a]
    assert "CPU time in B" in heading
    assert sorted(p.name for p in path.parent.iterdir()) == ["data", "figures", "index.html"]
    assert (path.parent / "figures" / "ratios.svg").exists()
    changes = pd.read_csv(path.parent / "data" / "changes.csv")
    assert set(changes["b"]) == {1}
    assert len(page.tables["changes-table-1"]) == 1 + len(changes)


@pytest.mark.parametrize("content", ["", "{", '{"schema": 99}\n'])
def test_what_cannot_be_read_leaves_nothing(tmp_path, content):
    """A damaged file is refused before anything is written."""
    good = write(tmp_path / "good.jsonl", [cell()])
    bad = tmp_path / "bad.jsonl"
    bad.write_text(content)
    for files in ((good, bad), (bad, good)):
        with pytest.raises(UsageError):
            write_comparison(*files, tmp_path / "out")
    assert not (tmp_path / "out").exists()
