"""The asv suite on the toy family, by asv's own classes."""

import random
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asv import _stats
from asv_runner import statistics
from made_up_suite import PROBLEM, UNKNOWN, asv_benchmark, current, older, ran, suite_of, toys

from benchmarks import OUTLINE_FILE, families
from harness.contract.registry import Registry, load_registry
from harness.measuring.comparison import Comparison
from harness.model.errors import NotApplicable, RegistryError, ShardbenchError
from harness.model.settings import SamplingRule, Settings

ROOT = Path(__file__).parents[2]
FUNCTIONS = ["time_plan", "track_fullest", "track_different_decision", "track_ratio_to_reference"]


@pytest.fixture(autouse=True)
def _outside_of_asv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OUTLINE_FILE, raising=False)


@pytest.fixture(scope="module", autouse=True)
def _short_turns() -> Iterator[None]:
    """Give each comparison the fewest blocks that have an interval."""
    rule = SamplingRule(seconds=0.2, least_blocks=4, most_blocks=4, warmup_seconds=0.05)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(families, "_SETTINGS", Settings(sampling=rule))
        yield


@pytest.fixture(scope="module")
def cache() -> Any:
    """The cells of the toy family."""
    return suite_of(current)["toy"]().setup_cache()


@pytest.fixture
def run(cache: Any) -> Callable[..., Any]:
    """Return a function that runs a benchmark of a variant, and returns its value or None."""
    suite = suite_of(current)["toy"]
    return lambda function, variant, problem=PROBLEM: ran(
        asv_benchmark(suite, function, (variant, problem), cache)
    )


def test_asv_finds_the_benchmarks_of_the_families_and_nothing_else():
    """The names of benchmarks begin with the family's, and every counter has one."""
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


def test_a_family_is_left_out_with_a_note_or_fails_if_it_does_not_load(capsys):
    """What is not installed is no error; what cannot be loaded is one."""
    cards = toys("cards", ("missing", "reference"), requires=("a_module_that_does_not_exist",))
    cards.variants["reference"] = replace(cards.variants["reference"], requires=cards.requires)
    assert list(suite_of(lambda: Registry([toys(), cards]))) == ["toy"]
    assert "'cards' is not installed: it needs a_module_that" in capsys.readouterr().err
    with pytest.raises(RegistryError, match="'cards' could not be loaded: No module"):
        suite_of(older)


