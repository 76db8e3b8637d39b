"""Sweeps over a real Dask cluster."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import run_sweep
import toy
import toy_registries
from msgspec import structs
from run_sweep import assert_whole, left

from harness.measuring.environment import environment
from harness.measuring.request import Job, Request
from harness.model.cell import Cell, Environment
from harness.model.errors import ShardbenchError, UsageError
from harness.model.ids import CellId, WorkloadSpec
from harness.store.cells import CellStore, read_cells
from harness.store.keys import key_of
from harness.suites.cluster import connected, measure
from harness.topologies.lookup import find_topology

FOLDER = Path(__file__).parents[1]


@contextmanager
def dask_process(ready: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a scheduler or a worker, in a process group of its own.

    Yield it when it has printed a line that matches `ready`, with what the pattern's group matches.
    """
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("dask")), *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{FOLDER}{os.pathsep}{FOLDER.parents[1]}"},
        cwd=FOLDER.parents[1],
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        matches = (re.search(ready, line) for line in process.stderr)
        said = next(filter(None, matches))
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield process, said[1]
    finally:
        for _ in range(2):  # what the first one has just started, too
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    pytest.importorskip("distributed")
    arguments = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show")
    with dask_process(r"Scheduler at:\s+(tcp://\S+)", "scheduler", *arguments) as (_, address):
        yield address


@contextmanager
def worker(address: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    plain = ("--no-dashboard", "--nthreads", "2", "--memory-limit", "0")
    with dask_process("(Registered to:)", "worker", address, *plain, *options) as (process, _):
        yield process


def test_a_worker_that_is_killed_midway_loses_nothing(scheduler, tmp_path):
    """Another worker measures what it had begun."""
    path = tmp_path / "results.jsonl"
    with worker(scheduler, "--no-nanny") as first, worker(scheduler, "--no-nanny"):
        with connected(scheduler) as cluster:
            assert len(cluster.machines) == 2
            requests = left(path, run_sweep.requests(), several=True)
            threading.Timer(0.5, first.kill).start()
            options = (CellStore(path), run_sweep.SETTINGS, toy_registries.toy_registry)
            finished = list(cluster.sweep(requests, *options))
        assert [each.refused for each in finished] == ["", ""]
        assert_whole(path)
        assert {cell.status for cell in read_cells(path)} == {
            *("ok", "failed", "not installed", "not applicable")
        }
        requests = left(path, run_sweep.requests(), several=True)
        assert all(each.is_measured for each in requests)


def test_without_workers_it_ends(scheduler, tmp_path, monkeypatch):
    """A sweep without a worker is an error, and no endless wait."""
    monkeypatch.setattr("harness.suites.cluster._LOOK_SECONDS", 0.1)
    with worker(scheduler, "--no-nanny") as only, connected(scheduler) as cluster:
        only.kill()
        only.wait()
        store = CellStore(tmp_path / "results.jsonl")
        running = cluster.sweep(run_sweep.requests(), store, run_sweep.SETTINGS)
        with pytest.raises(ShardbenchError, match="No worker is left"):
            list(running)


def test_a_worker_that_may_have_no_children_is_refused(scheduler):
    """A worker under a nanny cannot start processes."""
    refused = pytest.raises(ShardbenchError, match=r"^Worker tcp://\S+ may not start processes")
    with worker(scheduler, "--nanny"), refused, connected(scheduler):
        pass


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nonsense"])
def test_a_scheduler_that_is_not_there_is_said(address, monkeypatch):
    """An address without a scheduler is one sentence."""
    pytest.importorskip("distributed")
    monkeypatch.setattr("harness.suites.cluster._CONNECT_SECONDS", 0.2)
    refused = pytest.raises(ShardbenchError, match=r"^No Dask scheduler answers at")
    with refused, connected(address):
        pass


def test_without_dask_its_extra_is_named(monkeypatch):
    """The sentence has the command that installs it."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    refused = pytest.raises(UsageError, match=r"pip install 'shardbench\[dask\]'")
    with refused, connected("tcp://127.0.0.1:9"):
        pass


HERE = environment(0)


def job(*stored: Cell) -> Job:
    topology = find_topology("dgx_a100_80gb", 2)
    request = Request(
        toy.TOY, WorkloadSpec("toy"), topology, ("missing",), "missing", stored=stored
    )
    return request.job(run_sweep.SETTINGS, toy_registries.toy_registry)


def test_a_worker_measures_one_problem_at_a_time(monkeypatch):
    """Threads of a worker wait for each other."""
    running, most = 0, 0

    def run(self, *arguments, **options) -> list:
        nonlocal running, most
        running += 1
        most = max(most, running)
        threading.Event().wait(0.02)
        running -= 1
        return []

    monkeypatch.setattr("harness.suites.cluster.Comparison.run", run)
    with ThreadPoolExecutor(4) as executor:
        list(executor.map(measure, [job()] * 4, [key_of(HERE)] * 4))
    assert most == 1


def test_what_another_machine_has_stored_is_measured_here_too():
    """Only cells of the worker's own machine count."""
    cell_id = CellId.parse("toy/missing@toy/dgx_a100_80gb:2")
    for machine, count in ((HERE.machine, 0), ("another", 1)):
        where = Environment(machine=machine)
        stored = Cell(id=cell_id, reference="missing", status="not installed", environment=where)
        assert len(measure(job(stored), key_of(HERE))) == count


@pytest.mark.parametrize(
    ("changes", "what"),
    [({"code": "x"}, "other code of shardbench"), ({"python": "x"}, "other versions of Python")],
)
def test_a_worker_with_other_code_or_versions_is_refused(changes, what):
    """Results of one file have one code and one set of versions."""
    with pytest.raises(ShardbenchError, match=f"has {what}"):
        measure(job(), key_of(structs.replace(HERE, **changes)))
