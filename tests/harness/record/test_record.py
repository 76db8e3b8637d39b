"""The record: which parts are measured, what they store, and kills in the middle."""

import random
import subprocess
import sys
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
from harness.store.cells import CellStore, read_cells
from harness.store.keys import Key
from harness.store.lines import Entry
from harness.suites.record import MeasuredPart, Record, RecordPart

SCRIPT = Path(__file__).with_name("run_record.py")
KILLS = 20


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


def test_what_cannot_be_measured_is_refused_before_anything_is(folder):
    """Commits that are neither timed nor counted, and a profile of an unknown variant."""
    commits = '[[commits]]\nlibrary = "toylib"\nproblem = "toy/dgx_h100:2"\ncommits.one = "a"\n'
    profile = '[[profile]]\nfamily = "toy"\nproblem = "toy/dgx_h100:2"\nvariants = ["sane"]\n'
    for text, named in ((f"{commits}repeat = 0\n", "repeat"), (profile, "sane")):
        (folder / "suite.toml").write_text(SUITE + text)
        with pytest.raises(UsageError, match=named):
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


@pytest.mark.long
def test_kills_at_random_moments_lose_nothing(folder):
    rng, kept = random.Random(7), 0
    for _ in range(KILLS):
        running = subprocess.Popen([sys.executable, str(SCRIPT), str(folder)])
        try:
            running.wait(rng.uniform(0.3, 2.5))
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        file = folder / "cells.jsonl"
        cells = list(read_cells(file)) if file.exists() else []
        assert len(cells) >= kept
        kept = len(cells)
    measure(folder)
    assert len(Record.read(folder).cells()) == CELLS


def test_commits_are_timed_without_counting_and_counted_with_it(tmp_path):
    repository = ToyRepository(tmp_path / "repository")
    one, two = repository.version("one"), repository.version("two", scans=3)
    text = """
    [[commits]]
    library = "toylib"
    problem = "toy[size=3]/dgx_a100_80gb:8"
    commits = {{ one = "{}", two = "{}" }}
    counted = {}
    """
    registry = Registry([family(declared(tmp_path))])
    for counted in (False, True):
        (tmp_path / "suite.toml").write_text(text.format(one, two, str(counted).lower()))
        record = Record.read(tmp_path)
        clones = {"toylib": tmp_path / "repository"}
        parts = record.parts(lambda: registry, clones, lambda path, profiles, problem: None)
        (part,) = parts
        assert not part.is_measured
        part.measure(lambda event: None)
        found = list(record.cells().values())
        assert [len(cell.cpu_s.samples) for cell in found] == [2, 2]
        assert [bool(cell.counters) for cell in found] == [counted] * 2


def test_commits_without_a_clone_are_not_measured_and_the_rest_is(folder):
    (folder / "suite.toml").write_text(
        SUITE + '[[commits]]\nlibrary = "toylib"\nproblem = "toy[size=3]/dgx_a100_80gb:8"\n'
        'commits.head = "HEAD"\n'
    )
    with pytest.raises(UsageError, match="library with commits"):
        measure(folder)


def test_a_table_is_what_a_script_prints_in_lines_of_a_table(folder):
    script, suite = folder / "counting.py", folder / "suite.toml"
    script.write_text("import sys\nprint('Counted.', f'| {sys.argv[1]} |', sep='\\n')\n")
    table = f'[[table]]\nscript = "{script}"\nfamily = "toy"\narguments = ["7"]\n'
    suite.write_text(table)
    assert measure(folder) == ["table counting"]
    assert Record.read(folder).table_of("counting").read_text() == "| 7 |\n"
    assert measure(folder) == []
    script.write_text("raise SystemExit(1)")
    suite.write_text(table.replace("counting", "failing"))
    script.rename(folder / "failing.py")
    measure(folder)
    assert list(Record.read(folder).runs()) == ["table counting"]


@pytest.mark.parametrize(
    "text", ["", "[[study]]\n", "[[claim]]\nname = 'one'\n", "[[study]]\nonce = 3\n", "studies = 1"]
)
def test_a_malformed_suite_is_one_sentence_with_the_file(tmp_path, text):
    (tmp_path / "suite.toml").write_text(text)
    if not text:
        assert Record.read(tmp_path).declared.study == ()
        return
    with pytest.raises(UsageError, match=r"suite\.toml"):
        Record.read(tmp_path)


def test_long_parts_run_two_at_a_time_within_memory_and_commits_never_with_studies(folder):
    running, seen = [], []

    def part(name: str, kind: str, gib: float) -> RecordPart:
        def measure(_) -> str:
            running.append((name, kind))
            time.sleep(0.05)
            seen.append(tuple(running))
            running.remove((name, kind))
            return "ok"

        return RecordPart(name, kind, False, measure, is_long=True, gib=gib)

    sizes = {"a": 1.0, "b": 1.0, "huge": 1e6, "c": 1.0}
    parts = [part(name, kind, gib) for kind in ("study", "commits") for name, gib in sizes.items()]
    ended = []
    Record.read(folder).measure(
        parts, lambda part: lambda event: None, lambda part, *_: ended.append(part.name)
    )
    assert sorted(ended) == sorted(2 * list(sizes))
    assert max(map(len, seen)) <= 2
    for at_once in seen:
        assert len({kind for _, kind in at_once}) == 1
        assert "huge" not in dict(at_once) or len(at_once) == 1


def test_the_longest_parts_begin_first(folder):
    begun = []

    def part(name: str) -> RecordPart:
        def measure(_: object) -> str:
            begun.append(name)
            return "ok"

        return RecordPart(name, "study", False, measure, is_long=True, gib=1e6)

    last = {"a": 10.0, "b": 300.0, "c": 20.0}
    record = Record.read(folder)
    record.run_store.add(*(Entry(name, "", MeasuredPart(s)) for name, s in last.items()))
    parts = [part(name) for name in ("a", "new", "b", "c")]
    record.measure(parts, lambda part: lambda event: None, lambda part, *_: None)
    assert begun == ["new", "b", "c", "a"]
