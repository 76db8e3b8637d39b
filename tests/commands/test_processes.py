"""Commands as processes: interrupts, hash seeds, and closed or full streams."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import toy_registries

from harness.measuring import comparison
from harness.store.cells import read_cells

ROOT = Path(__file__).parents[2]


def test_no_process_prints_a_traceback_where_children_start(tmp_path):
    """An interrupt reaches all processes of a terminal at once."""
    running = subprocess.Popen(
        [sys.executable, "-m", "shardbench", "compare", "reshard@transformer[layers=2]/dgx_h100:4"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
        # A shell ignores it for what it runs in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    until = time.monotonic() + 60
    while not any("worker.py" in " ".join(each.cmdline()) for each in children(running.pid)):
        assert running.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    time.sleep(0.2)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal sends it, to all of them
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in out
    assert out.splitlines()[-1].startswith("Interrupted: ")


def children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def interrupted(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("command", "measures", "sentence"),
    [
        ("sweep dimspec --results r.jsonl", "sweep.measure", "kept in r.jsonl; the same"),
        ("report", "report.measure", "kept in results/report.jsonl; the same command goes on"),
        ("compare dimspec@random[conversions=5]/dgx_h100:8", "compare.Comparison", "nothing is"),
    ],
)
def test_it_is_said_what_was_kept(command, measures, sentence, monkeypatch, shardbench):
    """The sentence names the file and the command that goes on."""
    monkeypatch.setattr(f"shardbench.commands.{measures}", interrupted)
    code, _, err = shardbench(*command.split())
    assert code == 130
    assert sentence in " ".join(err.split())


def test_an_interrupted_comparison_keeps_the_cells_that_are_final(
    shardbench, use_families, monkeypatch
):
    """The cell of a variant that failed is stored before the others are timed."""
    use_families(toy_registries.toy_registry)
    run_job = comparison.run_job

    def interrupted_while_timing(*arguments, event, **options):
        is_timing = event.stage == "timing"
        return interrupted() if is_timing else run_job(*arguments, event=event, **options)

    monkeypatch.setattr(comparison, "run_job", interrupted_while_timing)
    variants = ("--variants", "same,raises,missing", "--seconds", "0.1")
    problem = ("compare", "toy", "-w", "toy", "-t", "dgx_h100", "-n", "2")
    code, _, err = shardbench(*problem, *variants, "--results", "r.jsonl")
    assert (code, "the results so far are kept in r.jsonl" in " ".join(err.split())) == (130, True)
    assert {cell.variant for cell in read_cells(Path("r.jsonl"))} == {"raises", "missing"}
    monkeypatch.setattr(comparison, "run_job", run_job)
    code, out, err = shardbench(*problem, *variants, "--results", "r.jsonl")
    assert (code, "2 cells of r.jsonl count" in err) == (0, True)
    stored = [cell.variant for cell in read_cells(Path("r.jsonl"))]
    assert sorted(stored) == ["missing", "raises", "reference", "same"]
    assert all(name in out for name in stored)


SCRIPT = """
import atexit
atexit.register(lambda: print(hash("a table")))  # the order of a set of strings depends on it
from shardbench.cli import main
main()
"""


def test_the_hash_seed_of_the_shell_changes_no_decision():
    """A command that plans has the same hashes under two seeds of the shell."""
    hashes = set()
    for seed in ("1", "2"):
        out = subprocess.check_output(
            [sys.executable, "-c", SCRIPT, "plan", "--help"],
            cwd=Path(__file__).parents[2],
            env=os.environ | {"PYTHONHASHSEED": seed},
            text=True,
        )
        hashes.add(out.splitlines()[-1])
    assert len(hashes) == 1


LISTING = ("list", "families")
UNKNOWN = ("list", "families", "unknown")


def run(*arguments: str, shell: str = "", **changes: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command with redirections of a shell, in the environment with changes."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {shell}', "sh", sys.executable, "-m", "shardbench", *arguments],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **changes},
        timeout=60,
        check=False,
    )


def test_a_full_disk_is_one_sentence():
    """Output that cannot be written is an error of one sentence, not a traceback."""
    ended = run(*LISTING, shell=">/dev/full")
    assert ended.returncode == 1
    assert ended.stderr.count(b"\n") == 1
    assert b"No space left on device" in ended.stderr
    assert run(*UNKNOWN, shell="2>/dev/full").returncode == 2


def test_closed_streams_change_no_exit_code():
    """A closed stream loses its output, and changes nothing else."""
    assert run(*LISTING, shell="<&- >&- 2>&-").returncode == 0
    assert run(*UNKNOWN, shell="2>&-").returncode == 2


def test_child_processes_start_without_streams_and_letters_that_a_terminal_lacks_are_replaced(
    tmp_path,
):
    """A command that starts processes works, also with a long path of temporary files."""
    folder = tmp_path / ("a" * 200)
    folder.mkdir()
    command = ("doctor", "--seconds", "0.1")
    ended = run(*command, shell="<&- 2>&-", TMPDIR=str(folder), PYTHONIOENCODING="ascii")
    assert ended.returncode == 0
    assert b"?" in ended.stdout
