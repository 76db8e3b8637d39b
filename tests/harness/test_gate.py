"""Judging: what is as expected, what deviates and how, and what the next expectations are."""

import json
import math
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import pytest
from made_up_cells import PROBLEM, ended, line, write
from msgspec.structs import replace

from harness.model.cell import Cell
from harness.model.errors import ShardbenchError
from harness.model.ids import CellId
from harness.store.results import read_whole
from harness.suites.expectations import (
    Expectation,
    Expectations,
    MadeWith,
    Rules,
    load_expectations,
    to_toml,
)
from harness.suites.gate import Deviation, GateVerdict, judge_cells
from harness.suites.proposals import renewed

QUICK, SLOW = (CellId.parse(f"boxing/{name}@{PROBLEM}") for name in ("quick", "slow"))
EXPECTED = Expectation(
    against="slow",
    decision="same",
    fingerprint="c0ffee",
    quality={"cost": 20.0, "bound": 16.0},
    counters={"copies": 1000, "lookups": 20},
    ratio=(0.3, 0.8),
)


def cells(*lines: dict[str, Any]) -> dict[CellId, Cell]:
    return {cell.id: cell for cell in map(Cell.of, lines)}


def expecting(expected: Expectation | None, **of_file: Any) -> Expectations:
    return Expectations({QUICK: expected} if expected else {}, Rules(**of_file))


def judge(expected: Expectation | None, *lines: dict[str, Any], **of_file: Any) -> GateVerdict:
    return judge_cells(expecting(expected, **of_file), cells(*lines))


def deviations(verdict: GateVerdict) -> list[tuple[str, str]]:
    return [(each.what, each.kind) for judged in verdict.judged for each in judged.deviations]


def test_what_is_as_expected_is_nothing_to_say():
    verdict = judge(EXPECTED, line())
    assert (deviations(verdict), verdict.kind, verdict.exit_code) == ([], None, 0)


@pytest.mark.parametrize(
    ("changes", "found", "code"),
    [
        ({"fingerprint": "decaf"}, [("fingerprint", "changed")], 1),
        ({"fingerprint": None}, [("fingerprint", "changed")], 1),
        ({"decision": "different"}, [("decision", "regression")], 1),
        ({"decision": "own"}, [("decision", "changed")], 1),
        ({"decision": None}, [("decision", "changed")], 1),
        ({"quality": {"cost": 20.1, "bound": 16.0}}, [("quality.cost", "regression")], 1),
        ({"quality": {"cost": 19.9, "bound": 16.0}}, [("quality.cost", "win")], 1),
        ({"quality": {"cost": 20.0, "bound": 17.0}}, [("quality.bound", "win")], 1),
        ({"quality": {"cost": 20.0, "bound": 15.0}}, [("quality.bound", "regression")], 1),
        ({"quality": {"cost": 0.0, "bound": 16.0}}, [("quality.cost", "win")], 1),
        ({"quality": {"bound": 16.0}}, [("quality.cost", "missing")], 1),
        ({"quality": {"cost": None, "bound": 16.0}}, [("quality.cost", "missing")], 1),
        ({"quality": {"cost": 20 * (1 + 5e-10), "bound": 16.0}}, [], 0),
        (
            {"quality": {"cost": 20 * (1 + 5e-9), "bound": 16.0}},
            [("quality.cost", "regression")],
            1,
        ),
        ({"counters": {"copies": 1001, "lookups": 20}}, [("counters.copies", "regression")], 1),
        ({"counters": {"copies": 999, "lookups": 20}}, [("counters.copies", "win")], 1),
        ({"counters": {"copies": 0, "lookups": 20}}, [("counters.copies", "win")], 1),
        ({"counters": {"lookups": 20}}, [("counters.copies", "missing")], 1),
        (
            {"counters": {"copies": 999, "lookups": 21}},
            [("counters.copies", "changed"), ("counters.lookups", "changed")],
            1,
        ),
        (
            {"counters": {"copies": 1000, "lookups": 20, "hits": 1}},
            [("counters.hits", "new")],
            1,
        ),
        ({"against": "other"}, [("against", "changed")], 1),
    ],
)
def test_what_deviates_is_named(changes: dict[str, Any], found: list, code: int):
    verdict = judge(EXPECTED, line(**changes))
    assert (deviations(verdict), verdict.exit_code) == (found, code)


def test_a_quality_of_no_known_direction_has_changed():
    verdict = judge(EXPECTED, line(qualities=[], quality={"cost": 19.0, "bound": 16.0}))
    assert deviations(verdict) == [("quality.cost", "changed")]


