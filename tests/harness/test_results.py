import errno
import json
import math
import multiprocessing
import os
import resource
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ShardbenchError, UsageError
from harness.results import SCHEMA, Cell, append_cells, read_records, summary, to_json


def cell(variant: str = "upstream", **changes) -> Cell:
    fields = {
        "cell": f"embedding/{variant}@dlrm-856[tables=10,seed=1]/dgx_h100:16",
        "family": "embedding",
        "variant": variant,
        "workload": "dlrm-856[tables=10,seed=1]",
        "topology": "dgx_h100",
        "gpus": 16,
        "reference": "double-deepcopy",
        "against": "double-deepcopy",
        "summary": "as installed",
        "source": "",
        "same_as": None,
        "purpose": "",
        "claim": None,
    }
    return Cell(**{**fields, **changes})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def variants(path: Path) -> list[str]:
    return [record["variant"] for record in read_records(path)]


def test_what_is_read_is_what_was_written(path: Path):
    written = cell(
        status="over budget",
        reason="stopped — “late”\u2028\n",
        wall_s=summary([0.1, 0.3, 0.2]),
        ratio={"value": 0.5, "low": 0.4, "high": 0.6, "pairs": 3},
        counters={"proposals": 10**18},
        facts={"tables": 10, "note": "ok"},
        claim={"before": 20, "after": 2.5, "unit": "min", "conditions": ""},
    )
    append_cells(path, [written])
    (record,) = read_records(path)
    assert Cell(**record) == written
    assert record["schema"] == SCHEMA
    assert record["wall_s"] == {"median": 0.2, "samples": [0.1, 0.3, 0.2]}


def test_a_cell_knows_its_id():
    assert str(cell().id) == cell().cell
    assert cell().problem == "dlrm-856[tables=10,seed=1]/dgx_h100:16"


def test_summary_of_nothing_is_nothing():
    assert summary([]) is None
    assert summary([2.0, 1.0]) == {"median": 1.5, "samples": [2.0, 1.0]}


def test_lines_are_appended_and_never_rewritten(path: Path):
    append_cells(path, [cell("a")])
    before = path.read_bytes()
    append_cells(path, [cell("b"), cell("c")])
    assert path.read_bytes().startswith(before)
    assert path.read_bytes().count(b"\n") == 3
    assert variants(path) == ["a", "b", "c"]


def test_the_folder_is_made(tmp_path: Path):
    path = tmp_path / "not" / "yet" / "there.jsonl"
    append_cells(path, [cell()])
    assert variants(path) == ["upstream"]


def test_no_cells_change_nothing(path: Path):
    append_cells(path, [cell("a")])
    before = path.read_bytes()
    append_cells(path, [])
    assert path.read_bytes() == before


class TestTornLines:
    @pytest.mark.parametrize("torn", ["{", '{"cell": "x', "x" * 100_000])
    def test_a_torn_last_line_is_dropped(self, path: Path, torn: str):
        append_cells(path, [cell("a")])
        with path.open("a") as file:
            file.write(torn)
        assert variants(path) == ["a"]
        append_cells(path, [cell("b")])
        assert variants(path) == ["a", "b"]

    @given(st.data())
    def test_a_file_cut_anywhere_keeps_its_whole_lines(self, tmp_path_factory, data):
        path = tmp_path_factory.mktemp("cut") / "results.jsonl"
        append_cells(path, [cell("a", reason="é"), cell("b", reason="\u2028"), cell("c")])
        content = path.read_bytes()
        cut = data.draw(st.integers(0, len(content)))
        path.write_bytes(content[:cut])
        whole = content[:cut].count(b"\n")
        assert variants(path) == ["a", "b", "c"][:whole]
        append_cells(path, [cell("d")])
        assert variants(path) == [*["a", "b", "c"][:whole], "d"]

    def test_a_file_of_one_torn_line_is_empty(self, path: Path):
        path.write_text('{"cell"')
        assert variants(path) == []
        append_cells(path, [cell("a")])
        assert variants(path) == ["a"]

    def test_an_empty_file_has_no_cells(self, path: Path):
        path.touch()
        assert variants(path) == []
        append_cells(path, [cell("a")])
        assert variants(path) == ["a"]

    def test_empty_lines_are_left_out(self, path: Path):
        append_cells(path, [cell("a")])
        with path.open("a") as file:
            file.write("\n  \n")
        append_cells(path, [cell("b")])
        assert variants(path) == ["a", "b"]


