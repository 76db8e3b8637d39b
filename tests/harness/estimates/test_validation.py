"""Decisions and memory measured against estimates, on a made-up machine with a fake clock."""

import json
import math
import random
from pathlib import Path

import pytest
from fake_clock import FakeClock
from msgspec import to_builtins

from harness.contract import Prepared
from harness.contract.estimates import (
    Candidate,
    CandidateSet,
    Design,
    FittedMachine,
    MemorySet,
    RankMemory,
    RankWork,
    TimedWork,
)
from harness.estimates.memory import MeasuredMemory, MemoryValidation, validate_memory
from harness.estimates.timing import Pair, Stopwatch, calibrate
from harness.estimates.validation import (
    Agreement,
    MeasuredDecision,
    MeasuredMs,
    Validation,
    agreement,
    validate,
)
from harness.model.errors import ShardbenchError
from harness.store.keys import Key
from harness.store.lines import Store
from reports.estimates import read_validations, validation_chapter

KEY = Key(machine="made up")
PLANS = ((0.10, 0.20), (0.30, 0.10), (0.42, 0.41), (0.55, 0.05), (0.70, 0.10))


class Machine:
    """A machine on which work takes given seconds, times a drifting speed and some noise."""

    def __init__(self, noise: float = 0.01, slowing: float = 0.0, is_asynchronous: bool = False):
        self.clock = FakeClock()
        self.calls = 0
        self._noise, self._slowing = noise, slowing
        self._rng = random.Random(0)
        self.interrupt_at = math.inf
        self.device, self.is_asynchronous = "made up", is_asynchronous
        self.reference = self.work("reference", 0.1)

    def work(self, key: str, seconds: float, passes: tuple[str, ...] = ("both",)) -> TimedWork:
        def run() -> None:
            self.calls += 1
            if self.calls == self.interrupt_at:
                raise KeyboardInterrupt
            slow = 1 + self._slowing * self.calls
            took = seconds * slow * math.exp(self._rng.gauss(0, self._noise))
            self.clock.advance(took, cpu_s=0.0 if self.is_asynchronous else None)

        return TimedWork(key, lambda: dict.fromkeys(passes, Prepared(run)))

    def candidates(self, *plans: tuple[float, ...]) -> CandidateSet:
        """Return plans with these seconds per rank; estimate `right` is right up to a factor."""

        def rank(seconds: float) -> RankWork:
            estimated = {"right": 500 * seconds, "wrong": 1 / seconds}
            work = self.work(f"{seconds}", seconds)
            return RankWork(work, estimated, 0.5, {"kernel": "fused"})

        numbered = enumerate(plans)
        return CandidateSet([Candidate(f"plan {n}", f"{n}", [*map(rank, p)]) for n, p in numbered])

    def stopwatch(self, path: Path) -> Stopwatch:
        return Stopwatch(self, Store(path, "time", Pair), KEY, self.clock)


def validated(machine: Machine, path: Path, *plans, seconds: float = 60.0) -> Validation:
    candidates = machine.candidates(*(plans or PLANS))
    return validate("p", "uniform", candidates, machine.stopwatch(path), seconds)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "times.jsonl"


@pytest.fixture
def found(path: Path) -> Validation:
    return validated(Machine(), path)


def test_the_slowest_rank_of_each_plan_is_found_on_a_machine_that_slows_down(path):
    """Times are taken in turns with a reference, so that a drift of the machine cancels."""
    found = validated(Machine(slowing=0.002), path)
    assert [decision.slowest_rank for decision in found.decisions] == [1, 0, 0, 0, 0]
    scale = found.reference_ms / 100  # of a reference that takes 100 ms
    for decision, plan in zip(found.decisions, PLANS, strict=True):
        assert decision.measured.value == pytest.approx(1000 * max(plan) * scale, rel=0.03)
        assert decision.measured.low < decision.measured.value < decision.measured.high
        assert decision.modelled_ms == 0.5


def test_a_right_estimate_agrees_and_a_wrong_one_does_not(found):
    """An estimate that is off by one factor ranks plans rightly, and its residuals are even."""
    right, wrong = found.agreements
    assert (right.spearman, right.is_top, right.regret) == (pytest.approx(1), True, 0)
    assert right.error == pytest.approx(1.0, abs=0.05)  # the estimate is half of the time
    assert right.scaled_error < 0.03
    assert right.spearman_low > 0.5
    assert wrong.spearman < 0.5
    assert not wrong.is_first
    assert wrong.regret > 1
    (common,) = (one for one in found.residuals if one.estimate == "right")
    assert (common.fact, common.value, common.ranks) == ("kernel", "fused", 10)
    assert common.factor == pytest.approx(1)


def test_an_interrupted_run_resumes_and_measures_nothing_twice(path, tmp_path):
    """What was measured before the interrupt stays in the file."""
    machine = Machine()
    machine.interrupt_at = 30
    with pytest.raises(KeyboardInterrupt):
        validated(machine, path)
    kept = path.read_text().splitlines()
    again, alone = Machine(), Machine()
    validated(again, path)
    assert path.read_text().splitlines()[: len(kept)] == kept
    validated(alone, tmp_path / "other.jsonl")
    assert again.calls < alone.calls + 25


def test_ranks_that_are_alike_are_measured_once(path):
    """Work with equal keys is one measurement with more pairs."""
    machine = Machine()
    validated(machine, path, *[(0.2, 0.2, 0.2)] * 3, seconds=1.0)
    assert {json.loads(line)["id"] for line in path.read_text().splitlines()} == {"0.2"}
    assert machine.stopwatch(path).pairs("0.2") == 5


