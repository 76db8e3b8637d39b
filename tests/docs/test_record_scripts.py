"""The scripts of the record print their tables, on small problems and on a CPU."""

import importlib
import re
import runpy
import sys
from collections.abc import Callable
from importlib import resources

import pytest
import torch
from documented import ROOT, run_python

from harness.measuring.environment import environment
from harness.measuring.jobs import start_server_for

SCRIPTS = ROOT / "record" / "scripts"
# The arguments for a small problem, and the number of rows.
SMALL = {
    "plan_cache.py": ("6x4", 3),
    "placement_problems.py": ("blocks[blocks=1,seconds=1]", 1),
    "plan_into_job.py": ("8 8", 6),
    "remedies.py": ("0 1", 2),
    "replanning.py": ("12x16", 2),
    "stability.py": ("6x4", 5),
}
# These start processes, or change settings of their own one.
SMALL_IN_A_PROCESS = {
    "fsdp_step.py": ("1", 11),
    "links.py": ("", 18),
    "large_problems.py": ("certified@synthetic[tables=4]/dgx_h100:8", 1),
}

pytestmark = pytest.mark.filterwarnings("ignore")  # as in the processes of the scripts


def test_the_record_names_the_scripts_that_are_there():
    """Suites run every script, and no other."""
    suites = (ROOT / "record").rglob("suite.toml")
    named = {name for s in suites for name in re.findall(r'^script = "(.*)"', s.read_text(), re.M)}
    scripts = {f"record/scripts/{path.name}" for path in SCRIPTS.glob("*.py")}
    assert scripts - named == {"record/scripts/common.py"}
    assert named <= scripts


@pytest.fixture
def run_here(monkeypatch, capfd, tmp_path) -> Callable[..., tuple[str, str]]:
    """Return a function that runs a script, and what it would do in processes, in this process.

    It returns standard output and error.
    """
    monkeypatch.syspath_prepend(SCRIPTS)
    monkeypatch.chdir(tmp_path)
    common = importlib.import_module("common")
    monkeypatch.setattr(common, "in_new_process", lambda work, *given, **_: work(*given))
    monkeypatch.setattr(common, "be_quiet", lambda: None)

    def run(script: str, *arguments: str) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        runpy.run_path(str(SCRIPTS / script), run_name="__main__")
        return capfd.readouterr()

    return run


def assert_is_table(printed: str, rows: int) -> None:
    """Assert that a Markdown table with at least this number of rows of equal length is printed."""
    table = [line for line in printed.splitlines() if line.startswith("|")]
    assert len(table) >= 2 + rows
    assert len({line.count("|") for line in table}) == 1


@pytest.mark.long
@pytest.mark.parametrize("script", SMALL)
def test_a_table_is_printed(script, run_here):
    """On a small problem a script prints its rows."""
    arguments, rows = SMALL[script]
    assert_is_table(run_here(script, *arguments.split())[0], rows)


@pytest.mark.long
@pytest.mark.parametrize("script", SMALL_IN_A_PROCESS)
def test_a_table_is_printed_by_a_process(script, tmp_path):
    """As a program, on a small problem, a script prints its rows."""
    arguments, rows = SMALL_IN_A_PROCESS[script]
    printed = run_python(str(SCRIPTS / script), *arguments.split(), folder=tmp_path)
    assert_is_table(printed, rows)


@pytest.mark.long
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("script", ["estimates.py", "sharded_step.py", "tests.py", "memory.py"])
def test_without_a_gpu_a_script_measures_nothing(script, run_here, capfd):
    """It says so in one sentence and exits with 2."""
    with pytest.raises(SystemExit) as ended:
        run_here(script, "--device", "cuda")
    printed, said = capfd.readouterr()
    assert (ended.value.code, printed) == (2, "")
    assert said.endswith("There is no CUDA device that torch can use.\n")


def test_a_script_measures_nothing_against_the_estimates_of_another_machine(
    monkeypatch, tmp_path, capsys
):
    """It names both machines in one sentence, and exits with 2."""
    monkeypatch.syspath_prepend(SCRIPTS)
    common = importlib.import_module("common")
    (included,) = resources.files("planners.embedding").joinpath("data/machines").iterdir()
    text, file = included.read_text(), tmp_path / "machine.toml"
    monkeypatch.setattr("sys.argv", ["script", str(file)])
    file.write_text(re.sub("(?m)^device = .*", f'device = "{environment(0).cpu}"', text))
    assert common.device_and_machine_of("Measure.") == ("cpu", str(file))
    file.write_text(re.sub("(?m)^device = .*", 'device = "Other"', text))
    with pytest.raises(SystemExit) as ended:
        common.device_and_machine_of("Measure.")
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert "machine.toml was calibrated on Other, and this is " in said
    assert said.count("\n") == 1


@pytest.mark.long
def test_ranks_of_two_plans_are_stepped_and_compared(monkeypatch):
    """Each plan has a measured time, and the second one a ratio."""
    monkeypatch.syspath_prepend(SCRIPTS)
    functions = runpy.run_path(str(SCRIPTS / "sharded_step.py"))
    start_server_for([functions["FAMILY"]])
    rows = list(functions["rows"]("synthetic[tables=4,weights=cpu,mib=4]", "epyc_2core", "cpu", 2))
    assert rows[0][1].startswith("upstream")
    assert rows[0][-1] == "-"
    assert all(float(measured) > 0 for _, _, _, measured, *_ in rows)


@pytest.mark.long
def test_plans_are_trained_by_processes_and_compared(monkeypatch):
    """Each plan has a measured time, and all but TorchRec's a ratio."""
    monkeypatch.syspath_prepend(SCRIPTS)
    trained_step = importlib.import_module("trained_step")
    rows = trained_step.rows("synthetic[tables=4,weights=cpu,mib=4]", "epyc_2core", "cpu", turns=1)
    assert rows[0][1].startswith("upstream")
    assert rows[0][-1] == "-"
    assert all(float(measured) > 0 for _, _, _, measured, _ in rows)


def test_measured_plans_are_read_as_the_page_says():
    """The lines of Python on the page find a rank's times and the rows of its shards."""
    page = (ROOT / "docs" / "record.md").read_text()
    (code,) = re.findall(r"```python\n(import pandas.*?)```", page, re.DOTALL)
    code += "print(len(shards) > len(ranks) > len(plans), shards['rows'].min() >= 1)"
    assert run_python("-c", code, folder=ROOT).endswith("True True\n")
