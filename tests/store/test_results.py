"""The results file: cells are appended under a lock, and read as they were written."""

import errno
import json
import math
import multiprocessing
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from stored import cell, variants

from harness.model.cell import SCHEMA, Claim, CountedWork, RankTable, Ratio, Summary
from harness.model.errors import ShardbenchError
from harness.model.settings import Settings
from harness.store.lock import hold
from harness.store.results import (
    Damage,
    append_cells,
    append_lines,
    read_cells,
    to_json,
    whole_lines,
)


def test_what_is_read_is_what_was_written(path: Path):
    written = cell(
        status="over budget",
        reason="stopped — “late”\n",
        wall_s=Summary.of([0.1, 0.3, 0.2]),
        ratio=Ratio(0.5, 0.4, 0.6, 3),
        counters={"proposals": 10**18},
        facts={"tables": 10, "note": "ok"},
        claim=Claim(20, 2.5, "min"),
    )
    append_cells(path, [written])
    assert list(read_cells(path)) == [written]
    record = json.loads(path.read_text())
    assert record["schema"] == SCHEMA
    assert record["wall_s"] == {"median": 0.2, "samples": [0.1, 0.3, 0.2]}


def test_figures_that_are_no_longer_counted_are_left_out(path: Path):
    written = cell(work=CountedWork(12), settings=Settings())
    record = written.record()
    assert set(record["work"]) == {"python_calls"}
    record["work"] |= {"more": 7}
    record["settings"]["sampling"] |= {"more": False}
    path.write_text(json.dumps(record) + "\n")
    assert list(read_cells(path)) == [written]


def test_summary_of_nothing_is_nothing():
    assert Summary.of([]) is None
    assert Summary.of([2.0, 1.0]) == Summary(1.5, (2.0, 1.0))


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 1e-300])
def test_times_that_are_none_are_summed_up_as_any(seconds: float):
    """Invalid times that a variant reports must not end the comparison with the others."""
    assert str(Summary.of([seconds]).median) == str(seconds)


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


class TestLock:
    SCRIPT = """
import sys, time
from pathlib import Path
from harness.store.lock import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""

    @pytest.fixture
    def holder(self, path: Path):
        process = subprocess.Popen(
            [sys.executable, "-c", self.SCRIPT, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()
        process.communicate()

    def test_a_second_one_is_refused_with_the_name_of_the_first(self, path: Path, holder):
        with pytest.raises(ShardbenchError) as refused, hold(path):
            pass
        assert str(refused.value) == (
            f"Process {holder.pid} is measuring into {path}; wait for it to end, or name another "
            "file."
        )

    def test_what_a_killed_process_left_does_not_block(self, path: Path, holder):
        holder.kill()
        holder.wait()
        with hold(path):
            pass

    def test_nothing_is_left_behind(self, path: Path):
        with hold(path):
            assert [each.name for each in path.parent.iterdir()] == ["results.jsonl.lock"]
        assert list(path.parent.iterdir()) == []

    def test_it_is_one_file_by_any_name(self, path: Path):
        path.touch()
        other = path.with_name("link.jsonl")
        other.symlink_to(path)
        with hold(path), pytest.raises(ShardbenchError, match="is measuring into"), hold(other):
            pass

    def test_what_is_no_file_is_said(self, tmp_path: Path):
        with pytest.raises(ShardbenchError, match="it is not a file"), hold(tmp_path):
            pass


class TestStrictJson:
    def test_infinities_and_nan_become_null(self, path: Path):
        append_cells(
            path,
            [
                cell(
                    ratio=Ratio(0.5, 0.0, math.inf, 1),
                    facts={"deep": [{"nan": math.nan}, (-math.inf, 1.0)]},
                )
            ],
        )
        text = path.read_text()
        assert "Infinity" not in text
        assert "NaN" not in text
        record = json.loads(text)
        assert (record["ratio"]["value"], record["ratio"]["high"]) == (0.5, None)
        assert record["facts"] == {"deep": [{"nan": None}, [None, 1.0]]}
        (found,) = read_cells(path)
        assert found.ratio == Ratio(0.5, 0.0, math.inf, 1)
        assert found.facts == {"deep": [{}, [None, 1.0]]}

    @settings(max_examples=15)
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
        append_cells(path, [cell(reason="no such file: \udcff\u2028\n")])
        assert json.loads(path.read_text())["reason"] == "no such file: \udcff\u2028\n"
        (found,) = read_cells(path)
        assert found.reason == "no such file: \\udcff\\u2028\n", "what has no glyph is escaped"


class TestFailures:
    """After each failure the file's content is unchanged."""

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


RANKS = cell(ranks=RankTable(("ms",), ((1.5,), (2.0,)), (None,), "ms")).record()


@pytest.mark.parametrize(
    ("changes", "is_whole"),
    [
        ({}, True),
        ({"rows": []}, True),
        ({"rows": [[1.0, 2.0]]}, False),
        ({"capacities": ["x"]}, False),
        ({"bar": None}, False),
    ],
)
def test_ranks_are_a_whole_table_or_the_line_is_damaged(path: Path, changes, is_whole: bool):
    line = RANKS | {"ranks": RANKS["ranks"] | changes}
    path.write_text(f"{json.dumps(line)}\n")
    append_cells(path, [cell("b")])
    damaged: list[Damage] = []
    assert [each.variant for each in read_cells(path, damaged.append)] == (
        ["upstream", "b"] if is_whole else ["b"]
    )
    assert all("ranks" in damage.why for damage in damaged)


@settings(max_examples=30)
@given(
    st.lists(st.dictionaries(st.text(), st.none() | st.integers() | st.text()), min_size=1),
    st.data(),
)
def test_lines_of_any_kind_survive_a_cut_unless_it_is_within_them(tmp_path_factory, held, data):
    """A file that is cut anywhere keeps each complete line, with or without its line feed."""
    path = tmp_path_factory.mktemp("cut") / "lines.jsonl"
    append_lines(path, [json.dumps(each) for each in held])
    content = path.read_bytes()
    ends = [place for place, byte in enumerate(content) if byte == ord("\n")]
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    kept = held[: sum(end <= cut for end in ends)]
    assert [json.loads(line) for line in whole_lines(content[:cut]) if line] == kept
    append_lines(path, ['{"last": 1}'])
    lines = whole_lines(path.read_bytes())
    assert [json.loads(line) for line in lines if line] == [*kept, {"last": 1}]
