"""An interrupted command ends with one sentence on the kept results and the command to resume."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import toy

from harness.measuring import comparison
from harness.store.cells import read_cells

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_no_process_prints_a_traceback_where_children_start(seconds, tmp_path):
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
    time.sleep(seconds)
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
        ("sweep dimspec --results r.jsonl --fresh", "sweep.measure", "command without --fresh"),
        ("report", "report.measure", "kept in results/report.jsonl; the same command goes on"),
        ("compare dimspec@random[conversions=5]/dgx_h100:8", "compare.Comparison", "nothing is"),
        ("topology show dgx_h100 -n 8", "topology.find_topology", "Interrupted: nothing is kept"),
    ],
)
def test_it_is_said_what_was_kept(command, measures, sentence, monkeypatch, shardbench):
    monkeypatch.setattr(f"shardbench.commands.{measures}", interrupted)
    code, _, err = shardbench(*command.split())
    assert code == 130
    assert sentence in " ".join(err.split())


def test_an_interrupted_comparison_keeps_the_cells_that_are_final(
    shardbench, use_families, monkeypatch
):
    """The cell of a variant that failed is stored before the others are timed."""
    use_families(toy.toy_registry)
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
