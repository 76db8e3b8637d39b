"""Kernels do what plain Python does; they are compiled once on a machine, and never by a search."""

import hashlib
import json
import os
import pickle
import resource
import subprocess
import sys
from itertools import chain, count, repeat
from pathlib import Path
from random import Random
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from random_options import placements, random_case
from small_problems import NO_TABLES, constructed, varied

from planners.embedding.best_plan.insertion import Figure
from planners.embedding.best_plan.replanning import Replanning
from planners.embedding.best_plan.rounds import search
from planners.embedding.best_plan.search import best_plan
from planners.embedding.best_plan.torchrec_rules import can_be_placed_locally
from planners.embedding.plan_files.table import Moves
from planners.embedding.search import compiling, warm_up
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import devices_of, search_space

BINS = ["same_plan.bins"]

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


def process(script: str, largest_file: int = -1, **variables: object) -> "subprocess.Popen[str]":
    """Run a script that may import the helpers of these tests."""
    here = Path(__file__).parents[1]
    path = os.pathsep.join(map(str, (here, here.parents[1])))
    return subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": path} | {name: str(v) for name, v in variables.items()},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, -1)),
    )  # fmt: skip


def ended(running: "subprocess.Popen[str]") -> tuple[list[str], Any]:
    """Wait for a process; return its output, and its result, the last line, which is JSON."""
    output, errors = running.communicate()
    assert running.returncode == 0, errors
    *lines, result = output.splitlines()
    return lines, json.loads(result)


def done() -> dict[str, Any]:
    """Return whether kernels are compiled, their placements, and a hash of a search's state."""
    tables, state = constructed(*varied(), seed=3, doublings=1)
    search(tables, state, NO_TABLES, NO_TABLES, 5_000, 1.0, 0.0)
    return {
        "compiled": not isinstance(search, FunctionType),
        "placements": [placements(seed) for seed in range(10)],
        "rating": float(state.figures[Figure.BEST]),
        "state": hashlib.sha256(pickle.dumps(state)).hexdigest(),
    }


def test_compiled_kernels_place_and_search_as_python_does_to_the_last_bit():
    """Plain Python runs in a process of its own."""
    _, plain = ended(process(Path(__file__).read_text(), NUMBA_DISABLE_JIT=1))
    compiled = done()
    assert compiled.pop("compiled")
    assert not plain.pop("compiled")
    assert np.isfinite(compiled["rating"])
    assert json.loads(json.dumps(compiled)) == plain


@pytest.mark.parametrize("changed", ["kernels", "constants"])
def test_the_key_changes_with_the_sources_of_a_module_and_its_imports(
    changed, tmp_path, monkeypatch
):
    """Even a changed comment is another key."""
    sources = {"kernels": "from planners.constants import FACTOR\n", "constants": "FACTOR = 2\n"}
    for name, source in sources.items():
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        monkeypatch.setitem(sys.modules, f"planners.{name}", SimpleNamespace(__file__=str(path)))
    digests = []
    for _ in range(2):
        compiling._digest.cache_clear()
        digests.append(compiling._digest("planners.kernels"))
        (tmp_path / f"{changed}.py").write_text(f"{sources[changed]}# otherwise\n")
    assert digests[0] != digests[1]


@pytest.fixture
def cold(tmp_path, monkeypatch) -> Path:
    """Use an empty cache folder, as a process without loaded kernels; return the folder."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(warm_up, "_loaded", set())
    monkeypatch.setattr(warm_up, "_running", {})
    return tmp_path


def test_no_search_compiles_kernels_that_were_not_compiled_ahead(monkeypatch):
    """Each kernel has one signature, and nothing is compiled or loaded after `ready`."""
    warm_up.ready(warm_up.BEST_PLAN)
    kernels = [kernel for module in compiling.KERNELS.values() for kernel in module]
    kernels = [kernel for kernel in kernels if kernel.signatures]
    monkeypatch.setattr(compiling, "load", None)
    monkeypatch.setattr(compiling._Kept, "load_overload", None)
    for seed in range(10):
        case = random_case(Random(seed), towers=False)
        space, devices = search_space(case.options), devices_of(case.topology)
        best_plan(space, devices, Deadline(0.01))
        if can_be_placed_locally(space, devices):
            moves = Moves(np.full(len(space.estimate), -1), np.ones(len(space.estimate), int))
            Replanning(space, devices, lambda *_, moves=moves: moves, Deadline(0.01)).search(0)
    assert {len(kernel.signatures) for kernel in kernels} == {1}
    assert len(kernels) > 5


def test_processes_on_a_cold_cache_compile_once_and_a_damaged_file_is_compiled_again(cold):
    """One of three starts the compiling process, and all load what it keeps."""
    running = [process(COMPILE, NUMBA_CACHE_DIR=cold) for _ in range(3)]
    results = [ended(compiling)[1] for compiling in running]
    assert sum(started for started, _ in results) == 1
    assert all(set(signatures) == {1} for _, signatures in results)
    kept = sorted(path.suffix for path in cold.iterdir())
    assert kept == [".kernel", ".kernel", ".lock"]
    # Half a file is replaced by a whole one, which later processes need not compile.
    damaged = min(cold.glob("*.kernel"))
    whole = damaged.stat().st_size
    os.truncate(damaged, whole // 2)
    _, (_, signatures) = ended(process(COMPILE, NUMBA_CACHE_DIR=cold))
    assert set(signatures) == {1}
    assert damaged.stat().st_size > whole // 2
    assert warm_up.are_kept(BINS)
    assert warm_up.advance(BINS)
    assert not warm_up._running


@pytest.mark.parametrize("disk_is_full", [False, True])
def test_without_a_file_that_can_be_written_each_process_compiles_for_itself(
    disk_is_full, tmp_path
):
    """A warning names the reason, and no part of a file is left behind."""
    (tmp_path / "file").touch()
    folder = tmp_path / "full" if disk_is_full else tmp_path / "file" / "folder"
    running = process(COMPILE, 1000 if disk_is_full else -1, NUMBA_CACHE_DIR=folder)
    complaints, (_, signatures) = ended(running)
    assert signatures == [1, 1]
    reason = "File too large" if disk_is_full else "NUMBA_CACHE_DIR"
    assert any(reason in line for line in complaints)  # others say that it takes long
    assert {path.suffix for path in folder.glob("*")} <= {".lock"}


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


if __name__ == "__main__":
    print(json.dumps(done()))
