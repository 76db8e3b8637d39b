"""Measuring the cells of expectations: the necessary comparisons, and the ids of their cells."""

from dataclasses import replace
from typing import Any

import pytest
import toy

from harness.contract import Statement
from harness.contract.registry import Registry
from harness.gate.expectations import (
    Expectation,
    Expectations,
    first_suite,
    to_measure,
)
from harness.measuring.request import Request
from harness.model.errors import ShardbenchError
from harness.model.ids import CellId
from harness.model.settings import SamplingRule, Settings

SETTINGS = Settings(30.0, SamplingRule(seconds=0.1))
SMALL, LARGE = "toy[size=4]/dgx_a100_80gb:2", "toy[size=6]/dgx_a100_80gb:2"


def expecting(*cells: str, **changes: Any) -> Expectations:
    return Expectations({CellId.parse(cell): Expectation(**changes) for cell in cells})


def requests(expectations: Expectations, registry: Any = toy.toy_registry) -> list[Request]:
    return to_measure(expectations, registry())[0]


def test_the_first_suite_has_a_problem_of_each_family_that_is_installed():
    headline = Statement("headline", "Toy", LARGE, "own", "same")
    own = {"benchmarks": (LARGE,), "statements": (headline,)}
    able = replace(toy.TOY, name="able", variants=dict(toy.TOY.variants), **own)
    needy = replace(toy.TOY, name="needy", variants=dict(toy.TOY.variants))
    needy.variants["reference"] = replace(needy.reference, requires=("no_such_module",))
    empty = replace(toy.TOY, name="empty", variants=dict(toy.TOY.variants), studies=())
    suite, left_out = first_suite(Registry([toy.TOY, able, needy, empty]))
    against = {str(cell): expected.against for cell, expected in suite.cells.items()}
    assert against == {
        f"toy/reference@{SMALL}": "reference", f"toy/same@{SMALL}": "reference",
        f"able/own@{LARGE}": "own", f"able/same@{LARGE}": "own",
    }  # fmt: skip
    assert [reason.partition(" ")[0] for reason in left_out] == ["empty", "needy"]
    assert "no_such_module" in left_out[1]


def test_a_ratio_is_timed_until_it_is_clear_on_which_side_of_the_expected_one_it_is():
    cell = f"toy/same@{SMALL}"
    for more, limits in (({}, {"same": 0.25}), ({"ignore": ("ratio",)}, {})):
        (request,) = requests(expecting(cell, ratio=(0.1, 0.25), **more))
        assert request.limits == limits


@pytest.mark.parametrize(
    ("expected", "sentence"),
    [
        (expecting(), "no cell"),
        (expecting("toi/same@toy/dgx_a100_80gb:2"), "did you mean toy?"),
        (expecting("toy/sane@toy/dgx_a100_80gb:2"), "did you mean same?"),
        (expecting("toy/same@toy/dgx_a100:2"), "Unknown topology"),
        # A cell under its own id and another.
        (
            expecting("toy/same@OLD/dgx_a100_80gb:2", f"toy/same@{SMALL}", given=SMALL),
            "is expected twice",
        ),
        (
            Expectations(
                expecting(f"toy/same@{SMALL}", against="own").cells
                | expecting(f"toy/plain@{SMALL}", against="reference").cells
            ),
            "own and reference; the cells of one problem",
        ),
    ],
)
def test_what_cannot_be_measured_is_said_before_anything_is(expected: Expectations, sentence: str):
    with pytest.raises(ShardbenchError) as refused:
        requests(expected)
    assert sentence in str(refused.value)


NOW = CellId.parse("toy/same@TOY[size=4]/dgx_a100_80gb:2")
OLD = CellId.parse("toy/same@OLD/dgx_a100_80gb:2")


@pytest.mark.parametrize(
    ("before", "row", "after", "renamed"),
    [
        # The workload of a row has another name in results.
        (CellId.parse(f"toy/same@{SMALL}"), Expectation(), Expectation(given=SMALL), {}),
        # Its file has changed, so that its figures say nothing of the new one.
        (
            OLD,
            Expectation(given=SMALL, fingerprint="0-1", ignore=("ratio",)),
            Expectation(given=SMALL, ignore=("ratio",)),
            {OLD: NOW},
        ),
    ],
)
def test_cells_are_named_as_in_results(before, row, after, renamed):
    _, expected, changed = to_measure(Expectations({before: row}), toy.labelled_registry())
    assert expected.cells == {NOW: after}
    assert changed == renamed


def test_how_a_problem_is_given_holds_for_all_of_its_cells():
    rows = {
        replace(OLD, variant=name): Expectation(given=given)
        for name, given in (("reference", ""), ("same", SMALL))
    }
    (request,), expected, changed = to_measure(Expectations(rows), toy.labelled_registry())
    assert request.variants == ("reference", "same")
    assert {row.given for row in expected.cells.values()} == {SMALL}
    assert list(changed) == list(rows)
