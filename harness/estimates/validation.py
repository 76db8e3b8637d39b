"""Decisions on one problem, each with what is estimated of it and what was measured."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from msgspec import Struct

from harness.contract.abilities.validation import Candidate, CandidatesOnBench, RankWork, TimedWork
from harness.estimates.statistics import Agreement, MeasuredMs, agreement
from harness.estimates.times import Stopwatch, TimesFile, Timing, Told
from harness.measuring.environment import environment
from harness.measuring.garbage import long_lived_objects_left_alone
from harness.model.cell import Environment

# A rank that is this near the slowest one when it was timed once may be the slowest.
_NEARLY_SLOWEST, _MOST_OF_A_DECISION = 0.85, 3
_PAIRS_AT_ONCE = 4
_WHOLE = "both"  # passes of a rank
_LEAST_PAIRS, _MOST_PAIRS = 5, 41
_FEWEST = 3  # decisions; they are measured whatever it takes
_LATER = 0.6  # the part of the seconds for times after the first ones


class RankFound(Struct, frozen=True):
    """A rank: what it computes by each estimate and measured, in milliseconds."""

    rank: int
    estimated_ms: dict[str, float]
    measured_ms: float
    facts: dict[str, str]


class DecisionFound(Struct, frozen=True):
    """A decision: the slowest rank by each estimate and measured, in milliseconds.

    Both are of computing alone; `modelled_ms` is what its slowest rank sends and receives, by the
    estimate.
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
    """By which factor an estimate is off for ranks of one kind, as a geometric mean.

    Above 1 it says more than was measured. The factor that all ranks have in common is taken out.
    """

    estimate: str
    fact: str
    value: str
    ranks: int
    factor: float


class Validation(Struct, frozen=True):
    """What came of validating the estimates of a problem."""

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
    bench: CandidatesOnBench,
    timing: Timing,
    seconds: float,
    seed: int = 0,
) -> Validation:
    """Measure the ranks of decisions, those that may be slowest many times, and compare.

    All ranks are timed once, each right behind the reference. Then the slowest of each decision
    are timed in turns across the decisions, until the seconds are spent.
    """
    file, clock, told = timing.file(), timing.clock, timing.told
    until = clock.wall() + seconds - file.seconds
    stopwatch = Stopwatch(bench, clock, file)
    rng = random.Random(seed)
    bench = _time_once(
        bench, file, stopwatch, lambda: clock.wall() > until - _LATER * seconds, told
    )
    _time_slowest(bench, file, stopwatch, lambda: clock.wall() > until, rng, told)
    _confirm_slowest(bench, file, stopwatch, told)
    return _compared(problem, inputs, bench, file, seed)


def _time_once(
    bench: CandidatesOnBench,
    file: TimesFile,
    stopwatch: Stopwatch,
    is_over: Callable[[], bool],
    told: Told,
) -> CandidatesOnBench:
    """Time all ranks once, decision by decision; return the decisions that there was time for."""
    number = len(bench.candidates)
    # From both ends, since what is made first tends to be best: what is left is as mixed as all.
    turns = [
        each for pair in zip(range(number), reversed(range(number)), strict=True) for each in pair
    ]
    done: list[int] = []
    for turn in dict.fromkeys(turns):
        works = {rank.work.key: rank.work for rank in bench.candidates[turn].ranks}
        waiting = [work for work in works.values() if not _pairs(file, work)]
        if waiting and is_over() and len(done) >= _FEWEST:
            continue
        told("plans, each rank once", len(done), number)
        for work in waiting:
            _time(stopwatch, work, 1)
        done.append(turn)
    left = number - len(done)
    notes = [*bench.notes]
    if left:
        notes.append(
            f"{left} of {number} plans are left out, for which there was no time: the same command "
            "with more --seconds goes on with them."
        )
    return replace(bench, candidates=[bench.candidates[each] for each in sorted(done)], notes=notes)


def _pairs(file: TimesFile, work: TimedWork) -> int:
    return file.count(work.key, _WHOLE)


def _time(stopwatch: Stopwatch, work: TimedWork, pairs: int) -> None:
    stopwatch.time(work.key, stopwatch.prepare(work), pairs)


