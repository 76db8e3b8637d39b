"""Torn or damaged lines are reported, left out, and moved to another file."""

import errno
import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from stored import cell, variants

from harness.model.cell import SCHEMA
from harness.model.errors import ShardbenchError, UsageError
from harness.store.results import Damage, append_cells, read_cells, set_damaged_aside


class TestTornLines:
    @pytest.mark.parametrize("torn", ["{", '{"cell": "x', "x" * 100_000])
    def test_a_torn_last_line_is_dropped(self, path: Path, torn: str):
        append_cells(path, [cell("a")])
        with path.open("a") as file:
            file.write(torn)
        assert variants(path) == ["a"]
        append_cells(path, [cell("b")])
        assert variants(path) == ["a", "b"]

    @settings(max_examples=15)
    @given(st.data())
    def test_a_file_cut_anywhere_keeps_its_whole_lines(self, tmp_path_factory, data):
        path = tmp_path_factory.mktemp("cut") / "results.jsonl"
        append_cells(path, [cell("a", reason="é"), cell("b", reason="\u2028"), cell("c")])
        content = path.read_bytes()
        ends = [place for place, byte in enumerate(content) if byte == ord("\n")]
        cut = data.draw(st.integers(0, len(content)))
        path.write_bytes(content[:cut])
        whole = sum(end <= cut for end in ends)  # a line end alone may be missing
        assert variants(path) == ["a", "b", "c"][:whole]
        append_cells(path, [cell("d")])
        assert variants(path) == [*["a", "b", "c"][:whole], "d"]

    def test_a_file_of_one_torn_line_is_empty(self, path: Path):
        path.write_text('{"cell"')
        assert variants(path) == []
        append_cells(path, [cell("a")])
        assert variants(path) == ["a"]

    def test_empty_lines_are_left_out(self, path: Path):
        append_cells(path, [cell("a")])
        with path.open("a") as file:
            file.write("\n  \n")
        append_cells(path, [cell("b")])
        assert variants(path) == ["a", "b"]


DAMAGED = [
    "{",
    "not json",
    "[]",
    "3",
    '"text"',
    "null",
    "{}",
    f'{{"schema": {SCHEMA}}}',
    '{"cell": "x"}',
    "[" * 100_000,
    "9" * 5_000,
    b"\xff\xfe",
    b"\x00" * 40,
]


def damaged_field(**changes) -> str:
    return json.dumps(cell().record() | changes)


class TestDamagedLines:
    def damage(self, path: Path, line: str | bytes) -> bytes:
        append_cells(path, [cell("a"), cell("b")])
        with path.open("ab") as file:
            file.write((line.encode() if isinstance(line, str) else line) + b"\n")
        append_cells(path, [cell("c")])
        return path.read_bytes()

    @pytest.mark.parametrize("line", DAMAGED)
    def test_it_is_an_error_that_names_it(self, path: Path, line: str | bytes):
        self.damage(path, line)
        with pytest.raises(UsageError) as refused:
            list(read_cells(path))
        assert str(refused.value).startswith(f"{path}, line 3: it ")

    @pytest.mark.parametrize("line", DAMAGED)
    def test_who_asks_is_told_and_gets_the_others(self, path: Path, line: str | bytes):
        self.damage(path, line)
        damaged: list[Damage] = []
        assert [each.variant for each in read_cells(path, damaged.append)] == ["a", "b", "c"]
        assert [(each.line, each.torn) for each in damaged] == [(3, False)]

    @pytest.mark.parametrize(
        ("changes", "why"),
        [
            ({"ratio": "x"}, "'ratio': Expected `object | null`, got `str`"),
            ({"ratio": {"value": 0}}, "'ratio.value': Expected `float` >= 1e-100"),
            ({"ratio": {"value": math.nan}}, None),
            ({"ratio": {"value": 2, "high": 1}}, "'ratio': a value must lie within its interval"),
            ({"wall_s": {"median": 1, "samples": ["x"]}}, "'wall_s.samples[0]': Expected `float`"),
            ({"wall_s": {"median": 1e-200}}, "'wall_s' must be 0 or from 1e-100 to 1e+100 in size"),
            ({"cpu_s": {"median": -1}}, "'cpu_s.median': Expected `float` >= 0.0"),
            ({"gpus": 0}, "'gpus': Expected `int` >= 1"),
            ({"size": 10**400}, "'size': Number out of range"),
            ({"size": 1e-200}, "'size' must be 0 or from 1e-100 to 1e+100 in size"),
            ({"counters": [1]}, "'counters': Expected `object`, got `array`"),
            ({"counters": {"copies": 10**400}}, "'copies' must be 0 or from 1e-100 to 1e+100 in"),
            ({"facts": {"tables": 10**400}}, "'tables' must be 0 or from 1e-100 to 1e+100 in"),
            ({"peak_memory_bytes": 10**400}, "'peak_memory_bytes': Expected `int` <= 9223372036"),
            ({"status": "fine"}, "'status': Invalid enum value 'fine'; known are: ok, over budget"),
            ({"status": "x" * 10**6}, "'status': Invalid enum value 'xxx"),
            ({"variant": None}, "Object missing required field `variant`"),
            ({"cell": "embedding/other@x"}, "Problem 'x' is malformed; write"),
            ({"variant": "other"}, "'cell' must be the id of what the line says, 'embedding/other"),
            ({"gpus": 8}, "'cell' must be the id of what the line says, 'embedding/upstream@"),
            ({"workload": "dlrm["}, "Workload 'dlrm[' is malformed"),
            ({"environment": {"packages": []}}, "'environment.packages': Expected `object`, got"),
            ({"schema": True}, "'schema' must be 1"),
        ],
    )
    def test_every_field_has_a_type(self, path: Path, changes: dict, why: str | None):
        path.write_text(damaged_field(**changes) + "\n")
        damaged: list[Damage] = []
        list(read_cells(path, damaged.append))
        (found,) = damaged
        assert found.why.startswith("is not JSON: " if why is None else f"is no cell: {why}")
        assert len(str(found)) < 400 + len(str(path))

    def test_a_number_beyond_all_others_is_named(self, path: Path):
        path.write_text(damaged_field().replace('"gpus": 16', '"gpus": 1e400') + "\n")
        with pytest.raises(UsageError, match="1e400 is no finite number"):
            list(read_cells(path))

    def test_another_schema_is_no_damage(self, path: Path):
        append_cells(path, [cell("a")])
        with path.open("a") as file:
            file.write(damaged_field(schema=SCHEMA + 1) + "\n")
        for on_damage in (None, lambda damage: None):
            with pytest.raises(UsageError) as refused:
                list(read_cells(path, on_damage))
            assert str(refused.value) == f"{path}, line 2: it has schema 2; this reads 1."