@pytest.mark.parametrize(
    ("low", "high", "kind", "code"),
    [
        (0.4, 0.6, None, 0),
        (0.3, 0.8, None, 0),
        (0.2, 0.6, None, 0),  # perhaps faster is as expected
        (0.2, 0.3, None, 0),
        (0.2, 0.29, "win", 1),
        (0.7, 0.81, "inconclusive", 2),
        (0.2, 0.9, "inconclusive", 2),
        (0.8, 0.9, "inconclusive", 2),
        (0.81, 0.9, "regression", 1),
        (0.81, None, "regression", 1),  # the upper end is infinitely far
        (None, None, "inconclusive", 2),
        (None, 0.2, "win", 1),
    ],
)
def test_a_ratio_is_judged_by_its_interval(low, high, kind: str | None, code: int):
    value = 0.5 if low is None and high is None else low or high
    ratio = {"value": value, "low": low, "high": high, "pairs": 8}
    verdict = judge(EXPECTED, line(ratio=ratio))
    assert (verdict.kind, verdict.exit_code) == (kind, code)


def test_a_ratio_that_was_not_measured_is_inconclusive_and_says_why():
    verdict = judge(EXPECTED, line(ratio=None, verdict_reason="a time is too short"))
    (deviation,) = verdict.judged[0].deviations
    assert (deviation.kind, deviation.note) == ("inconclusive", "a time is too short")
    assert verdict.exit_code == 2


def test_a_ratio_over_another_variant_is_not_judged():
    slower = {"value": 9.0, "low": 8.0, "high": 10.0, "pairs": 8}
    verdict = judge(EXPECTED, line(against="other", ratio=slower))
    (deviation,) = verdict.judged[0].deviations
    assert deviation == Deviation("against", "changed", "slow", "other")


@pytest.mark.parametrize(
    ("expected", "measured", "kind", "code"),
    [
        ("ok", "failed", "regression", 1),
        ("ok", "over budget", "regression", 1),
        ("ok", "not applicable", "regression", 1),
        ("ok", "not installed", "not measured", 3),
        ("over budget", "ok", "win", 1),
        ("over budget", "failed", "regression", 1),
        ("over budget", "not applicable", "regression", 1),
        ("over budget", "not installed", "not measured", 3),
        ("not installed", "ok", "changed", 1),
        ("not installed", "failed", "regression", 1),
        ("not installed", "over budget", "changed", 1),
        ("not applicable", "ok", "changed", 1),
        ("not applicable", "failed", "regression", 1),
        ("not applicable", "not installed", "not measured", 3),
        ("over budget", "over budget", None, 0),
        ("not installed", "not installed", None, 0),
        ("not applicable", "not applicable", None, 0),
    ],
)
def test_how_a_cell_ended_is_judged(expected: str, measured: str, kind: str | None, code: int):
    row = Expectation(against="slow", status=expected)
    if expected == "ok":
        row = EXPECTED
    found = line() if measured == "ok" else ended("quick", measured, reason="because")
    expectations = Expectations({QUICK: row, SLOW: replace(EXPECTED, ratio=None)})
    verdict = judge_cells(expectations, cells(found, line("slow", decision="same")))
    assert (verdict.kind, verdict.exit_code) == (kind, code)
    if kind:
        assert verdict.judged[0].deviations == (
            Deviation("status", kind, expected, measured, found["reason"] or ""),
        )


class TestNothingToJudge:
    def test_no_cells_are_no_success(self):
        with pytest.raises(ShardbenchError, match="no cell to judge"):
            judge_cells(Expectations({QUICK: EXPECTED}), {})

    @pytest.mark.parametrize("status", ["not installed", "not applicable"])
    def test_cells_that_were_never_called_are_no_success(self, status: str):
        row = Expectation(status=status)
        with pytest.raises(ShardbenchError, match="Nothing was measured"):
            judge(row, ended("quick", status))

    def test_a_failed_reference_leaves_ratios_open_and_is_a_regression(self):
        slow = Expectation(against="slow", decision="reference")
        expectations = Expectations({SLOW: slow, QUICK: EXPECTED})
        verdict = judge_cells(expectations, cells(ended("slow", "failed"), line(ratio=None)))
        assert [each.kind for each in verdict.judged] == ["regression", "inconclusive"]
        assert verdict.exit_code == 1


