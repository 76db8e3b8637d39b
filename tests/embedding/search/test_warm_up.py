"""Kernels are compiled once on a machine, by a process of their own, and never by a search."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain, count, repeat
from pathlib import Path
from random import Random
from typing import Any

import pytest
from random_options import random_case

from planners.embedding.best_plan.search import best_plan
from planners.embedding.search import warm_up
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import devices_of, search_space

BINS = "planners.embedding.same_plan.dynamic_programming"

SEARCH = """
from random import Random

import numpy as np
from random_options import random_case

from planners.embedding.search import compiling, warm_up
from planners.embedding.best_plan.near.moves import Moves
from planners.embedding.best_plan.near.search import NearSearch
from planners.embedding.best_plan.search import best_plan
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import devices_of, search_space

warm_up.compile_ahead(warm_up.BEST_PLAN)
kernels = [each for module in compiling.KERNELS.values() for each in module if each.signatures]
assert len(kernels) > 5
compiling.load = compiling._Kept.load_overload = None
for seed in range(10):
    case = random_case(Random(seed), towers=False)
    space, devices = search_space(case.options), devices_of(case.topology)
    best_plan(space, devices, Deadline(0.01))
    if NearSearch.can_search(space, devices):
        nowhere = np.full(len(space.estimate), -1)
        search = NearSearch(space, devices, lambda _: Moves(nowhere, -nowhere), Deadline(0.01))
        search.search(0)
assert all(len(each.signatures) == 1 for each in kernels)
"""

COMPILE = """
import json, logging, subprocess, sys

from planners.embedding.search import compiling, warm_up

logging.basicConfig(stream=sys.stdout, format="%(message)s")
started = []
start = subprocess.Popen
warm_up.subprocess.Popen = lambda *words, **options: started.append(1) or start(*words, **options)
warm_up.compile_ahead(warm_up.BINS)
from planners.embedding.same_plan import dynamic_programming
kernels = compiling.KERNELS[dynamic_programming.__name__]
json.dump([len(started), [len(each.signatures) for each in kernels]], sys.stdout)
"""


def process(script: str, **environment: str) -> "subprocess.Popen[str]":
    here = Path(__file__).parents[1]
    path = os.pathsep.join(map(str, (here, here.parents[1])))
    return subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )  # fmt: skip


def said_by(running: "subprocess.Popen[str]") -> str:
    said, errors = running.communicate()
    assert running.returncode == 0, errors
    return said


def told_by(running: "subprocess.Popen[str]") -> Any:
    """Return its last line; a machine that is busy may have it say before that it compiles."""
    return json.loads(said_by(running).splitlines()[-1])


def test_no_search_compiles_what_was_not_compiled_ahead():
    said_by(process(SEARCH))


def test_eight_processes_on_one_cold_cache_compile_everything_once(tmp_path):
    running = [process(COMPILE, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(8)]
    results = [told_by(each) for each in running]
    assert sum(started for started, _ in results) == 1
    assert all(signatures == [1] for _, signatures in results)
    kept = sorted(path.suffix for path in tmp_path.iterdir())
    assert kept == [".kernel", ".lock"]


def test_what_is_kept_in_a_damaged_file_is_compiled_again(tmp_path):
    said_by(process(COMPILE, NUMBA_CACHE_DIR=str(tmp_path)))
    damaged = min(tmp_path.glob("*.kernel"))
    whole = damaged.stat().st_size
    os.truncate(damaged, whole // 2)
    assert told_by(process(COMPILE, NUMBA_CACHE_DIR=str(tmp_path)))[1] == [1]
    assert damaged.stat().st_size > whole // 2


def test_without_a_folder_that_can_be_written_each_process_compiles_for_itself(tmp_path):
    (tmp_path / "file").touch()
    said = said_by(process(COMPILE, NUMBA_CACHE_DIR=str(tmp_path / "file" / "folder")))
    *complaints, result = said.splitlines()
    assert json.loads(result) == [0, [1]]
    assert complaints
    assert all("NUMBA_CACHE_DIR" in line for line in complaints)


def test_where_the_compiling_process_fails_the_reason_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(warm_up, "_loaded", set())
    monkeypatch.setattr(warm_up, "_running", {})
    monkeypatch.setattr(warm_up, "PACKAGE", "planners.embedding.nowhere")
    monkeypatch.setattr(warm_up, "are_kept", lambda modules: False)
    warm_up.advance(["nothing"])
    warm_up._running["nothing"].wait()
    with pytest.raises(warm_up.CannotCompile, match="nowhere"):
        warm_up.advance(["nothing"])
    assert not warm_up._running


def kept_after(polls: int) -> Iterator[bool]:
    return chain(repeat(False, polls), repeat(True))


@pytest.mark.parametrize(("seconds", "announced"), [(1, 0), (9, 1)])
def test_a_wait_of_more_than_two_seconds_is_announced_once(seconds, announced, monkeypatch, caplog):
    kept, slept = kept_after(seconds), []
    monkeypatch.setattr(warm_up, "are_kept", lambda modules: next(kept))
    monkeypatch.setattr(warm_up, "advance", lambda modules, **options: False)
    monkeypatch.setattr(warm_up.time, "sleep", slept.append)
    warm_up._announce.cache_clear()
    warm_up.wait_for(warm_up.BINS, clock=count().__next__)
    assert len(slept) == seconds
    said = [record for record in caplog.records if record.name == "shardbench"]
    assert [warm_up.COMMAND in record.getMessage() for record in said] == [True] * announced


def test_a_search_without_a_planner_has_its_kernels_compiled_by_other_processes(monkeypatch):
    begun: list[Any] = []
    monkeypatch.setattr(warm_up, "begin", begun.append)
    case = random_case(Random(0), towers=False)
    best_plan(search_space(case.options), devices_of(case.topology), Deadline(0.01))
    assert begun == [warm_up.BEST_PLAN]


def test_another_process_is_not_disturbed_and_what_it_keeps_is_taken(tmp_path, monkeypatch):
    first = process(COMPILE, NUMBA_CACHE_DIR=str(tmp_path))
    said_by(first)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(warm_up, "_loaded", set())
    assert warm_up.are_kept(warm_up.BINS)
    assert warm_up.advance(warm_up.BINS)
    assert not warm_up._running
