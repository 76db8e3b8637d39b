"""The asv suite on made-up families, by asv's own classes."""

import random
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from asv import _stats
from asv_runner import statistics
from made_up_suite import PROBLEM, UNKNOWN, asv_benchmark, dice, made_up, older, ran, suite_of

from benchmarks import OUTLINE_FILE, families
from harness.contract.registry import Registry, load_registry
from harness.model.errors import NotApplicable, RegistryError, ShardbenchError
from harness.model.settings import SamplingRule, Settings

ROOT = Path(__file__).parents[2]
FUNCTIONS = ["time_plan", "track_eyes", "track_different_decision", "track_ratio_to_reference"]


@pytest.fixture(autouse=True)
def _outside_of_asv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OUTLINE_FILE, raising=False)


@pytest.fixture(scope="module", autouse=True)
def _short_turns() -> Iterator[None]:
    """Give each comparison the fewest blocks that have an interval."""
    rule = SamplingRule(seconds=1.0, least_blocks=4, most_blocks=4, warmup_seconds=0.05)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(families, "_SETTINGS", Settings(sampling=rule))
        yield


@pytest.fixture(scope="module")
def cache() -> Any:
    """The cells of the made-up family."""
    return suite_of(dice)["dice"]().setup_cache()


@pytest.fixture
def run(cache: Any) -> Callable[..., Any]:
    """Return a function that runs a benchmark of a variant, and returns its value or None."""
    suite = suite_of(dice)["dice"]
    return lambda function, variant, problem=PROBLEM: ran(
        asv_benchmark(suite, function, (variant, problem), cache)
    )