class TestRows:
    def test_a_row_that_nobody_expects_is_new(self):
        verdict = judge(EXPECTED, line(), line("other"))
        assert [each.kind for each in verdict.judged] == [None, "new"]
        assert verdict.exit_code == 1

    def test_a_row_that_is_not_there_is_missing(self):
        verdict = judge(EXPECTED, line("other"))
        assert [each.kind for each in verdict.judged] == ["missing", "new"]
        assert (verdict.kind, verdict.exit_code) == ("missing", 1)

    def test_a_row_without_figures_is_new(self):
        verdict = judge(Expectation(), line())
        assert deviations(verdict) == [("cell", "new")]

    @pytest.mark.parametrize("expected", [None, Expectation()])
    @pytest.mark.parametrize("found", [ended("quick", "failed"), line(decision="different")])
    def test_a_new_row_that_is_wrong_is_a_regression(self, expected, found):
        verdict = judge(expected, found)
        assert (verdict.kind, verdict.exit_code) == ("regression", 1)

    @pytest.mark.parametrize("figure", ["decision", "fingerprint", "ratio"])
    def test_a_figure_without_an_expectation_is_new(self, figure: str):
        verdict = judge(replace(EXPECTED, **{figure: None}), line())
        assert deviations(verdict) == [(figure, "new")]


class TestPrecedence:
    def verdict(self, *kinds: str) -> GateVerdict:
        judged = judge(EXPECTED, line()).judged[0]
        found = [replaced(judged, deviations=(Deviation("ratio", kind),)) for kind in kinds]
        return GateVerdict((judged, *found), {})

    @pytest.mark.parametrize(
        ("kinds", "code"),
        [
            ((), 0),
            (("inconclusive",), 2),
            (("inconclusive", "regression"), 1),
            (("inconclusive", "win"), 1),
            (("new",), 1),
            (("missing", "inconclusive"), 1),
            (("changed",), 1),
            (("inconclusive", "regression", "not measured", "win"), 3),
        ],
    )
    def test_the_worst_decides(self, kinds: tuple[str, ...], code: int):
        assert self.verdict(*kinds).exit_code == code
        assert self.verdict(*reversed(kinds)).exit_code == code


class TestIgnored:
    @pytest.mark.parametrize("of_file", [True, False])
    @pytest.mark.parametrize(
        ("what", "changes"),
        [
            ("ratio", {"ratio": {"value": 9.0, "low": 9.0, "high": 9.0}}),
            ("decision", {"decision": "own"}),
            ("fingerprint", {"fingerprint": "decaf"}),
            ("quality.cost", {"quality": {"cost": 99.0, "bound": 16.0}}),
            ("counters.copies", {"counters": {"copies": 7, "lookups": 20}}),
            ("counters.hits", {"counters": {"copies": 1000, "lookups": 20, "hits": 3}}),
        ],
    )
    def test_it_is_not_judged(self, what: str, changes: dict[str, Any], of_file: bool):
        if of_file:
            verdict = judge(EXPECTED, line(**changes), ignore=(what,))
        else:
            verdict = judge(replace(EXPECTED, ignore=(what,)), line(**changes))
        assert verdict.exit_code == 0
        assert judge(EXPECTED, line(**changes)).exit_code == 1

    def test_a_different_decision_cannot_be_ignored(self):
        ignoring = replace(EXPECTED, ignore=("decision", "fingerprint"))
        assert judge(ignoring, line(decision="different")).exit_code == 1

    def test_a_tolerance_can_be_the_files_or_the_cells(self):
        worse = line(quality={"cost": 20.1, "bound": 16.0})
        assert judge(EXPECTED, worse, quality_tolerance=0.01).exit_code == 0
        assert judge(replace(EXPECTED, quality_tolerance=0.01), worse).exit_code == 0
        strict = replace(EXPECTED, quality_tolerance=0.0)
        assert judge(strict, worse, quality_tolerance=0.01).exit_code == 1


class TestVersions:
    def test_other_versions_are_told_and_decide_nothing(self):
        verdict = judge(
            EXPECTED, line(), made_with=MadeWith("3.11.7", {"widgets": "1.1", "old": "2"})
        )
        assert verdict.versions == {"old": ("2", ""), "widgets": ("1.1", "1.2")}
        assert verdict.exit_code == 0

    def test_none_are_told_where_the_file_says_none(self):
        assert judge(EXPECTED, line()).versions == {}

    def test_cells_of_several_environments_name_all(self):
        other = line("other", environment={"python": "3.11.9", "packages": {"widgets": "1.2"}})
        verdict = judge(EXPECTED, line(), other, made_with=MadeWith("3.11.7", {"widgets": "1.2"}))
        assert verdict.versions == {"python": ("3.11.7", "3.11.7 and 3.11.9")}


