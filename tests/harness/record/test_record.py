"""The record: which parts are measured, what they store, and suites for a device."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from toy_library import ToyRepository, declared, family
from toy_registries import toy_registry

from harness.contract.registry import Registry
from harness.model.errors import ShardbenchError, UsageError
from harness.store.cells import CellStore
from harness.store.keys import Key
from harness.suites.record import Record, RecordedSuite, RecordedTable
from harness.suites.recording import Recording, RecordPart

STUDY = """
[[study]]
order = 2
family = "toy"
workloads = ["toy[size={size}]"]
topologies = ["dgx_a100_80gb:2"]
variants = ["reference", "same"]
seconds = 0.01
matrix.size = [3, 4]
"""
TABLE = """
[[table]]
order = {}
script = "{}"
family = "toy"
arguments = ["{{device}}"]
"""
ROOT = Path(__file__).parents[3]
GPU = ("cuda", "NVIDIA Toy-5 (80GB)")
CPU = ("cpu", "")


def measure(folder: Path, *device: str, stale: bool = False) -> list[str]:
    """Measure the rest of a record, and return the names of the measured parts."""
    recording = Recording(Record.read(folder, *device), toy_registry, {}, print, stale)
    left = [part for part in recording.parts() if not part.is_measured]
    done = recording.measure(left, lambda part: lambda event: None)
    return [part.name for part in done]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a record with a study of two problems."""
    (tmp_path / "suite.toml").write_text(STUDY)
    return tmp_path


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
    """Neither a wrong suite nor an unknown name is measured in part."""
    (folder / "suite.toml").write_text(f"{text if 'stud' in text else STUDY + text}")
    with pytest.raises(UsageError, match=said):
        measure(folder)
    assert not (folder / "cells.jsonl").exists()


def test_stale_keeps_cells_until_the_sources_of_their_family_change(folder):
    """Another version of the harness alone is no reason to measure again."""
    script = folder / "printing.py"
    script.write_text("print('| 1 |')\n")
    table = f'[[table]]\nscript = "{script}"\nfamily = "toy"\n'
    (folder / "suite.toml").write_text(STUDY + table)
    measure(folder)

    def with_key(**changes: str) -> list[str]:
        for store in (CellStore(folder / "cells.jsonl"), Record.read(folder).run_store):
            keys = [structs.replace(Key.parse(entry.key), **changes) for entry in store.entries]
            pairs = zip(store.entries, keys, strict=True)
            store.set_aside([replace(entry, key=str(key)) for entry, key in pairs])
        return measure(folder, stale=True)

    assert with_key(code="of another version") == []
    assert len(with_key(family="of another version")) == 3


@pytest.mark.parametrize("counted", [False, True])
def test_commits_are_timed_without_counting_and_counted_with_it(tmp_path, counted):
    """Commits of a suite are cells with two times each."""
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
    """Parts of one kind run beside each other if memory is enough for both."""
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
    """Parts that were never measured come before all others."""
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


@pytest.fixture
def device_folder(folder: Path) -> Path:
    for name in ("first", "last"):
        (folder / f"{name}.py").write_text("import sys\nprint(f'| {sys.argv[1]} |')\n")
    tables = TABLE.format(3, folder / "last.py") + TABLE.format(1, folder / "first.py")
    (folder / "suite.toml").write_text(STUDY + tables)
    return folder


def test_each_machine_has_a_folder_where_parts_are_measured_once_in_their_order(device_folder):
    """A machine is known by what its runs say, not by its folder."""
    names = measure(device_folder, *GPU)
    assert (names[0], len(names), names[-1]) == ("table first", 4, "table last")
    assert measure(device_folder, *GPU) == []
    assert measure(device_folder, *CPU) == names
    for device in (GPU, CPU):
        table = Record.read(device_folder, *device).table_of("first")
        assert table.read_text() == f"| {device[0]} |\n"
    # A renamed folder does not turn a CPU into a GPU.
    Record.read(device_folder, *CPU).folder.rename(device_folder / "nvidia-h100")
    (record,) = Record.of_gpus(device_folder)
    assert record.gpu == GPU[1]
    assert record.folder.name.startswith("nvidia-toy-5-80gb-")


def run_script(folder: Path, script: str, budget: float = 60.0) -> str:
    """Measure the table of a script; return the table."""
    (folder / "shown.py").write_text(script)
    declared = RecordedTable("shown.py", "toy", budget=budget, arguments=("7",))
    record = Record(folder, RecordedSuite(table=(declared,)))
    (part,) = Recording(record, toy_registry, {}, print).parts()
    part.measure(lambda event: None)
    return (folder / "tables" / "shown.md").read_text()


def test_a_script_runs_as_from_a_shell_and_its_lines_of_a_table_are_kept(tmp_path, monkeypatch):
    """Other lines that it prints are left out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONHASHSEED", "random")
    table = run_script(
        tmp_path,
        "import os, resource, signal, sys\nsoft, hard = resource.getrlimit(resource.RLIMIT_DATA)\n"
        "print('Counted.')\nprint('|', os.getcwd(), os.environ['PYTHONHASHSEED'], soft == hard)\n"
        "print('|', signal.getsignal(signal.SIGINT).__name__, sys.argv[1])\n",
    )
    assert table == f"| {tmp_path} random True\n| default_int_handler 7\n"


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ("import sys; sys.exit('No kernel.')", "ended with exit code 1: No kernel."),
        ("import sys; print('No kernel.', file=sys.stderr); sys.exit(2)", "^No kernel.$"),
        ("import os; os.abort()", "was killed by signal"),
        ("import time; time.sleep(1e6)", "was stopped after"),
    ],
)
def test_the_outcome_of_a_script_that_ends_badly_says_why(tmp_path, monkeypatch, script, outcome):
    """No table is written."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ShardbenchError, match=outcome):
        run_script(tmp_path, script, 0.5 if "sleep" in script else 60.0)
    assert not (tmp_path / "tables").exists()


def test_the_suite_for_gpus_takes_at_most_forty_minutes():
    """The budgets of its parts add up to less."""
    declared = Record.read(ROOT / "record" / "gpu", *CPU).declared
    problems = [study for study in declared.study for _ in study.workloads]
    studies = sum(study.seconds + 40 for study in problems)  # checks and set-up take a while
    assert sum(table.budget for table in declared.table) + studies <= 40 * 60