class TestDiscovery:
    def test_asv_finds_the_benchmarks_of_the_families_and_nothing_else(self) -> None:
        code = "from asv_runner.discovery import disc_benchmarks\n"
        code += "print(*(found.name for found in disc_benchmarks('benchmarks')))"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60, capture_output=True
        )
        names = done.stdout.decode().split()
        assert {name.split(".")[0] for name in names} == {"families"}
        assert len(set(names)) == len(names)
        assert {name.split(".")[2] for name in names if name.startswith("families.reshard.")} >= {
            *("time_plan", "track_ratio_to_reference", "track_different_decision"),
            *("track_python_calls", "track_syncs"),
        }

    def test_a_family_is_left_out_with_a_note_or_fails_if_it_does_not_load(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cards = made_up("cards", requires=("a_module_that_does_not_exist",))
        assert list(suite_of(lambda: Registry([made_up(), cards]))) == ["dice"]
        assert "'cards' is not installed: it needs a_module_that" in capsys.readouterr().err
        with pytest.raises(RegistryError, match="'cards' could not be loaded: No module"):
            suite_of(older)

    def test_each_family_of_this_project_has_a_cache_of_its_own(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        names = project["entry-points"]["shardbench.families"]
        suites = suite_of(lambda: Registry(map(made_up, names)))
        cell = ("same", PROBLEM)
        keys = {
            asv_benchmark(suite, "time_plan", cell, None).setup_cache_key
            for suite in suites.values()
        }
        assert len(keys) == len(names)
        assert all(set(suites[name].outlines) == {name} for name in names)


class TestFigures:
    def test_are_those_of_the_checked_call(self, run: Any) -> None:
        names = ("eyes", "luck", "throws", "misses")
        for variant, figures in {"reference": [12, 1, 12, 0], "other": [13, 13 / 12, 0, 0]}.items():
            assert [run(f"track_{name}", variant) for name in names] == figures

    @pytest.mark.parametrize(
        ("variant", "value"), [("same", 0), ("other", 1), ("reference", None), ("own", None)]
    )
    def test_a_decision_must_be_the_required_one(
        self, run: Any, variant: str, value: float | None
    ) -> None:
        assert run("track_different_decision", variant) == value

    @pytest.mark.parametrize("variant", ["not-installed", "not-applicable"])
    def test_what_is_not_installed_or_not_applicable_is_not_available(
        self, run: Any, variant: str
    ) -> None:
        assert [run(function, variant) for function in FUNCTIONS] == [None] * len(FUNCTIONS)

    @pytest.mark.parametrize(
        ("cell", "reason"),
        [(("impossible", PROBLEM), "No dice"), (("same", UNKNOWN), "no_such_machine")],
    )
    def test_a_broken_variant_or_problem_fails(
        self, run: Any, cell: tuple[str, str], reason: str
    ) -> None:
        for function in FUNCTIONS:
            with pytest.raises(ShardbenchError, match=reason):
                run(function, *cell)


class TestTimes:
    def test_the_problem_is_built_and_prepared_once_and_never_timed(self, cache: Any) -> None:
        log: list[str] = []
        suite = suite_of(lambda: Registry([made_up(log=log)]))["dice"]
        benchmark = asv_benchmark(suite, "time_plan", ("reference", PROBLEM), cache)
        assert len(ran(benchmark)["samples"]) == benchmark.repeat
        assert log[:2] == ["built", "prepared"]
        turns = len(log[2:]) // 2
        assert turns > benchmark.repeat  # one at least goes before the samples
        assert log[2:] == ["installed", "removed"] * turns
        del benchmark
        assert log[-1] == "closed"

    def test_a_call_that_was_timed_elsewhere_counts_as_it_was_there(self, run: Any) -> None:
        assert run("time_plan", "elsewhere")["samples"] == [0.25, 0.25]
        assert run("track_python_calls", "elsewhere") is None
        assert run("track_python_calls", "reference") == 2  # itself, and what adds numbers

    def test_asv_can_find_a_slow_down_in_the_samples(self) -> None:
        suite = suite_of(dice)["dice"]
        count = suite.rounds * suite.repeat
        rng = random.Random(0)

        def is_different(count: int, slower: float) -> bool:
            sides = [[rng.gauss(mean, 0.02) for _ in range(count)] for mean in (1.0, slower)]
            stats = [statistics.compute_stats(side, 1)[1] for side in sides]
            return bool(_stats.is_different(*sides, *stats))

        assert all(is_different(count, 1.15) for _ in range(20))
        assert not is_different(count, 1.0)
        assert not is_different(6, 100.0)  # why it must not be six

    def test_ratios_are_samples_and_a_wrong_decision_has_none(self, run: Any) -> None:
        ratio = run("track_ratio_to_reference", "same")  # it does nothing; the reference adds
        assert ratio["number"] == 1
        assert len(ratio["samples"]) >= 4
        assert 0 < max(ratio["samples"]) < 0.1
        with pytest.raises(ShardbenchError, match="another decision"):
            run("track_ratio_to_reference", "other")


def test_at_another_commit_parameters_are_those_of_the_discovered_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the commit lacks is n/a; a family that fails to load is an error in its own cells."""
    monkeypatch.setenv(OUTLINE_FILE, str(tmp_path / "outline.json"))
    later = "dice[size=6]/a_later_machine:2"
    members = [made_up(benchmarks=(PROBLEM, later)), made_up("cards"), made_up("gone")]
    discovered = suite_of(lambda: Registry(members))
    suites = suite_of(older)
    assert suites["dice"].params == discovered["dice"].params
    cache = suites["dice"]().setup_cache() | suites["cards"]().setup_cache()
    for missing in (("dice", "same", PROBLEM), ("dice", "own", later), ("gone", "own", PROBLEM)):
        assert isinstance(cache[missing], NotApplicable)
    assert "No module named 'cards'" in str(cache["cards", "own", PROBLEM])
    assert not isinstance(cache["cards", "own", PROBLEM], NotApplicable)
    assert ran(asv_benchmark(suites["dice"], "track_eyes", ("own", PROBLEM), cache)) == 24


@pytest.mark.long
@pytest.mark.parametrize("name", [family.name for family in load_registry().families])
def test_every_benchmark_of_this_project_can_run(name: str) -> None:
    failed = {
        cell: str(outcome)
        for cell, outcome in getattr(families, name)().setup_cache().items()
        if isinstance(outcome, ShardbenchError) and not isinstance(outcome, NotApplicable)
    }
    assert failed == {}
