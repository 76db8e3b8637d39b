"""Validate a family's time estimates: measure several decisions on one problem, and compare."""

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from msgspec import Struct

from harness.contract.abilities.estimates import Candidate, CandidateSet, RankWork
from harness.estimates.agreement import Agreement, MeasuredMs, agreement
from harness.estimates.kept_times import Stopwatch, TimesFile
from harness.measuring.environment import environment
from harness.measuring.timing.turns import long_lived_objects_left_alone
from harness.model.cell import Environment, Ratio

# A rank may be its decision's slowest if it takes at least this share of the slowest rank's time;
# at most three ranks of a decision are considered.
_NEARLY_SLOWEST, _MOST_OF_A_DECISION = 0.85, 3
_PAIRS_AT_ONCE = 4
_WHOLE = "both"  # the pass that is forward and backward together
_LEAST_PAIRS, _MOST_PAIRS = 5, 41
_FEWEST = 3  # this many decisions are measured even if the time is over
_LATER = 0.6  # the share of the seconds that is reserved for repeated measurements


class RankFound(Struct, frozen=True):
    """A rank's computation time in milliseconds: measured, and by name of the estimate."""

    rank: int
    estimated_ms: dict[str, float]
    measured_ms: float
    facts: dict[str, str]


class DecisionFound(Struct, frozen=True):
    """The computation time of a decision's slowest rank in milliseconds, estimated and measured.

    `modelled_ms` is the largest estimated communication time of a rank, which is not measured.
    """

    name: str
    fingerprint: str
    estimated_ms: dict[str, float]
    measured: MeasuredMs
    pairs: int
    slowest_rank: int
    modelled_ms: float
    ranks: tuple[RankFound, ...]


class Residual(Struct, frozen=True):
    """The geometric mean of estimate over measurement, for ranks with one value of one property.

    It is relative to the mean over all ranks: above 1, the estimate is too high for these ranks.
    `fact` names the property, such as `kernel`, and `ranks` is the number of ranks.
    """

    estimate: str
    fact: str
    value: str
    ranks: int
    factor: float


class Validation(Struct, frozen=True):
    """The results of a validation on one problem; see `validate`."""

    problem: str
    device: str
    inputs: str
    notes: tuple[str, ...]
    decisions: tuple[DecisionFound, ...]
    agreements: tuple[Agreement, ...]
    residuals: tuple[Residual, ...]
    reference_ms: float
    measured_s: float
    environment: Environment


@long_lived_objects_left_alone()
def validate(
    problem: str,
    inputs: str,
    candidates: CandidateSet,
    stopwatch: Stopwatch,
    seconds: float,
    seed: int = 0,
) -> Validation:
    """Measure the ranks of candidate decisions, and compare their times with the estimates.

    All ranks are timed once. Then the ranks that may be the slowest of their decision are timed
    repeatedly, in random order across decisions, until `seconds` are spent.
    """
    end = stopwatch.clock.wall() + seconds - stopwatch.times.seconds
    measured = _time_once(candidates, stopwatch, end - _LATER * seconds)
    _time_slowest(measured.decisions, stopwatch, end, random.Random(seed))
    _confirm_slowest(measured.decisions, stopwatch)
    return _compared(problem, inputs, measured, stopwatch, seed)


def _time_once(candidates: CandidateSet, stopwatch: Stopwatch, end: float) -> CandidateSet:
    """Time all ranks once, decision by decision; return the decisions measured before `end`."""
    number = len(candidates.decisions)
    # The first decisions tend to be the best. Alternating between both ends of the list makes the
    # decisions that are measured before the deadline a fair mix.
    turns = sorted(range(number), key=lambda turn: min(turn, number - 1 - turn))
    done: list[int] = []
    for turn in turns:
        works = [rank.work for rank in candidates.decisions[turn].ranks]
        is_measured = all(stopwatch.times.pairs(work.key) for work in works)
        if not is_measured and stopwatch.clock.wall() > end and len(done) >= _FEWEST:
            continue
        stopwatch.on_progress("plans, each rank once", len(done), number)
        for work in works:
            stopwatch.time(work, 1)
        done.append(turn)
    notes = [*candidates.notes]
    if left := number - len(done):
        notes.append(
            f"{left} of {number} plans are left out for lack of time; the same command with more "
            "--seconds goes on with them."
        )
    decisions = [candidates.decisions[turn] for turn in sorted(done)]
    return replace(candidates, decisions=decisions, notes=notes)


