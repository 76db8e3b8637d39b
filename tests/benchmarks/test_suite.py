"""The asv suite on made-up families, by asv's own classes."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from asv_runner.discovery import _get_benchmark
from made_up_suite import PROBLEM, Run, asv_benchmark, made_up, suite_of

from benchmarks import families
from benchmarks.families import registered
from harness.contract.registry import Registry, load_registry
from harness.measuring.jobs import check
from harness.measuring.timing.turns import SystemClock
from harness.model.errors import NotApplicable, RegistryError, ShardbenchError

ROOT = Path(__file__).parents[2]
FUNCTIONS = ["time_plan", "track_eyes", "track_different_decision", "track_ratio_to_reference"]


def cache_key(suite: type[Any]) -> str:
    return str(asv_benchmark(suite, "time_plan", "same", None).setup_cache_key)


class TestDiscovery:
    def test_a_family_has_time_decision_and_a_benchmark_for_each_figure(self) -> None:
        suite = suite_of(made_up())["dice"]
        found = [_get_benchmark(each, families, suite, getattr(suite, each)) for each in dir(suite)]
        assert {benchmark.name for benchmark in found if benchmark} == {
            "families.dice.time_plan",
            "families.dice.track_different_decision",
            "families.dice.track_python_calls",
            "families.dice.track_ratio_to_reference",
            "families.dice.track_eyes",
            "families.dice.track_luck",
            "families.dice.track_throws",
            "families.dice.track_misses",
        }

    def test_asv_finds_nothing_but_the_families(self) -> None:
        code = """
from asv_runner.discovery import disc_benchmarks
for found in disc_benchmarks("benchmarks"):
    print(found.name)
"""
        ran = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60, stdout=subprocess.PIPE
        )
        names = ran.stdout.decode().split()
        assert "families.reshard.track_syncs" in names
        assert len(set(names)) == len(names)
        assert {name.split(".")[0] for name in names} == {"families"}

    def test_a_family_that_lacks_what_it_needs_is_left_out_with_a_note(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cards = made_up("cards", requires=("a_module_that_does_not_exist",))
        assert list(suite_of(made_up(), cards)) == ["dice"]
        assert capsys.readouterr().err == (
            "Family 'cards' is not installed: it needs a_module_that_does_not_exist.\n"
        )

    def test_a_family_that_fails_to_load_fails_discovery(self) -> None:
        """Its benchmarks must not vanish, so asv discovers them at another commit."""
        registry = Registry([made_up()])
        registry.failures["cards"] = "No module named 'cards'"
        with pytest.raises(RegistryError, match="'cards' could not be loaded: No module"):
            registered(registry)


class TestCaches:
    def test_each_family_of_this_project_has_its_own(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        names = project["entry-points"]["shardbench.families"]
        suites = suite_of(*map(made_up, names))
        assert len({cache_key(suite) for suite in suites.values()}) == len(names)
        for name in names:
            assert {family for family, _, _ in suites[name]().setup_cache()} == {name}


class TestFigures:
    @pytest.mark.parametrize("variant", ["reference", "same", "other", "own"])
    def test_are_those_of_the_checked_call(self, run: Run, variant: str) -> None:
        family = made_up()
        checked = check(family, family.find(variant), 12, SystemClock())
        assert run("track_eyes", variant) == checked.quality["eyes"]
        assert run("track_luck", variant) == checked.quality["luck"]
        assert run("track_throws", variant) == checked.counters.get("throws", 0)
        assert run("track_misses", variant) == 0

    def test_a_decision_must_equal_that_of_the_nearest_checked_variant(self, run: Run) -> None:
        assert run("track_different_decision", "same") == 0
        assert run("track_different_decision", "other") == 1
        assert run("track_different_decision", "after-impossible") == 0

    @pytest.mark.parametrize("variant", ["reference", "own"])
    def test_any_decision_will_do_without_same_as(self, run: Run, variant: str) -> None:
        assert run("track_different_decision", variant) is None

    @pytest.mark.parametrize("variant", ["not-installed", "not-applicable"])
    @pytest.mark.parametrize("function", FUNCTIONS)
    def test_what_is_not_installed_or_not_applicable_is_not_available(
        self, run: Run, function: str, variant: str
    ) -> None:
        """asv shows n/a and goes on."""
        assert run(function, variant) is None

    @pytest.mark.parametrize("variant", ["impossible", "raises", "fails-in-a-call"])
    @pytest.mark.parametrize("function", FUNCTIONS)
    def test_a_broken_variant_fails(self, run: Run, function: str, variant: str) -> None:
        """A plan that fails its check, and an error in set-up or in the call, fail in asv."""
        with pytest.raises(ShardbenchError, match=r"No dice|out of dice|unlucky"):
            run(function, variant)

    def test_a_wrong_decision_has_no_ratio(self, run: Run) -> None:
        """A variant that makes another decision than it must fails there."""
        with pytest.raises(ShardbenchError, match="another decision"):
            run("track_ratio_to_reference", "other")

    def test_a_problem_that_cannot_be_built_fails_in_its_own_cells(self) -> None:
        """Other problems are measured."""
        unknown = "dice[size=6]/no_such_machine:2"
        suite = suite_of(made_up(benchmarks=(unknown, PROBLEM)))["dice"]
        cache = suite().setup_cache()
        assert "no_such_machine" in str(cache["dice", "same", unknown])
        assert not isinstance(cache["dice", "same", unknown], NotApplicable)
        assert cache["dice", "same", PROBLEM].quality["eyes"] == 12


@pytest.mark.long
@pytest.mark.parametrize("name", [family.name for family in load_registry().families])
def test_every_benchmark_of_this_project_can_run(name: str) -> None:
    """No cell fails at this commit, so that a failure in asv is a broken planner."""
    suite = getattr(families, name)
    failed = {
        cell: str(checked)
        for cell, checked in suite().setup_cache().items()
        if isinstance(checked, ShardbenchError) and not isinstance(checked, NotApplicable)
    }
    assert failed == {}
