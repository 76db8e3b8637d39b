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

QUALITY, COUNTERS = {"cost": 20.0, "bound": 16.0}, {"copies": 1000, "lookups": 20}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"fingerprint": "decaf"}, [("fingerprint", "changed")]),
        ({"decision": "different"}, [("decision", "regression")]),
        ({"decision": "own"}, [("decision", "changed")]),
        ({"decision": None}, [("decision", "changed")]),
        # A ratio over another variant is not judged.
        ({"against": "other", "ratio": {"value": 9.0}}, [("against", "changed")]),
        # A quality deviates by its direction, and by more than rounding.
        ({"quality": QUALITY | {"cost": 20.1}}, [("quality.cost", "regression")]),
        ({"quality": QUALITY | {"cost": 0.0}}, [("quality.cost", "win")]),
        ({"quality": QUALITY | {"bound": 15.0}}, [("quality.bound", "regression")]),
        ({"quality": QUALITY | {"cost": None}}, [("quality.cost", "missing")]),
        ({"quality": QUALITY | {"cost": 20 * (1 + 5e-10)}}, []),
        ({"quality": QUALITY | {"cost": 20 * (1 + 5e-9)}}, [("quality.cost", "regression")]),
        # More work is worse.
        ({"counters": COUNTERS | {"copies": 1001}}, [("counters.copies", "regression")]),
        ({"counters": COUNTERS | {"copies": 0}}, [("counters.copies", "win")]),
        ({"counters": {"lookups": 20}}, [("counters.copies", "missing")]),
        ({"counters": COUNTERS | {"hits": 1}}, [("counters.hits", "new")]),
        (
            {"counters": {"copies": 999, "lookups": 21}},
            [("counters.copies", "changed"), ("counters.lookups", "changed")],
        ),
    ],
)
def test_figures_deviate_each_by_its_rule_unless_they_are_ignored(changes, found: list):
    verdict = judge(EXPECTED, line(**changes))
    assert deviations(verdict) == found
    assert verdict.exit_code == bool(found)
    if found and "against" not in changes and changes.get("decision") != "different":
        names = tuple(what for what, _ in found)
        assert judge(EXPECTED, line(**changes), ignore=names).exit_code == 0
        assert judge(replace(EXPECTED, ignore=names), line(**changes)).exit_code == 0


@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [
        (0.3, 0.8, None),
        (0.2, 0.6, None),  # perhaps faster is as expected
        (0.2, 0.29, "win"),
        (0.7, 0.81, "inconclusive"),
        (0.8, 0.9, "inconclusive"),
        (0.81, 0.9, "regression"),
        (0.81, None, "regression"),  # the upper end is infinitely far
        (None, None, "inconclusive"),
        (None, 0.2, "win"),
    ],
)
def test_a_ratio_is_judged_by_its_interval(low, high, kind: str | None):
    ratio = {"value": low or high or 0.5, "low": low, "high": high, "pairs": 8}
    assert judge(EXPECTED, line(ratio=ratio)).kind == kind


STATUSES = ("ok", "failed", "over budget", "not applicable", "not installed")


@pytest.mark.parametrize(
    ("expected", "kinds"),
    [
        ("ok", (None, "regression", "regression", "regression", "not measured")),
        ("over budget", ("win", "regression", None, "regression", "not measured")),
        ("not installed", ("changed", "regression", "changed", "changed", None)),
        ("not applicable", ("changed", "regression", "changed", None, "not measured")),
    ],
)
def test_the_way_a_cell_ended_is_judged(expected: str, kinds: tuple[str | None, ...]):
    row = EXPECTED if expected == "ok" else Expectation(against="slow", status=expected)
    expectations = Expectations({QUICK: row, SLOW: replace(EXPECTED, ratio=None)})
    for status, kind in zip(STATUSES, kinds, strict=True):
        found = line() if status == "ok" else ended("quick", status, reason="because")
        verdict = judge_cells(expectations, cells(found, line("slow", decision="same")))
        reason = found["reason"] or ""
        deviating = (Deviation("status", kind, expected, status, reason),) if kind else ()
        assert verdict.judged[0].deviations == deviating


@pytest.mark.parametrize(
    ("expected", "found", "kinds"),
    [
        (EXPECTED, line("other"), ["missing", "new"]),
        (None, ended("quick", "failed"), ["regression"]),
        (None, line(decision="different"), ["regression"]),
        (replace(EXPECTED, decision=None), line(), ["new"]),
        (replace(EXPECTED, ratio=None), line(), ["new"]),
    ],
)
def test_what_is_missing_on_one_side_deviates(expected, found, kinds):
    verdict = judge(expected, found)
    assert [judged.kind for judged in verdict.judged] == kinds
    assert verdict.exit_code == 1


def test_nothing_measured_is_no_success():
    with pytest.raises(ShardbenchError, match="no cell to judge"):
        judge_cells(Expectations({QUICK: EXPECTED}), {})
    for status in ("not installed", "not applicable"):
        with pytest.raises(ShardbenchError, match="Nothing was measured"):
            judge(Expectation(status=status), ended("quick", status))


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        (("inconclusive",), 2),
        (("inconclusive", "win"), 1),
        (("missing", "inconclusive"), 1),
        (("inconclusive", "regression", "not measured", "win"), 3),
    ],
)
def test_the_worst_cell_decides(kinds: tuple[str, ...], code: int):
    judged = judge(EXPECTED, line()).judged[0]
    cells = [replaced(judged, deviations=(Deviation("ratio", kind),)) for kind in kinds]
    assert GateVerdict((judged, *cells), {}).exit_code == code


def test_the_tolerance_of_a_cell_replaces_that_of_the_file():
    worse = line(quality=QUALITY | {"cost": 20.1})
    assert judge(EXPECTED, worse, quality_tolerance=0.01).exit_code == 0
    assert judge(replace(EXPECTED, quality_tolerance=0.01), worse).exit_code == 0
    strict = replace(EXPECTED, quality_tolerance=0.0)
    assert judge(strict, worse, quality_tolerance=0.01).exit_code == 1


def test_other_versions_are_told_and_decide_nothing():
    made_with = MadeWith("3.11.6", {"widgets": "1.1", "old": "2"})
    verdict = judge(EXPECTED, line(), made_with=made_with)
    assert verdict.versions == {
        "old": ("2", ""), "python": ("3.11.6", "3.11.7"), "widgets": ("1.1", "1.2")
    }  # fmt: skip
    assert verdict.exit_code == 0


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
