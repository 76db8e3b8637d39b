"""Kernels are compiled once on a machine, by another process, and never by a search."""

import json
import os
import subprocess
import sys
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any

import pytest

from planners.embedding.search import warm_up

BINS = ["same_plan.bins"]

SEARCH = """
from random import Random

import numpy as np
from random_options import random_case

from planners.embedding.search import compiling, warm_up
from planners.embedding.best_plan.replanning import Replanning
from planners.embedding.best_plan.search import best_plan
from planners.embedding.best_plan.torchrec_rules import can_be_placed_locally
from planners.embedding.plan_files.table import Moves
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import devices_of, search_space

warm_up.ready(warm_up.BEST_PLAN)
kernels = [kernel for module in compiling.KERNELS.values() for kernel in module]
kernels = [kernel for kernel in kernels if kernel.signatures]
assert len(kernels) > 5
compiling.load = compiling._Kept.load_overload = None
for seed in range(10):
    case = random_case(Random(seed), towers=False)
    space, devices = search_space(case.options), devices_of(case.topology)
    best_plan(space, devices, Deadline(0.01))
    if can_be_placed_locally(space, devices):
        nowhere = np.full(len(space.estimate), -1)
        search = Replanning(space, devices, lambda *_: Moves(nowhere, -nowhere), Deadline(0.01))
        search.search(0)
print(sum(len(kernel.signatures) != 1 for kernel in kernels))
"""

COMPILE = """
import json, logging, subprocess, sys

from planners.embedding.search import compiling, warm_up

logging.basicConfig(stream=sys.stdout, format="%(message)s")
started = []
start = subprocess.Popen
warm_up.subprocess.Popen = lambda *words, **options: started.append(1) or start(*words, **options)
warm_up.ready(["same_plan.bins"])
from planners.embedding.same_plan import bins
kernels = compiling.KERNELS[bins.__name__]
json.dump([len(started), [len(kernel.signatures) for kernel in kernels]], sys.stdout)
"""


def process(script: str, cache: Path | None = None) -> "subprocess.Popen[str]":
    here = Path(__file__).parents[1]
    path = os.pathsep.join(map(str, (here, here.parents[1])))
    return subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": path} | ({"NUMBA_CACHE_DIR": str(cache)} if cache else {}),
    )  # fmt: skip


def ended(running: "subprocess.Popen[str]") -> tuple[list[str], Any]:
    """Wait for a process; return its output, and its result, the last line, which is JSON."""
    output, errors = running.communicate()
    assert running.returncode == 0, errors
    *lines, result = output.splitlines()
    return lines, json.loads(result)


@pytest.fixture
def cold(tmp_path, monkeypatch) -> Path:
    """Use an empty cache folder, as a process without loaded kernels; return the folder."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(warm_up, "_loaded", set())
    monkeypatch.setattr(warm_up, "_running", {})
    return tmp_path


def test_no_search_compiles_kernels_that_were_not_compiled_ahead():
    """Each kernel has one signature, and nothing is compiled or loaded after `ready`."""
    assert ended(process(SEARCH))[1] == 0


def test_eight_processes_on_one_cold_cache_compile_everything_once(tmp_path):
    """One starts the compiling process; all load what it keeps."""
    running = [process(COMPILE, tmp_path) for _ in range(8)]
    results = [ended(compiling)[1] for compiling in running]
    assert sum(started for started, _ in results) == 1
    assert all(set(signatures) == {1} for _, signatures in results)
    kept = sorted(path.suffix for path in tmp_path.iterdir())
    assert kept == [".kernel", ".kernel", ".lock"]


def test_a_damaged_file_is_compiled_again_and_a_whole_one_is_used(cold):
    """Half a file is replaced by a whole one, which later processes need not compile."""
    ended(process(COMPILE, cold))
    damaged = min(cold.glob("*.kernel"))
    whole = damaged.stat().st_size
    os.truncate(damaged, whole // 2)
    _, (_, signatures) = ended(process(COMPILE, cold))
    assert set(signatures) == {1}
    assert damaged.stat().st_size > whole // 2
    assert warm_up.are_kept(BINS)
    assert warm_up.advance(BINS)
    assert not warm_up._running


def test_without_a_folder_that_can_be_written_each_process_compiles_for_itself(tmp_path):
    """Each complaint names the variable that can name a folder."""
    (tmp_path / "file").touch()
    complaints, result = ended(process(COMPILE, tmp_path / "file" / "folder"))
    assert result == [0, [1, 1]]
    assert complaints
    assert all("NUMBA_CACHE_DIR" in line for line in complaints)


def test_a_compiling_process_that_fails_is_reported_with_its_reason(cold, monkeypatch):
    """The reason is the last line of its errors."""
    monkeypatch.setattr(warm_up, "PACKAGE", "planners.embedding.nowhere")
    monkeypatch.setattr(warm_up, "are_kept", lambda modules: False)
    warm_up.advance(["nothing"])
    warm_up._running["nothing"].wait()
    with pytest.raises(warm_up.CannotCompile, match="nowhere"):
        warm_up.advance(["nothing"])
    assert not warm_up._running


@pytest.mark.parametrize(("seconds", "announced"), [(1, 0), (9, 1), (10**6, 1)])
def test_a_wait_is_announced_after_two_seconds_and_ends(seconds, announced, monkeypatch, caplog):
    """A compiling process that is stopped holds up a planner for minutes, not for ever."""
    kept = chain(repeat(False, seconds), repeat(True))
    monkeypatch.setattr(warm_up, "are_kept", lambda modules: next(kept))
    monkeypatch.setattr(warm_up, "advance", lambda modules: False)
    monkeypatch.setattr(warm_up.time, "sleep", lambda seconds: None)
    warm_up._announce.cache_clear()
    warm_up.ready(BINS, clock=count().__next__)
    logged = [record for record in caplog.records if record.name == "shardbench"]
    assert [warm_up.COMMAND in record.getMessage() for record in logged] == [True] * announced