def _time_slowest(
    decisions: Sequence[Candidate], stopwatch: Stopwatch, end: float, rng: random.Random
) -> None:
    """Time the ranks that may be their decision's slowest, in rounds over all decisions."""
    times = stopwatch.times
    for pairs in range(1 + _PAIRS_AT_ONCE, _MOST_PAIRS + 1, _PAIRS_AT_ONCE):
        slowest = {
            rank.work.key: rank.work
            for decision in decisions
            for rank in _maybe_slowest(decision, times)
        }
        waiting = [work for work in slowest.values() if times.pairs(work.key) < pairs]
        rng.shuffle(waiting)
        for number, work in enumerate(waiting):
            if pairs > _LEAST_PAIRS and stopwatch.clock.wall() > end:
                return
            current = f"slowest ranks, round {pairs // _PAIRS_AT_ONCE}"
            stopwatch.on_progress(current, number, len(waiting))
            stopwatch.time(work, pairs)


def _confirm_slowest(decisions: Sequence[Candidate], stopwatch: Stopwatch) -> None:
    """Time each decision's slowest rank at least 5 times, also if another rank becomes it."""
    for number, decision in enumerate(decisions):
        stopwatch.on_progress("slowest ranks, once more", number, len(decisions))
        while True:
            work = _maybe_slowest(decision, stopwatch.times)[0].work
            if stopwatch.times.pairs(work.key) >= _LEAST_PAIRS:
                break
            stopwatch.time(work, _LEAST_PAIRS)


def _maybe_slowest(candidate: Candidate, times: TimesFile) -> list[RankWork]:
    """Return the ranks of a decision that may be its slowest rank, by falling time so far."""
    by_time = sorted(candidate.ranks, key=lambda rank: -_ratio(times, rank).value)
    distinct = list({rank.work.key: rank for rank in by_time}.values())
    least = _NEARLY_SLOWEST * _ratio(times, distinct[0]).value
    near = [rank for rank in distinct if _ratio(times, rank).value >= least]
    return near[:_MOST_OF_A_DECISION]


def _ratio(times: TimesFile, rank: RankWork) -> Ratio:
    return times.ratios(rank.work.key)[_WHOLE]


def _compared(
    problem: str, inputs: str, candidates: CandidateSet, stopwatch: Stopwatch, seed: int
) -> Validation:
    times = stopwatch.times
    reference_ms = candidates.reference_ms or times.reference_ms
    decisions = tuple(_found(decision, times, reference_ms) for decision in candidates.decisions)
    names = [decision.name for decision in decisions]
    measured = [decision.measured for decision in decisions]
    estimates = list(decisions[0].estimated_ms) if decisions else []
    agreements = tuple(
        agreement(
            estimate,
            names,
            [decision.estimated_ms[estimate] for decision in decisions],
            measured,
            seed,
        )
        for estimate in estimates
    )
    return Validation(
        problem=problem,
        device=stopwatch.device,
        inputs=inputs,
        notes=tuple(candidates.notes),
        decisions=decisions,
        agreements=agreements,
        residuals=tuple(_residuals(decisions, estimates)),
        reference_ms=reference_ms,
        measured_s=times.seconds,
        environment=environment(seed),
    )


def _found(candidate: Candidate, times: TimesFile, reference_ms: float) -> DecisionFound:
    slowest = _maybe_slowest(candidate, times)[0]
    ratio = _ratio(times, slowest)
    return DecisionFound(
        name=candidate.name,
        fingerprint=candidate.fingerprint,
        estimated_ms={
            name: max(rank.estimated_ms[name] for rank in candidate.ranks)
            for name in slowest.estimated_ms
        },
        measured=MeasuredMs.of(ratio, reference_ms),
        pairs=ratio.pairs,
        slowest_rank=candidate.ranks.index(slowest),
        modelled_ms=max(rank.modelled_ms for rank in candidate.ranks),
        ranks=tuple(
            RankFound(
                number,
                dict(rank.estimated_ms),
                _ratio(times, rank).value * reference_ms,
                dict(rank.facts),
            )
            for number, rank in enumerate(candidate.ranks)
        ),
    )


def _residuals(decisions: Sequence[DecisionFound], estimates: Sequence[str]) -> Iterator[Residual]:
    """Yield the residuals of each estimate, for each value of each property of the ranks."""
    ranks = [rank for decision in decisions for rank in decision.ranks if rank.measured_ms > 0]
    for estimate in estimates:
        estimated = [rank for rank in ranks if rank.estimated_ms[estimate] > 0]
        logs = [math.log(rank.estimated_ms[estimate] / rank.measured_ms) for rank in estimated]
        common = statistics.fmean(logs) if logs else 0.0
        groups: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for rank, log in zip(estimated, logs, strict=True):
            for fact, value in rank.facts.items():
                groups[fact][value].append(log - common)
        for fact, by_value in groups.items():
            for value in sorted(by_value, key=_order):
                factor = math.exp(statistics.fmean(by_value[value]))
                yield Residual(estimate, fact, value, len(by_value[value]), factor)


def _order(value: str) -> tuple[float, str]:
    """Return a sort key that puts texts with a leading number first, by that number."""
    try:
        return float(value.split(" ")[0]), value
    except ValueError:
        return math.inf, value