class TestRenewed:
    def renewed(self, expected: Expectation | None, found: dict[str, Any], **of_file: Any):
        verdict = judge(expected, found, **of_file)
        after = renewed(expecting(expected, **of_file), verdict)
        assert list(after.cells) == [each.cell for each in verdict.judged]
        return after.cells[CellId.parse(found["cell"])]

    def test_a_first_expectation_is_what_was_measured_with_slack_for_the_ratio(self):
        assert self.renewed(None, line()) == replace(EXPECTED, ratio=(0.32, 0.78))

    def test_an_interval_without_an_end_is_not_expected(self):
        ratio = {"value": 0.5, "low": None, "high": None, "pairs": 1}
        assert self.renewed(None, line(ratio=ratio)).ratio is None

    @pytest.mark.parametrize("low", [1e-300, 5e-324, 0.0])
    def test_tiny_ratios_are_expected_too(self, low: float):
        found = self.renewed(None, line(ratio={"value": 1e-9, "low": low, "high": 1e-9}))
        assert found.ratio is not None
        assert 0 <= found.ratio[0] <= low

    def test_only_what_deviates_is_replaced(self):
        near = {"cost": 20 * (1 + 5e-10), "bound": 17.0}
        found = line(quality=near, counters={"copies": 1, "lookups": 20}, fingerprint="decaf")
        assert self.renewed(EXPECTED, found) == replace(
            EXPECTED,
            fingerprint="decaf",
            quality={"cost": 20.0, "bound": 17.0},
            counters={"copies": 1, "lookups": 20},
        )

    def test_a_ratio_that_deviates_is_replaced_and_one_that_may_is_not(self):
        wide = {"value": 1.0, "low": 0.7, "high": 1.4, "pairs": 2}
        worse = {"value": 1.0, "low": 0.9, "high": 1.2, "pairs": 2}
        assert self.renewed(EXPECTED, line(ratio=wide)) == EXPECTED
        assert self.renewed(EXPECTED, line(ratio=wide, fingerprint="x")).ratio == EXPECTED.ratio
        assert self.renewed(EXPECTED, line(ratio=worse)).ratio == (0.6, 1.8)

    def test_what_is_ignored_is_not_written(self):
        ignoring = replace(EXPECTED, ignore=("ratio", "counters.copies"))
        found = self.renewed(ignoring, line(fingerprint="x"), ignore=("quality.cost", "decision"))
        assert found == Expectation(
            against="slow",
            fingerprint="x",
            quality={"bound": 16.0},
            counters={"lookups": 20},
            ignore=("ratio", "counters.copies"),
        )

    @pytest.mark.parametrize(
        "found", [ended("quick", "failed"), line(decision="different"), line("other")]
    )
    def test_what_cannot_be_accepted_keeps_its_expectation(self, found: dict[str, Any]):
        expectations = Expectations({QUICK: EXPECTED})
        after = renewed(expectations, judge_cells(expectations, cells(found)))
        assert after.cells[QUICK] == EXPECTED

    def test_what_is_not_installed_here_keeps_its_expectation(self):
        expectations = Expectations({QUICK: EXPECTED})
        found = cells(ended("quick", "not installed"), line("other"))
        after = renewed(expectations, judge_cells(expectations, found))
        assert after.cells[QUICK] == EXPECTED
        assert len(after.cells) == 2

    @pytest.mark.parametrize("found", [ended("quick", "failed"), line(decision="different")])
    def test_a_new_row_that_is_wrong_gets_no_figures(self, found: dict[str, Any]):
        assert self.renewed(None, found) == Expectation(against="slow")

    def test_a_call_over_budget_can_be_accepted(self):
        found = self.renewed(EXPECTED, ended("quick", "over budget"))
        assert found == Expectation(against="slow", status="over budget")

    @pytest.mark.parametrize(
        "changes",
        [
            {"fingerprint": "decaf"},
            {"quality": {"cost": 1e-99, "bound": -16.0}},
            {"counters": {"copies": 2**70}},
            {"ratio": {"value": 0.0123456, "low": 0.0123456, "high": 0.0123456}},
            {"against": "other", "decision": "own"},
        ],
    )
    def test_accepting_it_makes_the_gate_pass(self, tmp_path: Path, changes: dict[str, Any]):
        expectations = Expectations({QUICK: EXPECTED})
        measured = cells(line(**changes), line("other"), ended("third", "over budget"))
        verdict = judge_cells(expectations, measured)
        assert verdict.exit_code == 1
        path = tmp_path / "new.toml"
        path.write_text(to_toml(renewed(expectations, verdict)))
        assert judge_cells(load_expectations(path), measured).exit_code == 0


