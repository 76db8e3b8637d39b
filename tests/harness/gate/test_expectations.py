"""Files of expectations are read as they were written, and name the cells to measure."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toy
import toy_registries
from hypothesis import given, settings, strategies as st

from harness.contract import Statement
from harness.contract.registry import Registry
from harness.gate.expectations import (
    Expectation,
    Expectations,
    MadeWith,
    first_suite,
    load_expectations,
    to_measure,
    to_toml,
)
from harness.measuring.request import Request
from harness.model.errors import ShardbenchError, UsageError
from harness.model.ids import CellId, ProblemId, WorkloadSpec

TEXT = "boxing/quick@crates[boxes=10]/toy_rack:4"


def load(tmp_path: Path, text: str) -> Expectations:
    path = tmp_path / "expected.toml"
    path.write_text(text, encoding="utf-8", newline="")
    return load_expectations(path)


# What a TOML file can hold: all of Unicode but half surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"]))
names = st.one_of(st.sampled_from(["cost", "copies", "a.b", "", "]", '"', "\x7f\x00\n"]), texts)
numbers = st.floats(-1e100, 1e100)
parts = st.text(st.characters(exclude_categories=["Cs", "C", "Z"], exclude_characters="/@[]=,:"))
words = parts.filter(bool)
workloads = st.builds(WorkloadSpec, words, st.dictionaries(words, words, max_size=2))
problems = st.builds(ProblemId, workloads, words, st.integers(1, 10**6))
cells = st.builds(CellId, words, words, problems)


@st.composite
def expectations(draw) -> Expectations:
    found = {}
    for cell in draw(st.lists(cells, max_size=3)):
        shares = draw(st.tuples(st.floats(0, 1e9), st.floats(1e-9, 1e9)).map(sorted))
        found[cell] = Expectation(
            given=draw(texts),
            against=draw(texts),
            decision=draw(st.sampled_from([None, "same", "own", "reference"])),
            fingerprint=draw(st.none() | texts.filter(bool)),
            quality=draw(st.dictionaries(names, numbers, max_size=3)),
            quality_tolerance=draw(st.none() | st.floats(0, 0.99)),
            counters=draw(st.dictionaries(names, st.integers(0, 2**70), max_size=3)),
            ratio=draw(st.none() | st.just((shares[0], shares[1]))),
            ignore=tuple(draw(st.lists(st.sampled_from(["ratio", "counters.a b", "quality.'"])))),
        )
    return Expectations(
        found,
        ratio_slack=draw(st.floats(1, 1e6)),
        quality_tolerance=draw(st.floats(0, 0.99)),
        ignore=tuple(draw(st.lists(st.sampled_from(["decision", "fingerprint"]), max_size=2))),
        made_with=MadeWith(draw(texts), draw(st.dictionaries(names, texts, max_size=3))),
    )


@settings(max_examples=15)
@given(expectations())
def test_what_was_written_is_read(tmp_path_factory, expected):
    """Any expectations are the same after they are written and read."""
    folder = tmp_path_factory.mktemp("written")
    assert load(folder, to_toml(expected)) == expected


def test_the_order_depends_on_the_names_alone():
    """A file of expectations has small differences in version control."""
    ids = [CellId.parse(f"{family}/{name}@p/t:4") for family in "ba" for name in ("x", "a")]
    one, other = (dict.fromkeys(each, Expectation()) for each in (ids, ids[::-1]))
    assert to_toml(Expectations(one)) == to_toml(Expectations(other))


def of_cell(row: str) -> str:
    return f'[cell."{TEXT}"]\n{row}'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("not toml", "is not TOML"),
        ("a = " + "[" * 5000, "is not TOML: maximum recursion"),
        ("schema = 2", "'schema': Invalid enum value 2"),
        ("ratio_slak = 2", "did you mean ratio_slack?"),
        (of_cell("[cell.'boxing/quick@crates[ boxes = 10 ]/toy_rack:4']"), "is expected twice"),
        ("[cell.quick]", "write family/variant@workload/topology:gpus"),
        (of_cell('statuss = "ok"'), "did you mean status?"),
        (of_cell('status = "failed"'), "known are: ok, not installed, not applicable, over bu"),
        (of_cell("quality.cost = nan"), "'quality[...]': Expected `float` >= -1e+100"),
        (of_cell("ratio = [0.6, 0.5]"), "'ratio' must be the lowest share, and then the highest"),
        (of_cell('ignore = ["counters."]'), "'ignore[0]': Expected `str` matching regex '^(deci"),
        (of_cell('status = "over budget"\nratio = [0.1, 1]'), "can have no figures"),
    ],
)
def test_what_is_wrong_is_said_with_the_file_and_the_cell(tmp_path, text, sentence):
    """Every refusal is one sentence with a place."""
    with pytest.raises(UsageError) as error:
        load(tmp_path, text)
    assert sentence in str(error.value)
    assert "expected.toml" in str(error.value)
    assert text.count(TEXT) <= str(error.value).count(TEXT)


SMALL, LARGE = "toy[size=4]/dgx_a100_80gb:2", "toy[size=6]/dgx_a100_80gb:2"


def expecting(*cells: str, **changes: Any) -> Expectations:
    return Expectations({CellId.parse(cell): Expectation(**changes) for cell in cells})


def requests(
    expectations: Expectations, registry: Any = toy_registries.toy_registry
) -> list[Request]:
    return to_measure(expectations, registry())[0]


def test_the_first_suite_has_a_problem_of_each_family_that_is_installed():
    """A headline decides the pair; families that lack a library are named as left out."""
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
    """A ratio that is ignored sets no limit."""
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
def test_what_cannot_be_measured_is_said_before_anything_is(expected, sentence):
    """Unknown names and contradicting rows are refused."""
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
    """A workload's name in results may differ from the name that was given."""
    _, expected, changed = to_measure(
        Expectations({before: row}), toy_registries.labelled_registry()
    )
    assert expected.cells == {NOW: after}
    assert changed == renamed


def test_how_a_problem_is_given_holds_for_all_of_its_cells():
    """One row with the given name is enough."""
    rows = {
        replace(OLD, variant=name): Expectation(given=given)
        for name, given in (("reference", ""), ("same", SMALL))
    }
    (request,), expected, changed = to_measure(
        Expectations(rows), toy_registries.labelled_registry()
    )
    assert request.variants == ("reference", "same")
    assert {row.given for row in expected.cells.values()} == {SMALL}
    assert list(changed) == list(rows)
