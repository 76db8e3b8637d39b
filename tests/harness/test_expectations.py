"""The file of expectations: what is read is what was written, and nothing wrong is read."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model.errors import UsageError
from harness.suites.expectations import (
    QUALITY_TOLERANCE,
    RATIO_SLACK,
    Expectation,
    Expectations,
    load_expectations,
    to_toml,
)

CELL = "boxing/quick@crates[boxes=10]/toy_rack:4"


def load(tmp_path: Path, text: str | bytes) -> Expectations:
    path = tmp_path / "expected.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_expectations(path)


# What a TOML file can hold: all of Unicode but half surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"]))
names = st.one_of(st.sampled_from(["cost", "copies", "a.b", "", "]", '"', "\x7f\x00\n"]), texts)
numbers = st.floats(allow_nan=False, allow_infinity=False)
cells = st.tuples(
    texts.filter(lambda text: text and not set(text) & set("/@")),
    texts.filter(lambda text: text and "@" not in text),
    texts.filter(bool),
).map(lambda parts: f"{parts[0]}/{parts[1]}@{parts[2]}")


@st.composite
def expectations(draw) -> Expectations:
    found = {}
    for cell in draw(st.lists(cells, max_size=3)):
        shares = draw(st.tuples(st.floats(0, 1e9), st.floats(1e-9, 1e9)).map(sorted))
        found[cell] = Expectation(
            cell,
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
        python=draw(texts),
        packages=draw(st.dictionaries(names, texts, max_size=3)),
    )


class TestWriting:
    @given(expectations())
    def test_what_was_written_is_read(self, tmp_path_factory, expected: Expectations):
        folder = tmp_path_factory.mktemp("written")
        assert load(folder, to_toml(expected)) == expected

    def test_the_order_depends_on_the_names_alone(self):
        cells = [Expectation(f"{family}/{name}@p/t:4") for family in "ba" for name in ("x", "a")]
        one = Expectations({each.cell: each for each in cells})
        other = Expectations({each.cell: each for each in reversed(cells)})
        assert to_toml(one) == to_toml(other)

    def test_rows_are_apart_so_that_two_changes_can_be_merged(self):
        cells = {f"a/{name}@p/t:4": Expectation(f"a/{name}@p/t:4") for name in "xyz"}
        text = to_toml(Expectations(cells))
        assert text.count("\n\n[cell.") == 3
        assert all(len(line) <= 100 for line in text.splitlines())

    def test_a_cell_that_is_not_ok_round_trips(self, tmp_path: Path):
        expected = Expectations({CELL: Expectation(CELL, against="slow", status="over budget")})
        assert load(tmp_path, to_toml(expected)) == expected


class TestReading:
    def test_an_empty_file_expects_nothing(self, tmp_path: Path):
        assert load(tmp_path, "") == Expectations({}, RATIO_SLACK, QUALITY_TOLERANCE)

    def test_a_cell_without_figures_has_nothing_expected_yet(self, tmp_path: Path):
        expected = load(tmp_path, f'[cell."{CELL}"]\n').cells[CELL]
        assert expected == Expectation(CELL)
        assert not expected.has_figures

    def test_figures_can_stand_in_a_table_of_their_own(self, tmp_path: Path):
        text = f'[cell."{CELL}"]\nratio = [0, 2]\n[cell."{CELL}".counters]\ncopies = 3\n'
        expected = load(tmp_path, text).cells[CELL]
        assert expected.counters == {"copies": 3}
        assert expected.ratio == (0.0, 2.0)

    def test_a_missing_file_says_how_to_make_one(self, tmp_path: Path):
        with pytest.raises(UsageError, match="does not exist; 'shardbench gate --propose"):
            load_expectations(tmp_path / "none.toml")

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("not toml", "is not TOML"),
            (b"\xff\xfe", "must be UTF-8 text"),
            ("a = " + "[" * 5000, "nested too deeply"),
            ("a = 1" + "0" * 5000, "is not TOML"),
            (f'[cell."{CELL}"]\n[cell."{CELL}"]\n', "is not TOML"),
            ("schema = 2", "schema must be 1, which this version reads, not 2"),
            ("schema = true", "schema must be 1"),
            ("ratio_slak = 2", "did you mean ratio_slack?"),
            ("ratio_slack = 0.9", "ratio_slack must be a number from 1 on, not 0.9"),
            ("ratio_slack = nan", "not nan"),
            ("ratio_slack = inf", "not inf"),
            ("quality_tolerance = 1", "from 0 to below 1, not 1"),
            ('ignore = "ratio"', "a list of decision, fingerprint, ratio, quality.NAME"),
            ("made_with = 3", "made_with must be a table"),
            ("[made_with]\npythn = 'x'", "did you mean python?"),
            ("[made_with]\npackages.torch = 2", "torch must be a text, not 2"),
            ("cell = 3", "cell must be a table"),
            ("[cell.quick]", "write family/variant@workload/topology:gpus"),
        ],
    )
    def test_what_is_wrong_with_the_file_is_said(self, tmp_path: Path, text, sentence: str):
        with pytest.raises(UsageError) as error:
            load(tmp_path, text)
        assert sentence in str(error.value)
        assert "expected.toml" in str(error.value)

    @pytest.mark.parametrize(
        ("row", "sentence"),
        [
            ('statuss = "ok"', "did you mean status?"),
            ('status = "failed"', "must be ok, not installed, not applicable or over budget"),
            ('decision = "different"', 'must be reference, same or own, not "different"'),
            ('fingerprint = ""', 'fingerprint must be a text, not ""'),
            ("against = 3", "against must be the name of a variant, not 3"),
            ("quality.cost = nan", "cost must be a finite number, not nan"),
            ("quality.cost = -inf", "cost must be a finite number, not -inf"),
            ("quality.cost = true", "cost must be a finite number, not true"),
            (f"quality.cost = 1{'0' * 400}", "cost must be a finite number"),
            ('quality.cost = "20"', 'not "20"'),
            ("quality = 3", "quality must be a table"),
            ("quality_tolerance = -0.1", "from 0 to below 1, not -0.1"),
            ("counters.copies = 1.5", "copies must be a whole number from 0 on, not 1.5"),
            ("counters.copies = -1", "not -1"),
            ("counters.copies = nan", "not nan"),
            ("ratio = 0.5", "ratio must be [lowest, highest], two numbers from 0 on, not 0.5"),
            ("ratio = [0.5]", "not [0.5]"),
            ("ratio = [0.6, 0.5]", "not [0.6, 0.5]"),
            ("ratio = [-1, 0.5]", "not [-1, 0.5]"),
            ("ratio = [0, 0]", "not [0, 0]"),
            ("ratio = [0.1, inf]", "not [0.1, inf]"),
            ("ratio = [nan, nan]", "not [nan, nan]"),
            ('ignore = ["ratios"]', "a list of decision, fingerprint, ratio, quality.NAME"),
            ('ignore = ["counters."]', 'not ["counters."]'),
            ("ignore = [3]", "not [3]"),
            ('status = "over budget"\nratio = [0.1, 1]', "can have no figures"),
            ("given = 1979-05-27", "given must be a text, not 1979-05-27"),
        ],
    )
    def test_what_is_wrong_with_a_cell_is_said(self, tmp_path: Path, row: str, sentence: str):
        with pytest.raises(UsageError) as error:
            load(tmp_path, f'[cell."{CELL}"]\n{row}\n')
        assert sentence in str(error.value)
        assert CELL in str(error.value)

    def test_a_device_is_not_read(self):
        with pytest.raises(UsageError, match="must be a file"):
            load_expectations(Path("/dev/zero"))