def test_each_family_of_this_project_has_a_cache_of_its_own():
    """asv keeps the cells of a family for all of its benchmarks, and for no other family."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = project["entry-points"]["shardbench.families"]
    suites = suite_of(lambda: Registry(map(toys, names)))
    keys = {
        asv_benchmark(suite, "time_plan", ("same", PROBLEM), None).setup_cache_key
        for suite in suites.values()
    }
    assert len(keys) == len(names)
    assert all(set(suites[name].outlines) == {name} for name in names)


class TestFigures:
    def test_are_those_of_the_checked_call(self, run):
        """Qualities and counters are tracked by their names."""
        names = ("fullest", "dealt", "returned")
        for variant, figures in {"same": [3, 6, 0], "own": [6, 0, 0]}.items():
            assert [run(f"track_{name}", variant) for name in names] == figures

    @pytest.mark.parametrize(
        ("variant", "value"), [("same", 0), ("different", 1), ("reference", None), ("own", None)]
    )
    def test_a_decision_must_be_the_required_one(self, run, variant, value):
        """Where no decision is required, there is no value."""
        assert run("track_different_decision", variant) == value

    @pytest.mark.parametrize("variant", ["missing", "aloof"])
    def test_what_is_not_installed_or_not_applicable_is_not_available(self, run, variant):
        """asv shows n/a for each benchmark of such a variant."""
        assert [run(function, variant) for function in FUNCTIONS] == [None] * len(FUNCTIONS)

    @pytest.mark.parametrize(
        ("cell", "reason"),
        [(("infeasible", PROBLEM), "does not deal"), (("same", UNKNOWN), "no_such_machine")],
    )
    def test_a_broken_variant_or_problem_fails(self, run, cell, reason):
        """asv shows a failure, and the reason is in its log."""
        for function in FUNCTIONS:
            with pytest.raises(ShardbenchError, match=reason):
                run(function, *cell)


class TestTimes:
    def test_the_problem_is_built_and_prepared_once_and_never_timed(self, cache):
        """Each sample is a turn; what the variant holds is closed at the end."""
        story: Counter[str] = Counter()
        family = toys()
        usual = family.variants["same"]

        @contextmanager
        def installed() -> Iterator[None]:
            story["installed"] += 1
            yield
            story["removed"] += 1

        def prepare(problem: Any) -> Any:
            story["prepared"] += 1
            changes = {"installed": installed, "close": lambda: story.update(["closed"])}
            return replace(usual.prepared(problem), **changes)

        family.variants["same"] = replace(usual, prepare=prepare)
        suite = suite_of(lambda: Registry([family]))["toy"]
        benchmark = asv_benchmark(suite, "time_plan", ("same", PROBLEM), cache)
        assert len(ran(benchmark)["samples"]) == benchmark.repeat
        assert story["installed"] == story["removed"] > benchmark.repeat  # one before the samples
        assert (story["prepared"], story["closed"]) == (1, 0)
        del benchmark
        assert story["closed"] == 1

    def test_a_call_that_was_timed_elsewhere_counts_as_it_was_there(self, run):
        """Its calls cannot be counted here."""
        assert run("time_plan", "measured")["samples"] == [0.25, 0.25]
        assert run("track_python_calls", "measured") is None
        assert run("track_python_calls", "reference") > run("track_python_calls", "same") > 0

    def test_asv_can_find_a_slow_down_in_the_samples(self):
        """asv's test of difference needs the eight samples of a commit."""
        suite = suite_of(current)["toy"]
        count = suite.rounds * suite.repeat
        rng = random.Random(0)

        def is_different(count: int, slower: float) -> bool:
            sides = [[rng.gauss(mean, 0.02) for _ in range(count)] for mean in (1.0, slower)]
            stats = [statistics.compute_stats(side, 1)[1] for side in sides]
            return bool(_stats.is_different(*sides, *stats))

        assert all(is_different(count, 1.15) for _ in range(20))
        assert not is_different(count, 1.0)
        assert not is_different(6, 100.0)  # why it must not be six

    def test_ratios_are_samples_and_a_wrong_decision_has_none(self, run):
        """`same` does a tenth of the reference's work."""
        ratio = run("track_ratio_to_reference", "same")
        assert ratio["number"] == 1
        assert len(ratio["samples"]) >= 4
        assert 0 < min(ratio["samples"]) < 0.5
        with pytest.raises(ShardbenchError, match="another decision"):
            run("track_ratio_to_reference", "different")


def test_at_another_commit_parameters_are_those_of_the_discovered_one(tmp_path, monkeypatch):
    """What the commit lacks is n/a; a family that fails to load is an error in its own cells."""
    monkeypatch.setenv(OUTLINE_FILE, str(tmp_path / "outline.json"))
    later = "toy[size=6]/a_later_machine:2"
    members = [toys(benchmarks=(PROBLEM, later)), toys("cards"), toys("gone")]
    discovered = suite_of(lambda: Registry(members))
    suites = suite_of(older)
    assert suites["toy"].params == discovered["toy"].params
    cache = suites["toy"]().setup_cache() | suites["cards"]().setup_cache()
    for missing in (("toy", "same", PROBLEM), ("toy", "own", later), ("gone", "own", PROBLEM)):
        assert isinstance(cache[missing], NotApplicable)
    assert "No module named 'cards'" in str(cache["cards", "own", PROBLEM])
    assert not isinstance(cache["cards", "own", PROBLEM], NotApplicable)
    assert ran(asv_benchmark(suites["toy"], "track_fullest", ("own", PROBLEM), cache)) == 6


@pytest.mark.long
@pytest.mark.parametrize("family", load_registry().families, ids=lambda family: family.name)
def test_every_variant_of_this_project_can_run_in_the_suite(family):
    """On the first problem each variant passes its check or is not available; the others exist."""
    request, *others = (families.request_of(family, problem) for problem in family.benchmarks)
    for other in others:
        other.build()
    counted = replace(request, counted=tuple(request.names()))  # the smoke test times, too
    failed = {
        cell.variant: f"{cell.status}: {cell.reason}"
        for cell in Comparison(counted).run()
        if cell.status not in ("ok", "not installed", "not applicable")
    }
    assert failed == {}
