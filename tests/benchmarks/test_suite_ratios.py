"""Times and ratios in the asv suite, and commits that add or remove variants."""

import random
from pathlib import Path

import pytest
from asv import _stats
from asv_runner import statistics
from made_up_suite import PROBLEM, Log, Run, asv_benchmark, made_up, suite_of

from benchmarks import OUTLINE_FILE, families
from benchmarks.families import outlines
from harness.contract.registry import Registry
from harness.model.errors import NotApplicable


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

    def test_a_call_that_was_timed_elsewhere_counts_as_it_was_there(self, run: Run) -> None:
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
    def test_asv_gets_the_ratio_of_each_pair_as_a_sample(self, run: Run) -> None:
        # `same` does nothing, where the reference adds numbers.
        found = run("track_ratio_to_reference", "same")
        assert found["number"] == 1
        assert 4 <= len(found["samples"]) <= 16
        assert 0 < max(found["samples"]) < 0.1

    def test_asv_gets_the_calls_that_a_call_makes(self, run: Run) -> None:
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

    def test_what_a_commit_declares_and_cannot_do_fails_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A later commit's problem may be unknown; a family that does not load is an error."""
        monkeypatch.setenv(OUTLINE_FILE, str(tmp_path / "outline.json"))
        later = "dice[size=6]/a_later_machine:2"
        suite_of(made_up(benchmarks=(PROBLEM, later)), made_up("cards"))
        registry = Registry([made_up()])
        registry.failures["cards"] = "No module named 'cards'"
        suites = families.benchmark_classes(registry, outlines(registry))
        cache = suites["dice"]().setup_cache()
        assert isinstance(cache["dice", "own", later], NotApplicable)
        assert cache["dice", "own", PROBLEM].quality["eyes"] == 24
        assert "No module named 'cards'" in str(cache["cards", "own", PROBLEM])
        assert not isinstance(cache["cards", "own", PROBLEM], NotApplicable)