def _time_slowest(
    bench: CandidatesOnBench,
    file: TimesFile,
    stopwatch: Stopwatch,
    is_over: Callable[[], bool],
    rng: random.Random,
    told: Told,
) -> None:
    """Time the ranks that may be the slowest of their decisions, in turns, in rounds."""
    for pairs in range(1 + _PAIRS_AT_ONCE, _MOST_PAIRS + 1, _PAIRS_AT_ONCE):
        slowest = {
            rank.work.key: rank.work
            for each in bench.candidates
            for rank in _maybe_slowest(each, file)
        }
        waiting = [work for work in slowest.values() if _pairs(file, work) < pairs]
        rng.shuffle(waiting)
        for number, work in enumerate(waiting):
            if pairs > _LEAST_PAIRS and is_over():
                return
            told(f"slowest ranks, round {pairs // _PAIRS_AT_ONCE}", number, len(waiting))
            _time(stopwatch, work, pairs)


def _confirm_slowest(
    bench: CandidatesOnBench, file: TimesFile, stopwatch: Stopwatch, told: Told
) -> None:
    """Time the slowest rank of each decision often enough, where another one turned out to be."""
    for number, candidate in enumerate(bench.candidates):
        told("slowest ranks, once more", number, len(bench.candidates))
        while _pairs(file, work := _maybe_slowest(candidate, file)[0].work) < _LEAST_PAIRS:
            _time(stopwatch, work, _LEAST_PAIRS)


def _maybe_slowest(candidate: Candidate, file: TimesFile) -> list[RankWork]:
    """Return the ranks of a decision that may be its slowest one, the slowest first."""
    by_time = sorted(candidate.ranks, key=lambda rank: -_ratio(file, rank))
    distinct = list({rank.work.key: rank for rank in by_time}.values())
    least = _NEARLY_SLOWEST * _ratio(file, distinct[0])
    return [rank for rank in distinct if _ratio(file, rank) >= least][:_MOST_OF_A_DECISION]


def _ratio(file: TimesFile, rank: RankWork) -> float:
    return file.ratio(rank.work.key, _WHOLE).value


def _compared(
    problem: str,
    inputs: str,
    bench: CandidatesOnBench,
    file: TimesFile,
    seed: int,
) -> Validation:
    reference_ms = bench.reference_ms or file.reference_ms
    decisions = tuple(_found(each, file, reference_ms) for each in bench.candidates)
    names = [each.name for each in decisions]
    measured = [each.measured for each in decisions]
    estimates = list(decisions[0].estimated_ms) if decisions else []
    agreements = tuple(
        agreement(name, names, [each.estimated_ms[name] for each in decisions], measured, seed)
        for name in estimates
    )
    return Validation(
        problem=problem,
        device=bench.device,
        inputs=inputs,
        notes=tuple(bench.notes),
        decisions=decisions,
        agreements=agreements,
        residuals=tuple(_residuals(decisions, estimates)),
        reference_ms=reference_ms,
        measured_s=file.seconds,
        environment=environment(seed),
    )


def _found(candidate: Candidate, file: TimesFile, reference_ms: float) -> DecisionFound:
    slowest = _maybe_slowest(candidate, file)[0]
    ratio = file.ratio(slowest.work.key, _WHOLE)
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
                _ratio(file, rank) * reference_ms,
                dict(rank.facts),
            )
            for number, rank in enumerate(candidate.ranks)
        ),
    )


def _residuals(decisions: Sequence[DecisionFound], estimates: Sequence[str]) -> Iterator[Residual]:
    """Yield by which factor each estimate is off, by each fact of the ranks."""
    ranks = [rank for each in decisions for rank in each.ranks if rank.measured_ms > 0]
    facts = dict.fromkeys(name for rank in ranks for name in rank.facts)
    for estimate in estimates:
        off = [
            (rank, math.log(rank.estimated_ms[estimate] / rank.measured_ms))
            for rank in ranks
            if rank.estimated_ms[estimate] > 0
        ]
        if not off:
            continue
        common = sum(each for _, each in off) / len(off)
        for fact in facts:
            groups: dict[str, list[float]] = {}
            for rank, each in off:
                groups.setdefault(rank.facts.get(fact, ""), []).append(each - common)
            for value, logs in sorted(groups.items(), key=lambda item: _order(item[0])):
                factor = math.exp(sum(logs) / len(logs))
                yield Residual(estimate, fact, value, len(logs), factor)


def _order(value: str) -> tuple[float, str]:
    """Sort numbers by value, before other texts."""
    try:
        return float(value.split(" ")[0]), value
    except ValueError:
        return math.inf, value
