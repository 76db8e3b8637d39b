"""Judging cells: which are as expected, which deviate and how, and the new expectations."""

from dataclasses import replace as replaced
from typing import Any

import pytest
from made_up_cells import PROBLEM, WIDE, cell_of, ended, line
from msgspec.structs import replace

from harness.gate.expectations import (
    Expectation,
    Expectations,
    load_expectations,
    to_toml,
)
from harness.gate.judging import Deviation, GateVerdict, judge_cells, renewed, without_noise
from harness.model.cell import Cell
from harness.model.errors import ShardbenchError
from harness.model.ids import CellId

QUICK, SLOW = (CellId.parse(f"boxing/{name}@{PROBLEM}") for name in ("quick", "slow"))

QUALITY, COUNTERS = {"cost": 20.0, "bound": 16.0}, {"copies": 1000, "lookups": 20}
EXPECTED = Expectation(
    against="slow",
    decision="same",
    fingerprint="c0ffee",
    quality=QUALITY,
    counters=COUNTERS,
    ratio=(0.3, 0.8),
)


def cells(*lines: dict[str, Any]) -> dict[CellId, Cell]:
    return {cell.id: cell for cell in map(cell_of, lines)}


def expecting(expected: Expectation | None, **of_file: Any) -> Expectations:
    return Expectations({QUICK: expected} if expected else {}, **of_file)


def judge(expected: Expectation | None, *lines: dict[str, Any], **of_file: Any) -> GateVerdict:
    return judge_cells(expecting(expected, **of_file), cells(*lines))


def deviations(verdict: GateVerdict) -> list[tuple[str, str]]:
    return [(each.what, each.kind) for judged in verdict.judged for each in judged.deviations]


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
def test_figures_deviate_each_by_its_rule_unless_they_are_ignored(changes, found):
    """Decisions, qualities and counters are compared with what is expected."""
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
def test_a_ratio_is_judged_by_its_interval(low, high, kind):
    """Only an interval outside the expected range deviates."""
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
def test_the_way_a_cell_ended_is_judged(expected, kinds):
    """Each pair of an expected and a measured status has its kind of deviation."""
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
    """A cell or a figure that only one side has is missing or new."""
    verdict = judge(expected, found)
    assert [judged.kind for judged in verdict.judged] == kinds
    assert verdict.exit_code == 1


def test_nothing_measured_is_no_success():
    """A gate without a measured cell is an error."""
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
def test_the_worst_cell_decides(kinds, code):
    """The exit code is that of the worst deviation."""
    judged = judge(EXPECTED, line()).judged[0]
    cells = [replaced(judged, deviations=(Deviation("ratio", kind),)) for kind in kinds]
    assert GateVerdict((judged, *cells), {}).exit_code == code


def test_the_tolerance_of_a_cell_replaces_that_of_the_file():
    """A cell may be stricter than its file."""
    worse = line(quality=QUALITY | {"cost": 20.1})
    assert judge(EXPECTED, worse, quality_tolerance=0.01).exit_code == 0
    assert judge(replace(EXPECTED, quality_tolerance=0.01), worse).exit_code == 0
    strict = replace(EXPECTED, quality_tolerance=0.0)
    assert judge(strict, worse, quality_tolerance=0.01).exit_code == 1


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
def test_one_per_cent_more_python_work_is_found(work, found):
    """Counts that vary from call to call are inconclusive or ignored."""
    expected = replace(EXPECTED, python_calls=10_000)
    assert deviations(judge(expected, line(work=work))) == found
    assert deviations(judge(replace(expected, ignore=("python_calls",)), line(work=work))) == []


def test_counts_that_do_not_repeat_are_ignored():
    """A second measurement shows which counts are noise."""
    found = line(counters={"copies": 3, "lookups": 20}, work={"python_calls": 7, "spread": 0})
    expected = replace(EXPECTED, python_calls=6)
    noisy = without_noise(expecting(expected), judge(expected, found))
    (after,) = noisy.cells.values()
    assert after.python_calls is None
    assert set(after.ignore) == {"python_calls", "counters.copies"}
    assert list(after.counters) == ["lookups"]
    assert not [d for d in judge(after, found).judged[0].deviations if d.what in after.ignore]


