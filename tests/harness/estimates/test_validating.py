"""Decisions measured beside a reference, on a made-up machine whose clock is moved by hand."""

import json
import math
import random
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from fake_clock import FakeClock
from msgspec import to_builtins
from msgspec.structs import replace as replace_struct

from harness.contract import Prepared
from harness.contract.abilities.validation import (
    Candidate,
    CandidatesOnBench,
    FittedMachine,
    RankWork,
    SweepOnBench,
    TimedWork,
)
from harness.estimates.calibration import calibrate
from harness.estimates.statistics import MeasuredMs, agreement
from harness.estimates.times import TimesFile, Timing
from harness.estimates.validation import Validation, validate
from harness.model.cell import Ratio
from harness.model.errors import ShardbenchError, UsageError
from reports.estimates.page import findings, read_validations

SETTINGS = {"machine": "made up"}


class Machine:
    """Takes so many seconds for a work, times a speed that drifts and some noise."""

    def __init__(self, noise: float = 0.01, slowing: float = 0.0) -> None:
        self.clock = FakeClock()
        self.calls = 0
        self._noise, self._slowing = noise, slowing
        self._rng = random.Random(0)
        self.interrupt_at = math.inf

    def work(self, key: str, seconds: float, passes: tuple[str, ...] = ("both",)) -> TimedWork:
        def run() -> None:
            self.calls += 1
            if self.calls == self.interrupt_at:
                raise KeyboardInterrupt
            slow = 1 + self._slowing * self.calls
            self.clock.advance(seconds * slow * math.exp(self._rng.gauss(0, self._noise)))

        return TimedWork(key, lambda: dict.fromkeys(passes, Prepared(run)))

    def bench(self, *plans: tuple[float, ...]) -> CandidatesOnBench:
        """Return plans by the seconds of their ranks; the estimate is right but for a factor."""
        return CandidatesOnBench(
            "made up",
            False,
            self.work("reference", 0.1),
            candidates=[
                Candidate(
                    f"plan {number}",
                    f"{number}",
                    [
                        RankWork(
                            self.work(f"{seconds}", seconds),
                            {"right": 500 * seconds, "wrong": 1 / seconds},
                            0.5,
                            {"kernel": "fused"},
                        )
                        for seconds in plan
                    ],
                )
                for number, plan in enumerate(plans)
            ],
        )


PLANS = ((0.10, 0.20), (0.30, 0.10), (0.42, 0.41), (0.55, 0.05), (0.70, 0.10))


def validated(machine: Machine, path: Path, *plans, **options) -> Validation:
    bench = machine.bench(*(plans or PLANS))
    timing = Timing(path, SETTINGS, machine.clock)
    return validate("p", "uniform", bench, timing, **{"seconds": 60.0} | options)


def test_the_slowest_rank_of_each_plan_is_found_whatever_the_machine_does(tmp_path: Path):
    found = validated(Machine(slowing=0.002), tmp_path / "times.jsonl")
    assert [each.slowest_rank for each in found.decisions] == [1, 0, 0, 0, 0]
    scale = found.reference_ms / 100  # of a reference that takes 100 ms
    for decision, plan in zip(found.decisions, PLANS, strict=True):
        assert decision.measured.value == pytest.approx(1000 * max(plan) * scale, rel=0.03)
        assert decision.measured.low < decision.measured.value < decision.measured.high
        assert decision.modelled_ms == 0.5


def test_a_right_estimate_agrees_and_a_wrong_one_does_not(tmp_path: Path):
    found = validated(Machine(), tmp_path / "times.jsonl")
    right, wrong = found.agreements
    assert (right.spearman, right.is_top, right.regret) == (pytest.approx(1), True, 0)
    assert right.error == pytest.approx(1.0, abs=0.05)  # it says half
    assert right.scaled_error < 0.03
    assert right.spearman_low > 0.5
    assert wrong.spearman < 0.5
    assert not wrong.is_top
    assert not wrong.is_top_within_noise
    assert wrong.regret > 1


def test_what_was_interrupted_goes_on_and_measures_nothing_twice(tmp_path: Path):
    path = tmp_path / "times.jsonl"
    machine = Machine()
    machine.interrupt_at = 30
    with pytest.raises(KeyboardInterrupt):
        validated(machine, path)
    kept = path.read_text().splitlines()
    path.write_text("\n".join(kept) + '\n{"key": "0.1", "ca')  # a kill tears the last line
    again = Machine()
    validated(again, path)
    assert path.read_text().splitlines()[: len(kept)] == kept
    alone = Machine()
    validated(alone, tmp_path / "other.jsonl")
    assert again.calls < alone.calls + 25


def test_times_of_another_machine_are_not_gone_on_with(tmp_path: Path):
    path = tmp_path / "times.jsonl"
    validated(Machine(), path)
    assert TimesFile(path, SETTINGS).seconds > 0
    assert TimesFile(path, {"machine": "another"}).seconds == 0