class TestReadingCells:
    def test_cells_are_found_by_id(self, tmp_path: Path):
        path = write(tmp_path / "r.jsonl", line("slow"), line())
        assert list(read_whole(path)) == [SLOW, QUICK]

    def test_no_file_is_an_error(self, tmp_path: Path):
        with pytest.raises(ShardbenchError, match="cannot be read"):
            read_whole(tmp_path / "none.jsonl")

    @pytest.mark.parametrize("content", ["", "\n\n"])
    def test_an_empty_file_is_an_error(self, tmp_path: Path, content: str):
        path = tmp_path / "r.jsonl"
        path.write_text(content)
        with pytest.raises(ShardbenchError, match="holds no cell"):
            read_whole(path)

    @pytest.mark.parametrize("bad", ["{}", "not json", '{"cell": NaN}', "[]", "\x00"])
    def test_a_damaged_line_is_an_error(self, tmp_path: Path, bad: str):
        path = tmp_path / "r.jsonl"
        path.write_text(f"{json.dumps(line())}\n{bad}\n{json.dumps(line('slow'))}\n")
        with pytest.raises(ShardbenchError, match=r"line 2: .*only whole results can be judged"):
            read_whole(path)

    def test_a_torn_last_line_is_an_error(self, tmp_path: Path):
        path = tmp_path / "r.jsonl"
        path.write_text(f"{json.dumps(line())}\n{json.dumps(line('slow'))[:-9]}")
        with pytest.raises(ShardbenchError, match=r"line 2: .*only whole results can be judged"):
            read_whole(path)

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("field", ["quality", "counters"])
    def test_no_number_is_an_error(self, tmp_path: Path, field: str, bad: float):
        path = write(tmp_path / "r.jsonl", line(**{field: {"cost": bad}}))
        with pytest.raises(ShardbenchError, match="only whole results"):
            read_whole(path)

    @pytest.mark.parametrize("bad", [1.5, -1])
    def test_a_counter_must_be_a_count(self, tmp_path: Path, bad: float):
        path = write(tmp_path / "r.jsonl", line(counters={"copies": bad}))
        with pytest.raises(ShardbenchError, match="only whole results"):
            read_whole(path)

    def test_a_cell_that_is_there_twice_must_be_the_same(self, tmp_path: Path):
        path = write(tmp_path / "r.jsonl", line(), line())
        assert len(read_whole(path)) == 1
        path = write(tmp_path / "r.jsonl", line(), line(fingerprint="decaf"))
        with pytest.raises(ShardbenchError, match="twice, with different contents"):
            read_whole(path)

    def test_an_id_must_say_what_the_line_says(self, tmp_path: Path):
        path = write(tmp_path / "r.jsonl", line(gpus=8))
        with pytest.raises(ShardbenchError, match="must be the id of what the line says"):
            read_whole(path)

    @pytest.mark.parametrize("folder", [True, False])
    def test_what_is_no_file_is_an_error(self, tmp_path: Path, folder: bool):
        with pytest.raises(
            ShardbenchError, match="Is a directory" if folder else "must be a regular file"
        ):
            read_whole(tmp_path if folder else Path("/dev/zero"))

    def test_a_name_that_is_no_text_can_be_expected_all_the_same(self, tmp_path: Path):
        found = read_whole(write(tmp_path / "r.jsonl", line(problem="a\udcffb/toy_rack:4")))
        expectations = renewed(Expectations({}), judge_cells(Expectations({}), found))
        path = tmp_path / "new.toml"
        path.write_text(to_toml(expectations), encoding="utf-8")
        assert judge_cells(load_expectations(path), found).exit_code == 0


@pytest.mark.parametrize(
    ("work", "found"),
    [
        ({"python_calls": 10_000}, []),
        ({"python_calls": 10_100}, [("python_calls", "regression")]),
        ({"python_calls": 9_900}, [("python_calls", "win")]),
        ({"python_calls": 10_100, "spread": 100}, []),
        (None, [("python_calls", "inconclusive")]),
    ],
)
def test_one_per_cent_more_python_work_is_found(work: dict[str, int] | None, found: list[Any]):
    expected = replace(EXPECTED, python_calls=10_000)
    assert deviations(judge(expected, line(work=work))) == found
    assert deviations(judge(replace(expected, ignore=("python_calls",)), line(work=work))) == []


def test_new_expectations_have_the_work():
    expected = replace(EXPECTED, python_calls=10_000)
    verdict = judge(expected, line(work={"python_calls": 10_100}))
    assert renewed(expecting(expected), verdict).cells[QUICK].python_calls == 10_100
    assert deviations(judge(EXPECTED, line(work={"python_calls": 10_100}))) == []
