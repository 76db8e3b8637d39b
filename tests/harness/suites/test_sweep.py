"""Sweeps measure each problem of a suite once; stored cells count if their code is the same."""

import importlib.metadata
import platform
from dataclasses import replace as replaced
from pathlib import Path

import pytest
import run_sweep
import toy
import toy_registries
from run_sweep import assert_whole, left, swept

from harness.contract import Family, Study
from harness.measuring import environment as machine
from harness.measuring.request import Request
from harness.model.ids import WorkloadSpec
from harness.store.cells import CellStore
from harness.suites.declared import registered_requests
from harness.suites.sweep import in_lanes, sweep
from harness.topologies.lookup import find_topology

PROBLEM = "toy[size=4]/dgx_a100_80gb:2"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def plan(path: Path, family: Family = toy.TOY) -> list[Request]:
    return left(path, registered_requests([family]))


def measured(path: Path, family: Family = toy.TOY) -> list[bool]:
    return [request.is_measured for request in plan(path, family)]


def test_two_at_a_time_measure_each_cell_once_and_a_problem_that_fails_costs_itself(path: Path):
    """A problem that cannot be built is refused, and the others are measured."""
    requests = run_sweep.requests()
    lost = WorkloadSpec("toy", {"size": "none"})
    lost_request = Request(toy.TOY, lost, find_topology("dgx_a100_80gb", 2))
    finished = swept(path, [*requests, lost_request])
    (refused,) = filter(None, (done.refused for done in finished))
    assert refused.startswith("Parameter 'size' of workload")
    assert_whole(path)
    assert all(request.is_measured for request in left(path, requests))


def test_an_error_of_a_task_is_raised_and_no_further_task_begins():
    """An error is not kept until the end."""
    begun: list[str] = []

    def run(task: str) -> int:
        begun.append(task)
        return int(task)

    with pytest.raises(ValueError, match="invalid literal"):
        list(in_lanes(["1", "x", "2"], run, 1))
    assert begun == ["1", "x"]


def test_one_problem_in_two_studies_is_one_request(path: Path):
    """Its variants are those of both studies."""
    studies = (
        Study(PROBLEM, ("same",), "first"),
        Study(PROBLEM, ("own", "same"), "second"),
    )
    (request,) = plan(path, replaced(toy.TOY, studies=studies))
    assert request.names() == {"reference", "same", "own"}
    assert request.purpose == "first"


def test_what_cells_are_called_may_differ_from_what_is_given(path: Path, tmp_path: Path):
    """Stored cells count under their own names, of any letters."""
    folder = tmp_path / "\x1b\n\udcff"
    folder.mkdir()
    odd = f"toy[folder={folder}]/dgx_a100_80gb:2"
    for registry, problem in (
        (toy_registries.labelled_registry, PROBLEM),
        (toy_registries.toy_registry, odd),
    ):
        family = replaced(registry().find("toy"), studies=(Study(problem, ("reference",), "odd"),))
        options = (CellStore(path), run_sweep.SETTINGS)
        list(sweep(plan(path, family), *options, registry=registry))
        assert measured(path, family) == [True]


@pytest.fixture
def uncached():
    cached = (machine.digest_of, machine.family_modules)
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()


def test_the_code_of_a_family_of_another_package_counts(
    uncached, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A change of its sources makes stored cells old."""
    package = tmp_path / "somebody_s_planners"
    package.mkdir()
    (package / "__init__.py").write_text("FAMILY = None\n")
    theirs = ("theirs", "somebody_s_planners:FAMILY", "shardbench.families")
    known = importlib.metadata.entry_points(group="shardbench.families")
    entry_points = importlib.metadata.EntryPoints([*known, importlib.metadata.EntryPoint(*theirs)])
    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points.select)
    monkeypatch.syspath_prepend(tmp_path)
    before = machine.source_digest()
    (package / "__init__.py").write_text("FAMILY = 1\n")
    machine.digest_of.cache_clear()
    assert machine.source_digest() != before


def test_a_named_class_has_all_hosts_with_its_processor(monkeypatch: pytest.MonkeyPatch):
    """Pods and runners have a new host name each time, and not quite the same memory."""
    monkeypatch.setenv(machine.MACHINE, "runners")
    here = machine.environment(0).machine
    monkeypatch.setattr(platform, "node", lambda: "another")
    assert machine.environment(0).machine == here
    monkeypatch.setattr(machine, "_processor", lambda: "another")
    assert machine.environment(0).machine != here
    monkeypatch.undo()
    assert machine.environment(0).machine != here
