"""The record: which parts are measured, what they store, and kills in the middle."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from run_record import CELLS, SUITE, measure
from toy_library import declared, family
from toy_repository import ToyRepository

from harness.contract.registry import Registry
from harness.model.errors import UsageError
from harness.store.cells import CellStore
from harness.store.keys import Key
from harness.suites.record import Record
from harness.suites.recording import Recording, RecordPart


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "suite.toml").write_text(SUITE)
    return tmp_path


def test_every_part_is_measured_once_and_has_a_line_with_its_time(folder):
    assert len(measure(folder)) == 5
    record = Record.read(folder)
    assert len(record.cells()) == CELLS
    assert len(record.runs()) == 5
    assert measure(folder) == []


COMMITS = """
[[commits]]
library = "toylib"
problem = "toy[size=3]/dgx_a100_80gb:8"
"""
PROFILE = '[[profile]]\nfamily = "toy"\nproblem = "toy/dgx_h100:2"\nvariants = ["sane"]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[study]]\n", r"suite\.toml"),
        ("[[study]]\nonce = 3\n", r"suite\.toml"),
        ("studies = 1", r"suite\.toml"),
        (f"{COMMITS}commits.head = 'HEAD'\n", "library with commits"),
        (PROFILE, "sane"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is(folder, text, said):
    (folder / "suite.toml").write_text(f"{text if 'stud' in text else SUITE + text}")
    with pytest.raises(UsageError, match=said):
        measure(folder)
    assert not (folder / "cells.jsonl").exists()


def test_stale_keeps_cells_until_the_sources_of_their_family_change(folder):
    script = folder / "printing.py"
    script.write_text("print('| 1 |')\n")
    table = f'[[table]]\nscript = "{script}"\nfamily = "toy"\n'
    (folder / "suite.toml").write_text(SUITE + table)
    measure(folder)

    def with_key(**changes: str) -> list[str]:
        for store in (CellStore(folder / "cells.jsonl"), Record.read(folder).run_store):
            keys = [structs.replace(Key.parse(entry.key), **changes) for entry in store.entries]
            pairs = zip(store.entries, keys, strict=True)
            store.set_aside([replace(entry, key=str(key)) for entry, key in pairs])
        return measure(folder, stale=True)

    assert with_key(code="of another version") == []
    assert len(with_key(family="of another version")) == 6


@pytest.mark.parametrize("counted", [False, True])
def test_commits_are_timed_without_counting_and_counted_with_it(tmp_path, counted):
    repository = ToyRepository(tmp_path / "repository")
    one, two = repository.version("one"), repository.version("two", scans=3)
    declares = f'commits = {{ one = "{one}", two = "{two}" }}\ncounted = {str(counted).lower()}'
    (tmp_path / "suite.toml").write_text(COMMITS + declares)
    record, registry = Record.read(tmp_path), Registry([family(declared(tmp_path))])
    clones = {"toylib": tmp_path / "repository"}
    (part,) = Recording(record, lambda: registry, clones, print).parts()
    assert not part.is_measured
    part.measure(lambda event: None)
    cells = list(record.cells().values())
    assert [len(cell.cpu_s.samples) for cell in cells] == [2, 2]
    assert [bool(cell.counters) for cell in cells] == [counted] * 2


def test_long_parts_run_two_at_a_time_within_memory_and_commits_never_with_studies(folder):
    running: list[tuple[str, str]] = []
    seen: list[dict[str, str]] = []

    def part(name: str, kind: str, gib: float) -> RecordPart:
        def measure(_) -> str:
            running.append((name, kind))
            time.sleep(0.05)
            seen.append(dict(running))
            running.remove((name, kind))
            return "ok"

        return RecordPart(name, kind, False, measure, is_long=True, gib=gib)

    sizes = {"a": 1.0, "b": 1.0, "huge": 1e6, "c": 1.0}
    parts = [part(name, kind, gib) for kind in ("study", "commits") for name, gib in sizes.items()]
    assert len(measured(folder, parts)) == len(parts)
    assert max(map(len, seen)) == 2
    for at_once in seen:
        assert len(set(at_once.values())) == 1
        assert "huge" not in at_once or len(at_once) == 1


def test_the_longest_parts_begin_first(folder):
    last = {"a": 10.0, "new": 0.0, "b": 300.0, "c": 20.0}
    settings = {"is_long": True, "gib": 1e6}
    parts = [
        RecordPart(name, "study", False, lambda _: "ok", seconds=seconds, **settings)
        for name, seconds in last.items()
    ]
    assert measured(folder, parts) == ["new", "b", "c", "a"]


def measured(folder: Path, parts: list[RecordPart]) -> list[str]:
    recording = Recording(Record.read(folder), Registry, {}, print)
    return [part.name for part in recording.measure(parts, lambda part: lambda event: None)]