class TestMalformedLines:
    @pytest.mark.parametrize(
        "line",
        [
            "{",
            "not json",
            "[]",
            "3",
            '"text"',
            "null",
            "{}",
            f'{{"schema": {SCHEMA}}}',
            f'{{"schema": {SCHEMA + 1}, "cell": "x"}}',
            '{"cell": "x"}',
            b"\xff\xfe",
        ],
    )
    def test_it_is_named_with_its_number(self, path: Path, line: str | bytes):
        append_cells(path, [cell("a"), cell("b")])
        with path.open("ab") as file:
            file.write((line.encode() if isinstance(line, str) else line) + b"\n")
        append_cells(path, [cell("c")])
        with pytest.raises(UsageError) as refused:
            list(read_records(path))
        assert str(refused.value) == f"{path}, line 3: not a cell of schema {SCHEMA}."

    def test_a_cell_without_its_fields_is_malformed(self, path: Path):
        path.write_text(f'{{"schema": {SCHEMA}, "cell": "x"}}\n')
        with pytest.raises(UsageError, match="line 1: not a cell"):
            list(read_records(path))

    def test_a_file_that_is_not_there_is_named(self, path: Path):
        with pytest.raises(UsageError) as refused:
            list(read_records(path))
        assert str(refused.value) == f"{path} cannot be read: No such file or directory."

    def test_a_folder_is_named(self, tmp_path: Path):
        with pytest.raises(UsageError, match="cannot be read: Is a directory"):
            list(read_records(tmp_path))


class TestStrictJson:
    def test_infinities_and_nan_become_null(self, path: Path):
        append_cells(
            path,
            [
                cell(
                    ratio={"value": 0.5, "low": 0.0, "high": math.inf, "pairs": 1},
                    facts={"deep": [{"nan": math.nan}, (-math.inf, 1.0)]},
                )
            ],
        )
        text = path.read_text()
        assert "Infinity" not in text
        assert "NaN" not in text
        (record,) = read_records(path)
        assert record["ratio"] == {"value": 0.5, "low": 0.0, "high": None, "pairs": 1}
        assert record["facts"] == {"deep": [{"nan": None}, [None, 1.0]]}

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=8,
        )
    )
    def test_whatever_is_written_is_one_line_of_strict_json(self, value):
        def refuse(constant: str) -> None:
            raise AssertionError(constant)

        text = to_json(value)
        assert "\n" not in text
        json.loads(text, parse_constant=refuse)

    @pytest.mark.parametrize(
        ("number", "written"),
        [(np.int64(3), "3"), (np.float32(0.5), "0.5"), (np.float64("nan"), "null")],
    )
    def test_numbers_of_numpy_are_numbers(self, number: np.generic, written: str):
        assert to_json({"figure": number}) == f'{{"figure": {written}}}'

    def test_a_text_that_utf8_cannot_hold_is_stored_all_the_same(self, path: Path):
        append_cells(path, [cell(reason="no such file: \udcff")])
        (record,) = read_records(path)
        assert record["reason"] == "no such file: \udcff"


class TestFailures:
    """After each of them the file holds what it held before."""

    def test_the_disk_is_full_at_the_end(self, path: Path, monkeypatch: pytest.MonkeyPatch):
        append_cells(path, [cell("before")])
        before = path.read_bytes()

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ShardbenchError) as failed:
            append_cells(path, [cell("a"), cell("b")])
        sentence = f"Results cannot be written to {path}: No space left on device."
        assert str(failed.value) == sentence
        assert path.read_bytes() == before

    @pytest.mark.parametrize("length", [10, 30_000])
    @pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.6, 0.97, 0.9999])
    def test_the_disk_is_full_in_the_middle(self, path: Path, length: int, share: float):
        append_cells(path, [cell("before")])
        before = path.read_bytes()
        cells = [cell("a", reason="x" * length), cell("b")]
        room = int(share * len("".join(to_json(each.record()) + "\n" for each in cells)))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + room, limits[1]))
        try:
            with pytest.raises(ShardbenchError, match=r"^Results cannot be written to .*too large"):
                append_cells(path, cells)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert path.read_bytes() == before
        append_cells(path, cells)
        assert variants(path) == ["before", "a", "b"]

    def test_a_folder_in_place_of_the_file(self, tmp_path: Path):
        with pytest.raises(ShardbenchError) as failed:
            append_cells(tmp_path, [cell()])
        assert str(failed.value) == f"Results cannot be written to {tmp_path}: it is not a file."

    def test_a_file_in_place_of_the_folder(self, path: Path):
        path.write_text("mine")
        with pytest.raises(ShardbenchError, match=r"^Results cannot be written to "):
            append_cells(path / "results.jsonl", [cell()])
        assert path.read_text() == "mine"

    def test_a_cell_that_cannot_be_written_leaves_none(self, path: Path):
        append_cells(path, [cell("before")])
        before = path.read_bytes()
        with pytest.raises(TypeError):
            append_cells(path, [cell("a"), cell("b", facts={"mine": object()})])
        assert path.read_bytes() == before


def _append_often(path: Path, name: str, times: int) -> None:
    for _ in range(times):
        append_cells(path, [cell(name)])


def test_two_that_append_at_once_lose_nothing(path: Path):
    context = multiprocessing.get_context("spawn")
    writers = [
        context.Process(target=_append_often, args=(path, name, 200)) for name in ("a", "b", "c")
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    written = variants(path)
    assert [written.count(name) for name in ("a", "b", "c")] == [200, 200, 200]
