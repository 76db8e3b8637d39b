"""The asv suite on made-up families, by asv's own classes."""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asv import _stats
from asv_runner import statistics
from asv_runner.discovery import _get_benchmark

from benchmarks import families
from benchmarks.outline import OUTLINE_FILE, outlines, registered
from harness.contract import (
    Counter,
    Family,
    InfeasibleDecision,
    Measured,
    Prepared,
    Quality,
    Recorder,
)
from harness.contract.registry import Registry
from harness.measuring.check import check
from harness.measuring.timing.clock import SystemClock

ROOT = Path(__file__).parents[2]
PROBLEM = "dice[size=6]/dgx_a100_80gb:2"


class Log:
    """What variants have done, in order."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.recorder: Recorder | None = None


def luck(problem: int, eyes: int) -> dict[str, float]:
    return {"eyes": eyes, "luck": eyes / problem}


def made_up(
    name: str = "dice",
    log: Log | None = None,
    quality: Callable[[int, int], dict[str, float]] = luck,
    **changes: Any,
) -> Family[int, int]:
    """Return a family whose problem is a number and whose decision is a number."""
    log = log or Log()

    @contextmanager
    def observe(recorder: Recorder) -> Iterator[None]:
        log.recorder = recorder
        yield
        log.recorder = None

    def build(workload: Any, topology: Any) -> int:
        log.entries.append("built")
        return int(workload.parameters["size"]) * int(topology.gpus)

    def validate(problem: int, decision: int) -> None:
        if decision < 0:
            raise InfeasibleDecision("No dice.")

    parts: dict[str, Any] = {
        "summary": "throws dice",
        "implementation": SimpleNamespace(
            build=build,
            fingerprint=str,
            validate=validate,
            quality=quality,
            facts=lambda problem: {"size": problem},
            observe=observe,
        ),
        "qualities": (Quality("eyes", "dots", "higher"), Quality("luck")),
        "counters": (Counter("throws", ""), Counter("misses", "")),
        "benchmarks": (PROBLEM,),
    }
    family: Family[int, int] = Family(name=name, **(parts | changes))

    @contextmanager
    def installed() -> Iterator[None]:
        log.entries.append("installed")
        yield
        log.entries.append("removed")

    @family.variant("reference", reference=True)
    def reference(problem: int) -> Prepared[int]:
        log.entries.append("prepared")

        def run() -> int:
            if log.recorder is not None:
                log.recorder.counters["throws"] += problem
            sum(range(200_000))
            return problem

        return Prepared(run, installed, close=lambda: log.entries.append("closed"))

    family.decider("same", same_as="reference")(lambda problem: problem)
    family.decider("other", same_as="same")(lambda problem: problem + 1)
    family.decider("own")(lambda problem: 2 * problem)
    family.decider("impossible", same_as="reference")(lambda problem: -1)
    family.decider("after-impossible", same_as="impossible")(lambda problem: problem)
    family.variant("not-installed", requires=("a_module_that_does_not_exist",))(lambda problem: 0)

    @family.variant("elsewhere")
    def elsewhere(problem: int) -> Prepared[int]:
        return Prepared(lambda: Measured(problem, wall_s=0.5, cpu_s=0.25))

    @family.variant("raises", same_as="reference")
    def raises(problem: int) -> Prepared[int]:
        raise OSError("out of dice")

    return family


def suite_of(*members: Family[int, int]) -> dict[str, type[Any]]:
    registry = Registry(members)
    return families.benchmark_classes(registry, outlines(registry))


def asv_benchmark(suite: type[Any], function: str, variant: str, cache: Any) -> Any:
    """Return a benchmark as asv makes it, with the cell of a variant selected."""
    benchmark = _get_benchmark(function, families, suite, getattr(suite, function))
    variants, problems = benchmark._params
    benchmark.set_param_idx(list(variants).index(variant) * len(problems))
    benchmark.set_cache(cache)
    return benchmark


@pytest.fixture(autouse=True)
def _outside_of_asv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OUTLINE_FILE, raising=False)


@pytest.fixture
def run() -> Callable[[str, str], Any]:
    """Return what asv would show for a function and a variant; None stands for n/a."""
    suite = suite_of(made_up())["dice"]
    cache = suite().setup_cache()

    def shown(function: str, variant: str) -> Any:
        benchmark = asv_benchmark(suite, function, variant, cache)
        skipped = benchmark.do_setup()
        value = None if skipped else benchmark.do_run()
        benchmark.do_teardown()
        return None if value != value else value

    return shown


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

    def test_parameters_are_variants_and_problems_under_their_own_names(self) -> None:
        suite = suite_of(made_up())["dice"]
        benchmark = asv_benchmark(suite, "time_plan", "same", None)
        assert benchmark.param_names == ["variant", "problem"]
        assert benchmark.params[0][:2] == ["'reference'", "'same'"]
        assert benchmark.params[1] == [f"'{PROBLEM}'"]
        assert benchmark._current_params == ("same", PROBLEM)

    def test_figures_carry_unit_and_direction(self) -> None:
        suite = suite_of(made_up())["dice"]
        eyes = asv_benchmark(suite, "track_eyes", "same", None)
        throws = asv_benchmark(suite, "track_throws", "same", None)
        assert (eyes.unit, eyes.less_is_better) == ("dots", False)
        assert (throws.unit, throws.less_is_better) == ("count", True)

    def test_a_name_with_a_hyphen_becomes_one_that_asv_can_find(self) -> None:
        assert list(suite_of(made_up("two-dice"))) == ["two_dice"]

    def test_all_families_share_one_cache_that_holds_them_all(self) -> None:
        suites = suite_of(made_up(), made_up("cards"))
        keys = {
            asv_benchmark(suite, "time_plan", "same", None).setup_cache_key
            for suite in suites.values()
        }
        assert len(keys) == 1
        assert {family for family, _, _ in suites["dice"]().setup_cache()} == {"dice", "cards"}

    def test_a_family_that_lacks_what_it_needs_is_left_out_with_a_note(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cards = made_up("cards", requires=("a_module_that_does_not_exist",))
        assert list(suite_of(made_up(), cards)) == ["dice"]
        assert capsys.readouterr().err == (
            "Family 'cards' is not installed: it needs a_module_that_does_not_exist.\n"
        )

    def test_a_family_that_fails_to_load_is_left_out_with_a_note(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        registry = Registry([made_up()])
        registry.failures["cards"] = "No module named 'cards'"
        assert list(registered(registry)) == ["dice"]
        assert "Family 'cards' could not be loaded: No module" in capsys.readouterr().err

    def test_the_version_is_explicit(self) -> None:
        assert asv_benchmark(suite_of(made_up())["dice"], "time_plan", "same", None).version == "2"

    def test_importing_the_suite_imports_no_planner(self) -> None:
        code = "import sys, benchmarks.families; assert 'torch' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


class TestFigures:
    @pytest.mark.parametrize("variant", ["reference", "same", "other", "own"])
    def test_are_those_of_the_checked_call(
        self, run: Callable[[str, str], Any], variant: str
    ) -> None:
        family = made_up()
        checked = check(family, family.find(variant), 12, SystemClock())
        assert run("track_eyes", variant) == checked.quality["eyes"]
        assert run("track_luck", variant) == checked.quality["luck"]
        assert run("track_throws", variant) == checked.counters.get("throws", 0)
        assert run("track_misses", variant) == 0

    def test_a_bound_and_a_gap_are_tracked_like_any_quality(self) -> None:
        family = made_up(
            qualities=(
                Quality("eyes", "dots", "lower", ""),
                Quality("least", "dots", "higher", "", bounds="eyes"),
                Quality("gap", "", "lower", ""),
            ),
            quality=lambda problem, eyes: {"eyes": eyes, "least": 10, "gap": eyes / 10 - 1},
        )
        suite = suite_of(family)["dice"]
        cache = suite().setup_cache()
        tracked = {
            name: asv_benchmark(suite, f"track_{name}", "own", cache) for name in ("least", "gap")
        }
        assert {name: each.do_run() for name, each in tracked.items()} == {
            "least": 10,
            "gap": pytest.approx(1.4),
        }
        assert not tracked["least"].less_is_better
        assert tracked["gap"].less_is_better

    def test_a_decision_must_equal_that_of_the_nearest_checked_variant(
        self, run: Callable[[str, str], Any]
    ) -> None:
        assert run("track_different_decision", "same") == 0
        assert run("track_different_decision", "other") == 1
        assert run("track_different_decision", "after-impossible") == 0

    @pytest.mark.parametrize("variant", ["reference", "own"])
    def test_any_decision_will_do_without_same_as(
        self, run: Callable[[str, str], Any], variant: str
    ) -> None:
        assert run("track_different_decision", variant) is None

    @pytest.mark.parametrize("variant", ["impossible", "not-installed", "raises"])
    @pytest.mark.parametrize("function", ["time_plan", "track_eyes", "track_different_decision"])
    def test_a_cell_without_a_checked_decision_is_not_available(
        self, run: Callable[[str, str], Any], function: str, variant: str
    ) -> None:
        assert run(function, variant) is None

    def test_a_problem_that_cannot_be_built_costs_only_its_own_cells(self) -> None:
        unknown = "dice[size=6]/no_such_machine:2"
        suite = suite_of(made_up(benchmarks=(unknown, PROBLEM)))["dice"]
        cache = suite().setup_cache()
        assert "no_such_machine" in cache["dice", "same", unknown]
        assert cache["dice", "same", PROBLEM].quality["eyes"] == 12


class TestTime:
    def test_the_problem_is_built_and_prepared_once_and_never_timed(self) -> None:
        log = Log()
        suite = suite_of(made_up(log=log))["dice"]
        cache = suite().setup_cache()
        log.entries.clear()
        benchmark = asv_benchmark(suite, "time_plan", "reference", cache)
        assert not benchmark.do_setup()
        result = benchmark.do_run()
        benchmark.do_teardown()
        assert len(result["samples"]) == benchmark.repeat
        assert log.entries[:2] == ["built", "prepared"]
        turns = len(log.entries[2:]) // 2
        assert turns > benchmark.repeat  # one at least goes before the samples
        assert log.entries[2:] == ["installed", "removed"] * turns

        del benchmark
        assert log.entries[-1] == "closed"

    def test_a_sample_is_the_cpu_time_of_one_call(self, run: Callable[[str, str], Any]) -> None:
        started = os.times().user
        sum(range(20_000_000))
        expected = (os.times().user - started) / 100
        samples = run("time_plan", "reference")["samples"]
        assert expected / 4 < min(samples) < expected * 4

    def test_a_call_that_was_timed_elsewhere_counts_as_it_was_there(
        self, run: Callable[[str, str], Any]
    ) -> None:
        assert run("time_plan", "elsewhere")["samples"] == [0.25, 0.25]

    def test_asv_can_find_a_slow_down_in_the_samples_of_one_side(self) -> None:
        benchmark = asv_benchmark(suite_of(made_up())["dice"], "time_plan", "same", None)
        count = benchmark.rounds * benchmark.repeat
        rng = random.Random(0)

        def is_different(count: int, slower: float) -> bool:
            sides = [[rng.gauss(mean, 0.02) for _ in range(count)] for mean in (1.0, slower)]
            stats = [statistics.compute_stats(side, 1)[1] for side in sides]
            return bool(_stats.is_different(*sides, *stats))

        assert count >= 8
        assert all(is_different(count, 1.15) for _ in range(20))
        assert not is_different(count, 1.0)
        assert not is_different(6, 100.0)  # why it must not be six


class TestRatio:
    def test_asv_gets_the_ratio_of_each_pair_as_a_sample(
        self, run: Callable[[str, str], Any]
    ) -> None:
        # `same` does nothing, where the reference adds numbers.
        found = run("track_ratio_to_reference", "same")
        assert found["number"] == 1
        assert 4 <= len(found["samples"]) <= 16
        assert 0 < max(found["samples"]) < 0.1

    @pytest.mark.parametrize("variant", ["reference", "other", "impossible", "not-installed"])
    def test_without_a_ratio_there_is_none(
        self, run: Callable[[str, str], Any], variant: str
    ) -> None:
        assert run("track_ratio_to_reference", variant) is None

    def test_what_was_prepared_is_closed_and_asv_tells_an_interval(self) -> None:
        log = Log()
        suite = suite_of(made_up(log=log))["dice"]
        benchmark = asv_benchmark(suite, "track_ratio_to_reference", "own", suite().setup_cache())
        assert not benchmark.do_setup()
        found = benchmark.do_run()
        assert log.entries[-1] == "closed"
        value, stats = statistics.compute_stats(found["samples"], found["number"])
        assert stats["ci_99_a"] <= value <= stats["ci_99_b"] < 0.1

    def test_asv_gets_the_calls_that_a_call_makes(self, run: Callable[[str, str], Any]) -> None:
        assert run("track_python_calls", "reference") == 2  # itself, and what adds numbers
        assert run("track_python_calls", "not-installed") is None
        assert run("track_python_calls", "elsewhere") is None


class TestOtherCommits:
    def test_parameters_are_those_of_the_commit_that_was_discovered(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(OUTLINE_FILE, str(tmp_path / "outline.json"))
        discovered = suite_of(made_up(), made_up("cards"))
        older = made_up()
        del older.variants["same"]
        older.variants["other"] = older.variants["own"]
        suites = suite_of(older)
        assert suites["dice"].params == discovered["dice"].params

        cache = suites["dice"]().setup_cache()
        assert asv_benchmark(suites["dice"], "track_eyes", "same", cache).do_setup()
        assert asv_benchmark(suites["cards"], "track_eyes", "own", cache).do_setup()
        own = asv_benchmark(suites["dice"], "track_eyes", "own", cache)
        assert not own.do_setup()
        assert own.do_run() == 24

    def test_a_figure_that_a_commit_does_not_know_is_not_available(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(OUTLINE_FILE, str(tmp_path / "outline.json"))
        suite_of(made_up())
        suite = suite_of(made_up(counters=()))["dice"]
        benchmark = asv_benchmark(suite, "track_misses", "same", suite().setup_cache())
        assert not benchmark.do_setup()
        value = benchmark.do_run()
        assert value != value
