"""Files of expectations are read as they were written, and wrong files are refused."""

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from harness.gate.expectations import (
    Expectation,
    Expectations,
    MadeWith,
    load_expectations,
    to_toml,
)
from harness.model.errors import UsageError
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
def test_what_was_written_is_read(tmp_path_factory, expected: Expectations):
    folder = tmp_path_factory.mktemp("written")
    assert load(folder, to_toml(expected)) == expected


def test_the_order_depends_on_the_names_alone():
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
def test_what_is_wrong_is_said_with_the_file_and_the_cell(tmp_path: Path, text, sentence: str):
    with pytest.raises(UsageError) as error:
        load(tmp_path, text)
    assert sentence in str(error.value)
    assert "expected.toml" in str(error.value)
    assert text.count(TEXT) <= str(error.value).count(TEXT)
