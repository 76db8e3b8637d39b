import json
import math

import pytest
from made_up_results import (
    BOUNDED,
    assert_in_order,
    cell,
    family_lines,
    over_budget,
    past_lines,
    results_of,
    write,
)

from harness.model.errors import UsageError
from reports.core.frames import read_results


def test_a_row_per_cell_and_per_figure(tmp_path):
    results = results_of(tmp_path, family_lines())
    assert len(results.cells) == 30
    assert set(results.cells["status"]) == {"ok", "over budget"}
    assert len(results.qualities) == len(results.counters) == 29 * 2
    assert results.qualities.groupby("name")["primary"].first().to_dict() == {
        "max_widget_ms": True,
        "imbalance": False,
    }
    one = results.phases[results.phases["cell"] == results.cells["cell"][0]]
    assert one["share"].sum() == pytest.approx(1.0)
    assert one["seconds"].sum() == pytest.approx(results.cells["cpu_s"][0])


def test_later_lines_of_a_cell_replace_earlier_ones_in_their_place(tmp_path):
    lines = [cell(seconds=1.0), cell("quick-copy"), cell(seconds=3.0)]
    cells = results_of(tmp_path, lines).cells
    assert cells["variant"].tolist() == ["slow-copy", "quick-copy"]
    assert cells["cpu_s"].tolist() == [3.0, 1.0]


def test_a_torn_last_line_is_left_out_with_a_note(tmp_path):
    path = write(tmp_path / "r.jsonl", [cell(), cell("quick-copy")])
    path.write_text(path.read_text() + json.dumps(cell("no-copy"))[:40])
    results = read_results(path)
    assert results.cells["variant"].tolist() == ["slow-copy", "quick-copy"]
    assert results.notes == ("Line 3 of 'r.jsonl' was cut short and is left out.",)


@pytest.mark.parametrize("content", ["", "\n\n", '{"schema": 1, "ce'])
def test_a_file_without_cells_is_an_error(tmp_path, content):
    path = tmp_path / "r.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"r\.jsonl' holds no cell"):
        read_results(path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{nonsense", "is not JSON"),
        (json.dumps(cell() | {"ratio": {"value": 2, "high": 1}}), "must lie within its interval"),
    ],
)
def test_a_damaged_line_is_left_out_and_named(tmp_path, line, said):
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(cell("a")) + "\n" + line + "\n" + json.dumps(cell("b")) + "\n")
    results = read_results(path)
    assert results.cells["variant"].tolist() == ["a", "b"]
    (note,) = results.notes
    assert note.startswith("Line 2 of 'r.jsonl' ")
    assert said in note
    assert "\n" not in note


def test_only_damaged_lines_are_an_error(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text("{nonsense\n[1]\n")
    with pytest.raises(UsageError, match=r"r\.jsonl' holds no cell; its 2 lines are damaged\.$"):
        read_results(path)


class TestMachines:
    """Times of different machines are never compared."""

    @staticmethod
    def on(machine, **changes):
        line = cell(**changes)
        return line | {"environment": line["environment"] | {"machine": machine}}

    def test_of_several_each_problem_is_said_to_be_of_one(self, tmp_path):
        lines = [self.on("aa"), self.on("bb", boxes=20)]
        results = results_of(tmp_path, lines)
        assert results.cells["machine"].tolist() == ["aa", "bb"]
        assert results.notes == (
            "The cells are of 2 machines; each problem is of one, and times are compared within "
            "one machine only.",
        )

    def test_a_problem_that_two_have_measured_is_of_the_last(self, tmp_path):
        variants = [self.on("aa"), self.on("bb"), self.on("aa"), self.on("bb", boxes=20)]
        other = self.on("bb") | {"variant": "b", "cell": cell("b")["cell"]}
        results = results_of(tmp_path, [other, *variants])
        assert results.cells["variant"].tolist() == ["slow-copy", "slow-copy"]
        assert results.cells["machine"].tolist() == ["aa", "bb"]
        assert "machine aa" in results.notes[0]


def test_a_different_decision_has_no_ratio(tmp_path):
    lines = [cell(), cell("quick-copy", ratio=0.2, decision="different", same_as="slow-copy")]
    row = results_of(tmp_path, lines).cells.iloc[1]
    assert row["outcome"] == "different decision"
    assert math.isnan(row["ratio"])
    assert math.isnan(row["ratio_low"])


def test_the_outcome_is_the_status_or_the_verdict(tmp_path):
    lines = [
        cell(decision="reference"),
        cell("a", ratio=0.5),
        cell("b", verdict="inconclusive", ratio=0.9),
        cell("c", ratio=None),
        over_budget("d", 10),
    ]
    cells = results_of(tmp_path, lines).cells
    told = ["reference", "faster", "inconclusive", "not compared", "over budget"]
    assert cells["outcome"].tolist()[:2] == told[:2]
    assert cells["outcome"].tolist()[3:] == told[3:]


def test_a_cell_is_compared_with_the_reference_unless_it_says_otherwise(tmp_path):
    results = results_of(tmp_path, [*family_lines((10,)), *past_lines()])
    by_problem = results.cells.groupby("problem")["against"].unique()
    assert [list(names) for names in by_problem] == [["slow-copy"], ["no-copy"], ["no-copy"]]
    assert results.notes == ()


def test_a_later_comparison_with_another_variant_replaces_the_earlier_one(tmp_path):
    lines = [*family_lines((400,)), *past_lines((400,), ())]
    results = results_of(tmp_path, lines)
    assert set(results.cells["variant"]) == {"no-copy", "compiled", "certified", "sorted"}
    assert set(results.cells["against"]) == {"no-copy"}
    assert len(results.records) == len(results.cells) == 4
    (note,) = results.notes
    assert_in_order(note, "`slow-copy`", "boxes=400", "`no-copy`")


def test_the_gap_to_the_bound_is_known(tmp_path):
    lines = [
        *past_lines((400,), ()),
        cell("unbounded", boxes=400, against="no-copy", qualities=BOUNDED),
        cell("no-bound", boxes=400, against="no-copy"),
    ]
    cells = results_of(tmp_path, lines).cells.set_index("variant")
    assert cells.loc["compiled", "bound"] == 640.0
    assert cells.loc["compiled", "gap"] == pytest.approx(0.25)
    assert cells.loc[["unbounded", "no-bound"], ["bound", "gap"]].isna().all(axis=None)
