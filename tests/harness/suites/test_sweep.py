import importlib.metadata
import platform
from collections.abc import Callable
from dataclasses import replace as replaced
from pathlib import Path

import pytest
import toy

from harness.contract import Family, Study
from harness.contract.registry import Registry
from harness.measuring import environment as machine
from harness.measuring.request import Request
from harness.model.settings import SamplingRule, Settings
from harness.store.cells import CellStore, read_cells
from harness.suites.declared import registered_requests
from harness.suites.sweep import resumed, sweep, tasks_of

SETTINGS = Settings(60.0, SamplingRule(seconds=0.1, least_blocks=2, warmup_seconds=0.1))
PROBLEMS = ["toy[size=4]/dgx_a100_80gb:2", "toy[size=6]/dgx_a100_80gb:2"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def plan(path: Path, family: Family = toy.TOY, settings: Settings = SETTINGS) -> list[Request]:
    return resumed(tasks_of(registered_requests([family]), settings), CellStore(path))


def measure(
    path: Path, requests: list[Request], registry: Callable[[], Registry] = toy.toy_registry
) -> list[str]:
    """Run a sweep over the requests without stored results; return the problems finished."""
    finished = list(sweep(requests, CellStore(path), SETTINGS, registry=registry))
    assert not any(each.refused for each in finished)
    return [str(each.request.given) for each in finished]


def measured(requests: list[Request]) -> list[bool]:
    return [each.is_measured for each in requests]


def stored(path: Path) -> list[str]:
    return [str(cell.id) for cell in read_cells(path)]


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The content of the results file of an uninterrupted sweep."""
    path = tmp_path_factory.mktemp("complete") / "results.jsonl"
    assert measure(path, plan(path)) == PROBLEMS
    return path.read_bytes()


def test_each_problem_is_measured_with_its_variants_and_the_reference(path: Path, complete: bytes):
    path.write_bytes(complete)
    first, second = PROBLEMS
    assert stored(path)[:2] == [f"toy/reference@{first}", f"toy/same@{first}"]
    assert set(stored(path)[2:]) == {f"toy/{name}@{second}" for name in ("reference", "own")}
    purposes = [cell.purpose for cell in read_cells(path)]
    assert purposes == ["first", "first", "second", "second"]
    assert {cell.status for cell in read_cells(path)} == {"ok"}


def test_a_sweep_that_was_stopped_goes_on_with_the_next_problem(path: Path):
    requests = plan(path)
    assert measured(requests) == [False, False]
    running = sweep(requests, CellStore(path), SETTINGS, registry=toy.toy_registry)
    next(running)
    before = path.read_bytes()
    assert len(stored(path)) == 2

    requests = plan(path)
    assert measured(requests) == [True, False]
    assert measure(path, requests) == PROBLEMS[1:]
    assert path.read_bytes().startswith(before)
    assert measured(plan(path)) == [True, True]


def test_only_what_is_missing_of_a_problem_is_stored(path: Path, complete: bytes):
    lines = complete.splitlines(keepends=True)
    for line in ("reference", "same"):
        missing = f'"id":"toy/{line}@{PROBLEMS[0]}"'.encode()
        path.write_bytes(b"".join(each for each in lines if missing not in each))
        requests = plan(path)
        assert measured(requests) == [False, True]
        assert measure(path, requests) == PROBLEMS[:1]
        assert len(stored(path)) == len(set(stored(path))) == 4
        *_, last = read_cells(path)
        assert last.variant == line
        assert last.status == "ok"
        assert (last.ratio is None) == (line == "reference")
        assert measured(plan(path)) == [True, True]


def test_a_problem_that_cannot_be_built_costs_itself_alone(path: Path):
    studies = (Study("toy[size=none]/dgx_a100_80gb:2", (), "lost"), *toy.TOY.studies)
    requests = plan(path, replaced(toy.TOY, studies=studies))
    first, *others = sweep(requests, CellStore(path), SETTINGS, registry=toy.toy_registry)
    assert first.cells == []
    assert first.refused.startswith("Parameter 'size' of workload 'toy[size=none]' must be")
    assert [each.refused for each in others] == ["", ""]
    assert len(stored(path)) == 4


def test_one_problem_in_two_studies_is_one_request(path: Path):
    studies = (
        Study(PROBLEMS[0], ("same",), "first"),
        Study(PROBLEMS[0], ("own", "same"), "second"),
    )
    (request,) = plan(path, replaced(toy.TOY, studies=studies))
    assert request.names() == {"reference", "same", "own"}
    assert request.purpose == "first"


def test_a_workload_may_be_called_otherwise_than_it_is_given(path: Path):
    family = toy.labelled_registry().find("toy")
    family.studies = (Study(PROBLEMS[0], ("reference",), "labelled"),)
    assert measure(path, plan(path, family), toy.labelled_registry) == PROBLEMS[:1]
    assert stored(path) == ["toy/reference@TOY[size=4]/dgx_a100_80gb:2"]
    assert measured(plan(path, family)) == [True]


def test_a_name_without_glyphs_is_not_measured_again(path: Path, tmp_path: Path):
    folder = tmp_path / "\x1b\n\udcff"
    folder.mkdir()
    studies = (Study(f"toy[folder={folder}]/dgx_a100_80gb:2", ("same",), "odd"),)
    family = replaced(toy.TOY, studies=studies)
    measure(path, plan(path, family))
    assert [cell.status for cell in read_cells(path)] == ["ok", "ok"]
    assert measured(plan(path, family)) == [True]


class TestSourceDigest:
    @pytest.fixture(autouse=True)
    def uncached(self):
        cached = (machine.digest_of, machine.family_modules)
        for function in cached:
            function.cache_clear()
        yield
        for function in cached:
            function.cache_clear()

    def test_the_code_of_a_family_of_another_package_counts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        package = tmp_path / "somebody_s_planners"
        package.mkdir()
        (package / "__init__.py").write_text("FAMILY = None\n")
        entry_points = importlib.metadata.EntryPoints(
            [
                *importlib.metadata.entry_points(group="shardbench.families"),
                importlib.metadata.EntryPoint(
                    "theirs", "somebody_s_planners:FAMILY", "shardbench.families"
                ),
            ]
        )
        monkeypatch.setattr(importlib.metadata, "entry_points", entry_points.select)
        monkeypatch.syspath_prepend(tmp_path)
        before = machine.source_digest()
        (package / "__init__.py").write_text("FAMILY = 1\n")
        machine.digest_of.cache_clear()
        assert machine.source_digest() != before


class TestMachine:
    def test_a_named_class_has_all_hosts_with_its_processor(self, monkeypatch: pytest.MonkeyPatch):
        """Pods and runners have a new host name each time, and not quite the same memory."""
        monkeypatch.setenv(machine.MACHINE, "runners")
        here = machine.environment(0).machine
        monkeypatch.setattr(platform, "node", lambda: "another")
        assert machine.environment(0).machine == here
        monkeypatch.setattr(machine, "_processor", lambda: "another")
        assert machine.environment(0).machine != here
        monkeypatch.undo()
        assert machine.environment(0).machine != here