class TestSettingAside:
    @pytest.mark.parametrize("line", DAMAGED)
    def test_damaged_lines_are_moved_byte_for_byte(self, path: Path, line: str | bytes):
        content = line.encode() if isinstance(line, str) else line
        append_cells(path, [cell("a")])
        path.write_bytes(content + b"\n" + path.read_bytes() + content + b"\n")
        assert [damage.line for damage in set_damaged_aside(path)] == [1, 3]
        assert variants(path) == ["a"]
        assert (path.parent / "results.jsonl.damaged").read_bytes() == 2 * (content + b"\n")
        assert sorted(each.name for each in path.parent.iterdir()) == [
            "results.jsonl",
            "results.jsonl.damaged",
        ]
        assert set_damaged_aside(path) == []

    def test_a_clean_file_is_not_touched(self, path: Path):
        assert set_damaged_aside(path) == []
        append_cells(path, [cell("a")])
        with path.open("a") as file:
            file.write('{"torn')
        before, written = path.read_bytes(), path.stat().st_mtime_ns
        assert set_damaged_aside(path) == []
        assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, written)
        assert len(list(path.parent.iterdir())) == 1

    def test_a_torn_line_stays_for_the_next_one_to_replace(self, path: Path):
        append_cells(path, [cell("a")])
        with path.open("a") as file:
            file.write('damaged\n{"torn')
        set_damaged_aside(path)
        assert path.read_bytes().endswith(b'{"torn')
        append_cells(path, [cell("b")])
        assert variants(path) == ["a", "b"]

    def test_a_kill_between_the_two_files_moves_a_line_once(self, path: Path, monkeypatch):
        path.write_text("damaged\n")
        append_cells(path, [cell("a")])

        class Killed(Exception):
            pass

        def kill(*arguments: object) -> None:
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr("harness.store.results.replace_file", kill)
            with pytest.raises(Killed):
                set_damaged_aside(path)
        assert path.read_text().startswith("damaged\n")
        set_damaged_aside(path)
        assert variants(path) == ["a"]
        assert path.with_name("results.jsonl.damaged").read_text() == "damaged\n"

    def test_a_full_disk_leaves_the_file(self, path: Path, monkeypatch: pytest.MonkeyPatch):
        path.write_text("damaged\n")
        append_cells(path, [cell("a")])
        before = path.read_bytes()

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ShardbenchError, match="No space left on device"):
            set_damaged_aside(path)
        assert path.read_bytes() == before
