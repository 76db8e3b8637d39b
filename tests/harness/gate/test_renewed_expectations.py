"""New expectations: accepted measurements replace the expectations from which they deviate."""

from pathlib import Path
from typing import Any

import pytest
from judged import EXPECTED, QUICK, cells, expecting, judge
from made_up_cells import ended, line
from msgspec.structs import replace

from harness.gate.expectations import Expectation, Expectations, load_expectations, to_toml
from harness.gate.judging import judge_cells, renewed, without_noise
from harness.model.ids import CellId


def test_counts_that_do_not_repeat_are_ignored():
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
    return after.cells[CellId.parse(found["cell"])]


def test_a_first_expectation_is_what_was_measured_with_slack_for_the_ratio():
    assert again(None, line()) == replace(EXPECTED, ratio=(0.32, 0.78))


@pytest.mark.parametrize("low", [1e-300, 5e-324, 0.0])
def test_tiny_ratios_are_expected_too(low: float):
    found = again(None, line(ratio={"value": 1e-9, "low": low, "high": 1e-9}))
    assert found.ratio is not None
    assert 0 <= found.ratio[0] <= low


def test_only_what_deviates_is_replaced():
    near = {"cost": 20 * (1 + 5e-10), "bound": 17.0}
    found = line(quality=near, counters={"copies": 1, "lookups": 20}, fingerprint="decaf")
    assert again(EXPECTED, found) == replace(
        EXPECTED,
        fingerprint="decaf",
        quality={"cost": 20.0, "bound": 17.0},
        counters={"copies": 1, "lookups": 20},
    )


def test_a_ratio_that_deviates_is_replaced_and_one_that_may_is_not():
    wide = {"value": 1.0, "low": 0.7, "high": 1.4, "pairs": 2}
    worse = {"value": 1.0, "low": 0.9, "high": 1.2, "pairs": 2}
    assert again(EXPECTED, line(ratio=wide)) == EXPECTED
    assert again(EXPECTED, line(ratio=wide, fingerprint="x")).ratio == EXPECTED.ratio
    assert again(EXPECTED, line(ratio=worse)).ratio == (0.6, 1.8)


def test_what_is_ignored_is_not_written():
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
    "found", [ended("quick", "failed"), line(decision="different"), line("other")]
)
def test_what_cannot_be_accepted_keeps_its_expectation(found: dict[str, Any]):
    expectations = Expectations({QUICK: EXPECTED})
    after = renewed(expectations, judge_cells(expectations, cells(found)))
    assert after.cells[QUICK] == EXPECTED


@pytest.mark.parametrize("found", [ended("quick", "failed"), line(decision="different")])
def test_a_new_row_that_is_wrong_gets_no_figures(found: dict[str, Any]):
    assert again(None, found) == Expectation(against="slow")


def test_a_call_over_budget_can_be_accepted():
    found = again(EXPECTED, ended("quick", "over budget"))
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
def test_accepting_it_makes_the_gate_pass(tmp_path: Path, changes: dict[str, Any]):
    expectations = Expectations({QUICK: EXPECTED})
    measured = cells(line(**changes), line("other"), ended("third", "over budget"))
    verdict = judge_cells(expectations, measured)
    assert verdict.exit_code == 1
    path = tmp_path / "new.toml"
    path.write_text(to_toml(renewed(expectations, verdict)))
    assert judge_cells(load_expectations(path), measured).exit_code == 0
