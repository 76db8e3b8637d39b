"""Judging cells: which are as expected, and which deviate and how."""

from dataclasses import replace as replaced
from typing import Any

import pytest
from judged import EXPECTED, QUICK, SLOW, cells, deviations, judge
from made_up_cells import ended, line
from msgspec.structs import replace

from harness.gate.expectations import Expectation, Expectations, MadeWith
from harness.gate.judging import Deviation, GateVerdict, judge_cells
from harness.model.errors import ShardbenchError


def test_what_is_as_expected_is_nothing_to_say():
    verdict = judge(EXPECTED, line())
    assert (deviations(verdict), verdict.kind, verdict.exit_code) == ([], None, 0)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"fingerprint": "decaf"}, [("fingerprint", "changed")]),
        ({"fingerprint": None}, [("fingerprint", "changed")]),
        ({"decision": "different"}, [("decision", "regression")]),
        ({"decision": "own"}, [("decision", "changed")]),
        ({"decision": None}, [("decision", "changed")]),
        ({"against": "other"}, [("against", "changed")]),
    ],
)
def test_what_deviates_is_named(changes: dict[str, Any], found: list):
    assert deviations(judge(EXPECTED, line(**changes))) == found


@pytest.mark.parametrize(
    ("quality", "found"),
    [
        ({"cost": 20.1, "bound": 16.0}, [("quality.cost", "regression")]),
        ({"cost": 19.9, "bound": 16.0}, [("quality.cost", "win")]),
        ({"cost": 20.0, "bound": 17.0}, [("quality.bound", "win")]),
        ({"cost": 20.0, "bound": 15.0}, [("quality.bound", "regression")]),
        ({"cost": 0.0, "bound": 16.0}, [("quality.cost", "win")]),
        ({"bound": 16.0}, [("quality.cost", "missing")]),
        ({"cost": None, "bound": 16.0}, [("quality.cost", "missing")]),
        ({"cost": 20 * (1 + 5e-10), "bound": 16.0}, []),
        ({"cost": 20 * (1 + 5e-9), "bound": 16.0}, [("quality.cost", "regression")]),
    ],
)
def test_a_quality_deviates_by_its_direction(quality: dict[str, Any], found: list):
    assert deviations(judge(EXPECTED, line(quality=quality))) == found


@pytest.mark.parametrize(
    ("counters", "found"),
    [
        ({"copies": 1001, "lookups": 20}, {"copies": "regression"}),
        ({"copies": 999, "lookups": 20}, {"copies": "win"}),
        ({"copies": 0, "lookups": 20}, {"copies": "win"}),
        ({"lookups": 20}, {"copies": "missing"}),
        ({"copies": 999, "lookups": 21}, {"copies": "changed", "lookups": "changed"}),
        ({"copies": 1000, "lookups": 20, "hits": 1}, {"hits": "new"}),
    ],
)
def test_more_work_is_worse(counters: dict[str, int], found: dict[str, str]):
    expected = [(f"counters.{name}", kind) for name, kind in found.items()]
    assert deviations(judge(EXPECTED, line(counters=counters))) == expected


@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [
        (0.4, 0.6, None),
        (0.3, 0.8, None),
        (0.2, 0.6, None),  # perhaps faster is as expected
        (0.2, 0.3, None),
        (0.2, 0.29, "win"),
        (0.7, 0.81, "inconclusive"),
        (0.2, 0.9, "inconclusive"),
        (0.8, 0.9, "inconclusive"),
        (0.81, 0.9, "regression"),
        (0.81, None, "regression"),  # the upper end is infinitely far
        (None, None, "inconclusive"),
        (None, 0.2, "win"),
    ],
)
def test_a_ratio_is_judged_by_its_interval(low, high, kind: str | None):
    value = 0.5 if low is None and high is None else low or high
    ratio = {"value": value, "low": low, "high": high, "pairs": 8}
    assert judge(EXPECTED, line(ratio=ratio)).kind == kind


def test_a_ratio_over_another_variant_is_not_judged():
    slower = {"value": 9.0, "low": 8.0, "high": 10.0, "pairs": 8}
    verdict = judge(EXPECTED, line(against="other", ratio=slower))
    (deviation,) = verdict.judged[0].deviations
    assert deviation == Deviation("against", "changed", "slow", "other")


@pytest.mark.parametrize(
    ("expected", "kinds"),
    [
        (
            "ok",
            {
                "failed": "regression",
                "over budget": "regression",
                "not applicable": "regression",
                "not installed": "not measured",
            },
        ),
        (
            "over budget",
            {
                "ok": "win",
                "failed": "regression",
                "not applicable": "regression",
                "not installed": "not measured",
                "over budget": None,
            },
        ),
        (
            "not installed",
            {
                "ok": "changed",
                "failed": "regression",
                "over budget": "changed",
                "not installed": None,
            },
        ),
        (
            "not applicable",
            {
                "ok": "changed",
                "failed": "regression",
                "not installed": "not measured",
                "not applicable": None,
            },
        ),
    ],
)
def test_how_a_cell_ended_is_judged(expected: str, kinds: dict[str, str | None]):
    row = EXPECTED if expected == "ok" else Expectation(against="slow", status=expected)
    expectations = Expectations({QUICK: row, SLOW: replace(EXPECTED, ratio=None)})
    for measured, kind in kinds.items():
        found = line() if measured == "ok" else ended("quick", measured, reason="because")
        verdict = judge_cells(expectations, cells(found, line("slow", decision="same")))
        reason = found["reason"] or ""
        deviating = (Deviation("status", kind, expected, measured, reason),) if kind else ()
        assert verdict.judged[0].deviations == deviating


class TestNothingToJudge:
    def test_no_cells_are_no_success(self):
        with pytest.raises(ShardbenchError, match="no cell to judge"):
            judge_cells(Expectations({QUICK: EXPECTED}), {})

    @pytest.mark.parametrize("status", ["not installed", "not applicable"])
    def test_cells_that_were_never_called_are_no_success(self, status: str):
        row = Expectation(status=status)
        with pytest.raises(ShardbenchError, match="Nothing was measured"):
            judge(row, ended("quick", status))


class TestRows:
    def test_a_row_that_is_not_there_is_missing(self):
        verdict = judge(EXPECTED, line("other"))
        assert [each.kind for each in verdict.judged] == ["missing", "new"]
        assert (verdict.kind, verdict.exit_code) == ("missing", 1)

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

    def test_cells_of_several_environments_name_all(self):
        other = line("other", environment={"python": "3.11.9", "packages": {"widgets": "1.2"}})
        verdict = judge(EXPECTED, line(), other, made_with=MadeWith("3.11.7", {"widgets": "1.2"}))
        assert verdict.versions == {"python": ("3.11.7", "3.11.7 and 3.11.9")}


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
