"""Several problems at a time: each is measured once, and one that fails costs itself alone."""

import threading
from pathlib import Path

import pytest
import run_sweep
import toy
from sweeping import expected, ids, left, swept

from harness.measuring.request import Request
from harness.model.ids import WorkloadSpec
from harness.suites.sweep import in_lanes
from harness.topologies.lookup import find_topology


def test_tasks_run_beside_others_that_they_fit_beside():
    running: list[str] = []
    seen: list[set[str]] = []
    lock = threading.Lock()

    def run(task: str) -> str:
        with lock:
            running.append(task)
            seen.append(set(running))
        threading.Event().wait(0.01)
        with lock:
            running.remove(task)
        return task.upper()

    def fits(task: str, beside: list[str]) -> bool:
        return "large" not in {task, *beside}

    tasks = ["a", "large", "b", "c", "d"]
    assert sorted(in_lanes(tasks, run, 2, fits)) == ["A", "B", "C", "D", "LARGE"]
    assert max(map(len, seen)) == 2
    assert {"large"} in seen


def test_an_error_of_a_task_is_raised():
    with pytest.raises(ValueError, match="invalid literal"):
        list(in_lanes(["1", "x"], int, 2))


def test_a_sweep_with_two_at_a_time_measures_each_cell_once(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    requests = run_sweep.requests()
    lost = WorkloadSpec("toy", {"size": "none"})
    lost_request = Request(toy.TOY, lost, find_topology("dgx_a100_80gb", 2))
    finished = swept(path, [*requests, lost_request])
    (refused,) = filter(None, (done.refused for done in finished))
    assert refused.startswith("Parameter 'size' of workload")
    assert len(ids(path)) == len(set(ids(path)))
    assert set(ids(path)) == expected()
    assert all(request.is_measured for request in left(path, requests))
