"""A suite for a device: order of parts, folders of machines, and scripts that end badly."""

from pathlib import Path

import pytest
from run_record import measure
from toy import toy_registry

from harness.model.errors import ShardbenchError
from harness.suites.record import Record, RecordedSuite, RecordedTable
from harness.suites.recording import Recording

STUDY = """
[[study]]
order = 2
family = "toy"
workloads = ["toy[size=3]", "toy[size=4]"]
topologies = ["dgx_a100_80gb:2"]
variants = ["reference", "same"]
seconds = 0.01
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("first", "last"):
        (tmp_path / f"{name}.py").write_text("import sys\nprint(f'| {sys.argv[1]} |')\n")
    tables = TABLE.format(3, tmp_path / "last.py") + TABLE.format(1, tmp_path / "first.py")
    (tmp_path / "suite.toml").write_text(STUDY + tables)
    return tmp_path


def test_parts_are_measured_in_their_order_once_on_each_machine(folder):
    names = measure(folder, *GPU)
    assert (names[0], len(names), names[-1]) == ("table first", 4, "table last")
    assert measure(folder, *GPU) == []
    assert measure(folder, *CPU) == names


def test_each_machine_has_a_folder_and_those_of_gpus_are_found(folder):
    for device in (GPU, CPU, ("cuda", "Other")):
        record = Record.read(folder, *device)
        recording = Recording(record, toy_registry, {}, print)
        part = next(part for part in recording.parts() if "first" in part.name)
        list(recording.measure([part], lambda part: lambda event: None))
        assert record.table_of("first").read_text() == f"| {device[0]} |\n"
    found = Record.of_gpus(folder)
    assert [record.gpu for record in found] == [GPU[1], "Other"]
    assert found[0].folder.name.startswith("nvidia-toy-5-80gb-")
    # A renamed folder does not turn a CPU into a GPU.
    Record.read(folder, *CPU).folder.rename(folder / "nvidia-h100")
    assert len(Record.of_gpus(folder)) == 2


def run_script(folder: Path, script: str, budget: float = 60.0) -> str:
    """Measure the table of a script; return the table."""
    (folder / "shown.py").write_text(script)
    declared = RecordedTable("shown.py", "toy", budget=budget, arguments=("7",))
    record = Record(folder, RecordedSuite(table=(declared,)))
    (part,) = Recording(record, toy_registry, {}, print).parts()
    part.measure(lambda event: None)
    return (folder / "tables" / "shown.md").read_text()


def test_a_script_runs_as_from_a_shell_and_its_lines_of_a_table_are_kept(tmp_path, monkeypatch):
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
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ShardbenchError, match=outcome):
        run_script(tmp_path, script, 0.5 if "sleep" in script else 60.0)
    assert not (tmp_path / "tables").exists()


def test_the_suite_for_gpus_takes_at_most_forty_minutes():
    declared = Record.read(ROOT / "record" / "gpu", *CPU).declared
    problems = [study for study in declared.study for _ in study.workloads]
    studies = sum(study.seconds + 40 for study in problems)  # checks and set-up take a while
    assert sum(table.budget for table in declared.table) + studies <= 40 * 60
