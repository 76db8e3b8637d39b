import importlib.metadata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import toy

from harness import machine
from harness.comparison import Settings
from harness.registry import Family, Registry, Study
from harness.results import read_records
from harness.sampling import SamplingRule
from harness.sweep import Step, is_outdated, plan_sweep, set_aside, sweep

SETTINGS = Settings(60.0, SamplingRule(seconds=0.1, least_blocks=2, warmup_seconds=0.1))
PROBLEMS = ["toy[size=4]/dgx_a100_80gb:2", "toy[size=6]/dgx_a100_80gb:2"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def plan(path: Path, family: Family = toy.TOY, settings: Settings = SETTINGS) -> list[Step]:
    return plan_sweep([family], path, settings)


def measure(
    path: Path, steps: list[Step], registry: Callable[[], Registry] = toy.toy_registry
) -> list[str]:
    """Measure the steps; return the problems that were."""
    return [str(step.problem) for step, _ in sweep(steps, path, SETTINGS, registry=registry)]


def measured(steps: list[Step]) -> list[bool]:
    return [step.measured for step in steps]


def stored(path: Path) -> list[str]:
    return [record["cell"] for record in read_records(path)]


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The results of a sweep that was not disturbed."""
    path = tmp_path_factory.mktemp("complete") / "results.jsonl"
    assert measure(path, plan(path)) == PROBLEMS
    return path.read_bytes()


def test_each_problem_is_measured_with_its_variants_and_the_reference(path: Path, complete: bytes):
    path.write_bytes(complete)
    first, second = PROBLEMS
    assert stored(path)[:2] == [f"toy/reference@{first}", f"toy/same@{first}"]
    assert set(stored(path)[2:]) == {f"toy/{name}@{second}" for name in ("reference", "own")}
    purposes = [record["purpose"] for record in read_records(path)]
    assert purposes == ["first", "first", "second", "second"]
    assert {record["status"] for record in read_records(path)} == {"ok"}


def test_what_is_measured_is_not_measured_again(path: Path, complete: bytes):
    path.write_bytes(complete)
    steps = plan(path)
    assert measured(steps) == [True, True]
    assert measure(path, steps) == []
    assert path.read_bytes() == complete


def test_a_sweep_that_was_stopped_goes_on_with_the_next_problem(path: Path):
    steps = plan(path)
    assert measured(steps) == [False, False]
    running = sweep(steps, path, SETTINGS, registry=toy.toy_registry)
    next(running)
    running.close()
    before = path.read_bytes()
    assert len(stored(path)) == 2

    steps = plan(path)
    assert measured(steps) == [True, False]
    assert measure(path, steps) == PROBLEMS[1:]
    assert path.read_bytes().startswith(before)
    assert measured(plan(path)) == [True, True]


def test_a_torn_line_is_measured_again(path: Path, complete: bytes):
    path.write_bytes(complete[:-20])
    steps = plan(path)
    assert measured(steps) == [True, False]
    assert measure(path, steps) == PROBLEMS[1:]
    assert measured(plan(path)) == [True, True]


def test_a_problem_with_a_missing_variant_is_measured_again(path: Path, complete: bytes):
    lines = complete.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[1:]))
    assert measured(plan(path)) == [False, True]


def test_other_settings_are_measured_again(path: Path, complete: bytes):
    path.write_bytes(complete)
    for other in (
        replace(SETTINGS, budget=61.0),
        replace(SETTINGS, sampling=replace(SETTINGS.sampling, seed=1)),
        replace(SETTINGS, sampling=replace(SETTINGS.sampling, noise_floor=0.05)),
    ):
        assert measured(plan(path, settings=other)) == [False, False]


def test_other_code_is_measured_again(path: Path, complete: bytes, monkeypatch: pytest.MonkeyPatch):
    path.write_bytes(complete)
    monkeypatch.setattr(machine, "source_digest", lambda: "0123456789ab")
    assert measured(plan(path)) == [False, False]


def test_other_versions_are_measured_again(
    path: Path, complete: bytes, monkeypatch: pytest.MonkeyPatch
):
    path.write_bytes(complete)
    version = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata,
        "version",
        lambda name: "0.0.1" if name == "numpy" else version(name),
    )
    assert measured(plan(path)) == [False, False]


def test_a_workload_may_be_called_otherwise_than_it_is_given(path: Path):
    family = toy.labelled_registry().find("toy")
    family.studies = (Study(PROBLEMS[0], ("reference",), "labelled"),)
    assert measure(path, plan(path, family), toy.labelled_registry) == PROBLEMS[:1]
    assert stored(path) == ["toy/reference@TOY[size=4]/dgx_a100_80gb:2"]
    assert measured(plan(path, family)) == [True]


def test_a_family_without_studies_has_no_steps(path: Path):
    assert plan(path, replace(toy.TOY, studies=())) == []


class TestSourceDigest:
    @pytest.fixture(autouse=True)
    def uncached(self):
        machine.source_digest.cache_clear()
        yield
        machine.source_digest.cache_clear()

    def test_it_is_short_and_stable(self):
        first = machine.source_digest()
        machine.source_digest.cache_clear()
        assert machine.source_digest() == first
        assert len(first) == 12

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
        machine.source_digest.cache_clear()
        assert machine.source_digest() != before


class TestOutdated:
    """Old cells must not stand beside new ones in a report, and must not be lost."""

    def test_results_of_this_code_are_not(self, path: Path, complete: bytes):
        assert not is_outdated(path, SETTINGS), "there are none"
        path.write_bytes(complete)
        assert not is_outdated(path, SETTINGS)

    def test_results_of_other_settings_are(self, path: Path, complete: bytes):
        path.write_bytes(complete)
        assert is_outdated(path, replace(SETTINGS, budget=61.0))

    @pytest.mark.parametrize("key", ["code", "packages", "python", "cpu", "cores"])
    def test_results_of_another_environment_are(
        self, path: Path, complete: bytes, monkeypatch: pytest.MonkeyPatch, key: str
    ):
        path.write_bytes(complete)
        other = machine.environment(0) | {key: "another"}
        monkeypatch.setattr("harness.sweep.environment", lambda seed: other)
        assert is_outdated(path, SETTINGS)

    def test_they_are_kept_under_another_name(self, path: Path, complete: bytes):
        assert set_aside(path) is None
        path.write_bytes(complete)
        kept = set_aside(path)
        assert kept is not None
        assert kept.read_bytes() == complete
        assert not path.exists()