def test_a_damaged_line_is_one_sentence(tmp_path: Path):
    path = tmp_path / "times.jsonl"
    validated(Machine(), path)
    lines = path.read_text().splitlines()
    lines[2] = "{"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(UsageError, match=r"line 3: it is damaged; --fresh measures anew"):
        TimesFile(path, SETTINGS)


def test_a_full_disk_leaves_the_times_that_are_there(tmp_path: Path):
    path = tmp_path / "times.jsonl"
    validated(Machine(), path)
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        with pytest.raises(ShardbenchError):
            TimesFile(path, SETTINGS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before


def test_ranks_that_are_alike_are_measured_once(tmp_path: Path):
    machine = Machine()
    validated(machine, tmp_path / "alike.jsonl", *[(0.2, 0.2, 0.2)] * 3, seconds=1.0)
    other = Machine()
    validated(other, tmp_path / "other.jsonl", *PLANS[:3], seconds=1.0)
    assert machine.calls < other.calls / 2


def test_what_was_found_is_written_and_read_again(tmp_path: Path):
    found = validated(Machine(), tmp_path / "times.jsonl")
    written = to_builtins(found)
    (tmp_path / "found.json").write_text(json.dumps(written))
    assert read_validations(tmp_path) == [found]
    written["decisions"][0]["more"] = written["more"] = {"of another version": 1.0}
    (tmp_path / "found.json").write_text(json.dumps(written))
    assert read_validations(tmp_path) == [found]


def test_plans_within_the_noise_are_no_test_of_a_rank_correlation():
    measured = [MeasuredMs(1.0, 0.9, 1.1), MeasuredMs(1.05, 0.95, 1.15), MeasuredMs(2.0, 1.9, 2.1)]
    found = agreement("e", ["a", "b", "c"], [2.0, 1.0, 3.0], measured)
    assert (found.apart, found.spearman_apart) == (2, None)
    assert found.picks == "b"
    assert not found.is_top
    assert found.is_top_within_noise
    assert found.regret == pytest.approx(0.05)


def test_the_report_says_what_calibrating_is_worth(tmp_path: Path):
    found = validated(Machine(), tmp_path / "times.jsonl")
    right, wrong = found.agreements
    before = replace_struct(found, agreements=(wrong, right))
    first, *_ = findings([before])
    assert "faster when measured on 1 of 1 problem, slower on 0" in first.sentence
    assert not any(
        "calibrating" in each.sentence
        for each in findings([replace_struct(found, agreements=(wrong,))])
    )


def test_a_single_pair_has_a_wide_interval():
    assert MeasuredMs.of(Ratio(2.0, 0.0, math.inf, 1), 10).high == 200


def test_calibrating_hands_milliseconds_of_each_pass_to_the_fit(tmp_path: Path):
    machine = Machine(slowing=0.001)
    handed: list = []

    def fit(times, reference_ms: float) -> FittedMachine:
        handed.append(times)
        return FittedMachine({}, (), ())

    passes = ("forward", "backward")
    sweep = SweepOnBench(
        "made up",
        False,
        machine.work("reference", 0.1),
        works=[machine.work("a", 0.2, passes), machine.work("b", 0.05, passes)],
        fit=fit,
    )
    path = tmp_path / "times.jsonl"
    calibrate(sweep, Timing(path, SETTINGS, machine.clock))
    (times,) = handed
    assert set(times) == {"a", "b"}
    assert times["a"]["forward"] / times["b"]["backward"] == pytest.approx(4, rel=0.03)
    calls = machine.calls
    calibrate(sweep, Timing(path, SETTINGS, machine.clock))
    assert machine.calls <= calls + 1  # all is there; the reference is made ready


def test_plans_for_which_there_is_no_time_are_left_out_and_measured_later(tmp_path: Path):
    machine = Machine()
    path = tmp_path / "times.jsonl"
    found = validated(machine, path, seconds=1.0)
    assert [each.name for each in found.decisions] == ["plan 0", "plan 1", "plan 4"]
    assert "2 of 5 plans are left out" in found.notes[-1]
    again = validated(machine, path, seconds=600.0)
    assert len(again.decisions) == 5
    assert not again.notes


def test_a_device_that_works_beside_the_cpu_is_timed_by_wall(tmp_path: Path):
    machine = Machine(noise=0.0)

    def work(key: str, seconds: float) -> TimedWork:
        run = lambda: machine.clock.advance(seconds, cpu_s=0.0)  # noqa: E731
        return TimedWork(key, lambda: {"both": Prepared(run)})

    bench = replace(machine.bench(*PLANS), is_asynchronous=True, reference=work("reference", 0.1))
    candidates = [
        replace(
            each,
            ranks=[
                replace(rank, work=work(rank.work.key, float(rank.work.key))) for rank in each.ranks
            ],
        )
        for each in bench.candidates
    ]
    bench = replace(bench, candidates=candidates)
    timing = Timing(tmp_path / "t.jsonl", SETTINGS, machine.clock)
    found = validate("p", "uniform", bench, timing, 60.0)
    assert found.decisions[0].measured.value == pytest.approx(200)