def test_a_validation_is_written_and_read_again(found, tmp_path):
    """Fields of another version are ignored."""
    written = to_builtins(found)
    (tmp_path / "found.json").write_text(json.dumps(written))
    assert read_validations(tmp_path) == [found]
    written["decisions"][0]["more"] = written["more"] = {"of another version": 1.0}
    (tmp_path / "found.json").write_text(json.dumps(written))
    assert read_validations(tmp_path) == [found]


def test_the_report_has_a_section_for_each_problem(found):
    """The chapter has a table of all problems, and a drawing in each section."""
    chapter = validation_chapter([found, found])
    assert [len(part.table.rows) for part in chapter.tables] == [2, 4]
    assert [[len(part.table.rows) for part in one.tables] for one in chapter.sections] == [
        [5, 1]
    ] * 2
    assert list(chapter.sections[0].drawings[0].data["right ms"])[:2] == [100, 150]


def agreed(*estimated: float) -> Agreement:
    """Return the agreement of estimates of three decisions, two of which are within the noise."""
    measured = [MeasuredMs(1.0, 0.9, 1.1), MeasuredMs(1.05, 0.95, 1.15), MeasuredMs(2.0, 1.9, 2.1)]
    decisions = [
        MeasuredDecision(name, name, {"e": ms}, time, 5, 0, 0.0, ())
        for name, ms, time in zip("abc", estimated, measured, strict=True)
    ]
    return agreement("e", decisions)


def test_plans_within_the_noise_do_not_count_for_the_rank_correlation_of_plans_apart():
    """Plans whose intervals overlap have no order."""
    found = agreed(2.0, 1.0, 3.0)
    assert (found.apart, found.spearman_apart) == (2, None)
    assert (found.picks, found.is_top, found.is_top_within_noise) == ("b", False, True)
    assert found.regret == pytest.approx(0.05)
    assert found.spearman == pytest.approx(0.5)
    assert agreed(1.0, 1.0, 1.0).spearman == 0


def test_calibrating_hands_milliseconds_of_each_pass_to_the_fit(path):
    """A second calibration uses the stored times."""
    machine = Machine(slowing=0.001)
    handed: list = []

    def fit(times, reference_ms: float) -> FittedMachine:
        handed.append(times)
        return FittedMachine((), ())

    passes = ("forward", "backward")
    design = Design([machine.work("a", 0.2, passes), machine.work("b", 0.05, passes)], fit)
    calibrate(design, machine.stopwatch(path))
    (times,) = handed
    assert set(times) == {"a", "b"}
    assert times["a"]["forward"] / times["b"]["backward"] == pytest.approx(4, rel=0.03)
    calls = machine.calls
    calibrate(design, machine.stopwatch(path))
    assert machine.calls == calls + 1  # all times are kept; only the reference is prepared


def test_plans_for_which_there_is_no_time_are_left_out_and_measured_later(path):
    """A note says how many plans were measured."""
    machine = Machine()
    found = validated(machine, path, seconds=1.0)
    assert [decision.name for decision in found.decisions] == ["plan 0", "plan 1", "plan 4"]
    assert "2 of 5 plans" in found.notes[-1]
    again = validated(machine, path, seconds=600.0)
    assert len(again.decisions) == 5
    assert not again.notes


def test_an_asynchronous_device_is_timed_by_wall(path):
    """The CPU time of a call says nothing of a device that goes on."""
    found = validated(Machine(noise=0.0, is_asynchronous=True), path)
    assert found.decisions[0].measured.value == pytest.approx(200)


TERMS = {"wide": {"weights": 80, "gradients": 8}, "": {"peak": 100}}
ESTIMATED = {"theirs": {"wide": {"weights": 40}, "": {"peak": 50}}, "ours": TERMS}


def count(job: dict[str, dict[str, int]], *_: object) -> dict[str, dict[str, int]]:
    return job


def fail(job: object, *_: object) -> dict[str, dict[str, int]]:
    raise ValueError("no such kernel")


def memory_validated(folder: Path, measure: object) -> MemoryValidation:
    rank = RankMemory("a plan", "adam", 3, measure, TERMS, ESTIMATED)
    candidates = MemorySet([rank], ["a note"], 1.0, "peak")
    store = Store(folder / "memory.jsonl", "memory", MeasuredMemory)
    return validate_memory("a problem", "CPU", 1, candidates, seed=0, store=store)


def test_each_term_has_its_bytes_and_the_estimates_that_know_it(tmp_path):
    """Measured ranks are stored, and not measured again."""
    validation = memory_validated(tmp_path, count)
    (rank,) = validation.ranks
    assert (rank.decision, rank.setting, rank.rank) == ("a plan", "adam", 3)
    terms = {term.term: (term.measured, term.estimated) for term in rank.terms}
    assert terms == {
        "weights": (80, {"theirs": 40, "ours": 80}),
        "gradients": (8, {"ours": 8}),
    }
    assert (validation.errors("theirs"), validation.errors("ours")) == ([0.5], [0.0])
    assert validation.notes == ("a note",)
    assert memory_validated(tmp_path, fail).ranks == validation.ranks, "they are not measured again"


def test_a_failure_names_the_rank_and_the_reason(tmp_path):
    """A rank that cannot be measured ends the validation with one sentence."""
    reason = r"^Measuring rank 3 .* with adam failed: .*no such k"
    with pytest.raises(ShardbenchError, match=reason):
        memory_validated(tmp_path, fail)