def again(expected: Expectation | None, found: dict[str, Any], **of_file: Any):
    verdict = judge(expected, found, **of_file)
    after = renewed(expecting(expected, **of_file), verdict)
    assert list(after.cells) == [each.cell for each in verdict.judged]
    return after.cells[QUICK]


NEAR = 20 * (1 + 5e-10)


@pytest.mark.parametrize(
    ("expected", "found", "after"),
    [
        # A first expectation is what was measured, with slack for the ratio, unless it is wrong.
        (None, line(), replace(EXPECTED, ratio=(0.32, 0.78))),
        (None, ended("quick", "failed"), Expectation(against="slow")),
        (None, line(decision="different"), Expectation(against="slow")),
        # What is wrong or missing keeps its expectation.
        (EXPECTED, ended("quick", "failed"), EXPECTED),
        (EXPECTED, line(decision="different"), EXPECTED),
        (EXPECTED, line("other"), EXPECTED),
        # A call over budget can be accepted.
        (
            EXPECTED,
            ended("quick", "over budget"),
            Expectation(against="slow", status="over budget"),
        ),
        # Only what deviates is replaced.
        (
            EXPECTED,
            line(quality={"cost": NEAR, "bound": 17.0}, counters=COUNTERS | {"copies": 1}),
            replace(EXPECTED, quality=QUALITY | {"bound": 17.0}, counters=COUNTERS | {"copies": 1}),
        ),
        (EXPECTED, line(ratio=WIDE, fingerprint="x"), replace(EXPECTED, fingerprint="x")),
        (
            EXPECTED,
            line(ratio={"value": 1.0, "low": 0.9, "high": 1.2, "pairs": 2}),
            replace(EXPECTED, ratio=(0.6, 1.8)),
        ),
    ],
)
def test_a_new_expectation_differs_only_in_what_deviates_and_is_no_error(expected, found, after):
    """Proposed expectations keep all that was met."""
    assert again(expected, found) == after


def test_what_is_ignored_is_not_written():
    """Neither the cell's nor the file's ignored figures get values."""
    ignoring = replace(EXPECTED, ignore=("ratio", "counters.copies"))
    found = again(ignoring, line(fingerprint="x"), ignore=("quality.cost", "decision"))
    assert found == Expectation(
        against="slow",
        fingerprint="x",
        quality={"bound": 16.0},
        counters={"lookups": 20},
        ignore=("ratio", "counters.copies"),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"quality": {"cost": 1e-99, "bound": -16.0}, "counters": {"copies": 2**70}},
        {"ratio": {"value": 0.0123456, "low": 0.0, "high": 0.0123456}},
        {"against": "other", "decision": "own"},
    ],
)
def test_accepting_it_makes_the_gate_pass(tmp_path, changes):
    """The proposed file expects exactly what was measured."""
    expectations = Expectations({QUICK: EXPECTED})
    measured = cells(line(**changes), line("other"), ended("third", "over budget"))
    verdict = judge_cells(expectations, measured)
    assert verdict.exit_code == 1
    path = tmp_path / "new.toml"
    path.write_text(to_toml(renewed(expectations, verdict)))
    assert judge_cells(load_expectations(path), measured).exit_code == 0


def test_accepting_one_change_changes_one_line():
    """Every figure has a line of its own, and counts that were not expected are not added."""
    nothing = Expectations()
    first = renewed(nothing, judge_cells(nothing, cells(line())))
    work = {"python_calls": 7, "spread": 0}
    measured = cells(line(fingerprint="x", ratio=WIDE, work=work))
    before, after = (to_toml(e) for e in (first, renewed(first, judge_cells(first, measured))))
    changed = [
        now for was, now in zip(before.split("\n"), after.split("\n"), strict=True) if was != now
    ]
    assert changed == ['fingerprint = "x"']
