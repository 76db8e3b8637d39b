"""Sweeps over executors: workers that die, and several tasks at once."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
import run_sweep
import toy
from msgspec import structs
from processes import is_running
from sweeping import expected, ids, left, swept, workers_of

from harness.measuring.environment import environment
from harness.measuring.request import Job, Request
from harness.model.cell import Cell, Environment
from harness.model.errors import ShardbenchError
from harness.model.ids import CellId, WorkloadSpec
from harness.store.cells import CellStore, read_cells
from harness.suites.executors import LocalProcesses, outcomes
from harness.suites.sweep import sweep
from harness.suites.tasks import Worker, check_worker, measure
from harness.topologies.lookup import find_topology


def die_unless(path: str) -> str:
    """Create the file and kill this process, or return "done" if the file exists."""
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def die(path: str, **_) -> str:
    raise SystemExit(os.kill(os.getpid(), signal.SIGKILL))


def work_on(item: str) -> str:
    """Die on `die`, die only the first time on `once PATH`, and return any other item."""
    if item == "die":
        return die(item)
    kind, _, path = item.partition(" ")
    return die_unless(path) if kind == "once" else item


@pytest.fixture
def pool() -> Iterator[LocalProcesses]:
    made = LocalProcesses(2)
    yield made
    made.shutdown(wait=False, cancel_futures=True)


class TestWorkersThatDie:
    def test_each_costs_its_own_task_alone(self, pool: LocalProcesses, tmp_path: Path):
        tasks = ["a", "die", "b", f"once {tmp_path / 'mark'}", "c"]
        found = dict(outcomes(pool, work_on, tasks, lambda: 2))
        broken = found.pop(1)
        assert isinstance(broken, Exception)
        assert found == {0: "a", 2: "b", 3: "done", 4: "c"}

    def test_the_cells_of_a_task_that_keeps_dying_are_failed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: LocalProcesses
    ):
        monkeypatch.setattr("harness.suites.sweep.measure", die)
        path = tmp_path / "results.jsonl"
        (finished,) = swept(path, run_sweep.requests()[:1], pool)
        assert {cell.status for cell in finished.cells} == {"failed"}
        assert len(finished.cells) == len(run_sweep.VARIANTS) + 1
        for cell in read_cells(path):
            assert cell.reason.startswith("Its worker process died, twice. BrokenProcessPool")
            assert cell.environment.machine is None

    def test_ending_it_ends_the_workers_and_their_children(self, tmp_path: Path):
        pool = LocalProcesses(1)
        workload = WorkloadSpec("toy", {"folder": str(tmp_path)})
        running = sweep(
            [Request(toy.TOY, workload, find_topology("dgx_a100_80gb", 2), ("silent",))],
            CellStore(tmp_path / "results.jsonl"),
            run_sweep.SETTINGS,
            registry=toy.toy_registry,
            workers=workers_of(pool),
        )
        ended: list[ShardbenchError] = []

        def run() -> None:
            try:
                list(running)
            except ShardbenchError as error:
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        until = time.monotonic() + 60
        while not (tmp_path / "pid").exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        pool.shutdown(wait=False, cancel_futures=True)
        child, until = int((tmp_path / "pid").read_text()), time.monotonic() + 20
        while is_running(child):
            assert time.monotonic() < until
            time.sleep(0.05)
        thread.join(timeout=60)
        assert "takes no more tasks" in str(ended[0])


class TestLocalProcesses:
    def test_the_results_are_all_there_once(self, tmp_path: Path, pool: LocalProcesses):
        path = tmp_path / "results.jsonl"
        swept(path, run_sweep.requests(), pool)
        assert len(ids(path)) == len(set(ids(path)))
        assert set(ids(path)) == expected()
        assert all(each.is_measured for each in left(path, run_sweep.requests()))

    @pytest.mark.parametrize("cut", [1, 9])
    def test_what_is_cut_short_is_gone_on_with(self, tmp_path: Path, cut: int):
        path = tmp_path / "results.jsonl"
        with ThreadPoolExecutor(1) as executor:
            swept(path, run_sweep.requests(), executor)
            lines = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(b"".join(lines[:cut]) + lines[cut][:50])
            swept(path, run_sweep.requests(), executor)
        assert len(ids(path)) == len(set(ids(path)))
        assert set(ids(path)) == expected()


class CountingExecutor(ThreadPoolExecutor):
    """An executor that records how many tasks it has at a time."""

    def __init__(self) -> None:
        super().__init__(4)
        self.now, self.most = 0, 0

    def submit(self, call, /, *arguments, **options) -> Future:
        self.now += 1
        self.most = max(self.most, self.now)
        future = super().submit(call, *arguments, **options)
        future.add_done_callback(self.ended)
        return future

    def ended(self, future: Future) -> None:
        self.now -= 1


class TestAnyExecutor:
    def test_it_never_has_more_tasks_than_asked_for(self):
        with CountingExecutor() as executor:
            found = dict(outcomes(executor, work_on, [str(n) for n in range(20)], lambda: 3))
        assert found == {n: str(n) for n in range(20)}
        assert executor.most <= 3

    def test_a_pool_that_is_broken_for_good_ends_in_a_sentence(self):
        with (
            ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor,
            pytest.raises(ShardbenchError, match="executor takes no more tasks"),
        ):
            list(outcomes(executor, work_on, ["die"], lambda: 1))

    def test_what_a_task_raises_is_its_own(self):
        with ThreadPoolExecutor(1) as executor:
            found = dict(outcomes(executor, int, ["1", "x", "3"], lambda: 1))
        assert isinstance(found.pop(1), ValueError)
        assert found == {0: 1, 2: 3}

    def test_without_workers_it_ends(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("harness.suites.executors._LOOK_SECONDS", 0.001)
        with ThreadPoolExecutor(1) as executor, pytest.raises(ShardbenchError, match="No worker"):
            list(outcomes(executor, int, ["1"], lambda: 0))

    def test_a_problem_that_cannot_be_built_is_said(self, tmp_path: Path):
        workload = WorkloadSpec("toy", {"size": "none"})
        request = Request(toy.TOY, workload, find_topology("dgx_a100_80gb", 2))
        with ThreadPoolExecutor(1) as executor:
            (finished,) = swept(tmp_path / "results.jsonl", [request], executor)
        assert finished.refused.startswith("Parameter 'size' of workload")
        assert ids(tmp_path / "results.jsonl") == []


class TestMeasure:
    CODE = environment(0)

    def job(self, *stored: Cell) -> Job:
        topology = find_topology("dgx_a100_80gb", 2)
        request = Request(
            toy.TOY, WorkloadSpec("toy"), topology, ("missing",), "missing", stored=stored
        )
        return request.job(run_sweep.SETTINGS, toy.toy_registry)

    def test_one_is_measured_at_a_time_in_a_process(self, monkeypatch: pytest.MonkeyPatch):
        running, most = 0, 0

        def run(self, *arguments, **options) -> list:
            nonlocal running, most
            running += 1
            most = max(most, running)
            time.sleep(0.02)
            running -= 1
            return []

        monkeypatch.setattr("harness.suites.tasks.Comparison.run", run)
        with ThreadPoolExecutor(4) as executor:
            list(executor.map(measure, [self.job()] * 4, [self.CODE] * 4))
        assert most == 1

    def test_what_another_machine_has_stored_is_measured_here_too(self):
        cell_id = CellId.parse("toy/missing@toy/dgx_a100_80gb:2")
        for machine, count in ((environment(0).machine, 0), ("another", 1)):
            where = Environment(machine=machine)
            stored = Cell(
                id=cell_id, reference="missing", status="not installed", environment=where
            )
            assert len(measure(self.job(stored), self.CODE)) == count

    def test_other_code_is_refused(self):
        with pytest.raises(ShardbenchError, match="has other code of shardbench or of its fam"):
            measure(self.job(), structs.replace(self.CODE, code="0123456789ab"))

    def test_a_process_that_may_have_no_children_is_refused(self):
        with pytest.raises(ShardbenchError, match="start it with --no-nanny"):
            check_worker(Worker(environment(0), True), self.CODE, "Worker a")
