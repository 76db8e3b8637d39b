"""Validate a family's time estimates: measure decisions on a problem, and compare their times.

A comparison has the rank correlation, the plan that the estimate picks, and its error.
"""

import math
import random
import statistics
import warnings
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from harness.contract.estimates import Candidate, CandidateSet, RankWork, TimedWork
from harness.estimates.timing import Stopwatch
from harness.measuring.environment import environment
from harness.measuring.timing.turns import objects_frozen
from harness.model.cell import Environment, Ratio

Floats = npt.NDArray[np.float64]

# A rank may be its decision's slowest if it takes at least this share of the slowest rank's time;
# at most three ranks of a decision are considered.
_NEARLY_SLOWEST, _MOST_OF_A_DECISION = 0.85, 3
_PAIRS_AT_ONCE = 4
_WHOLE = "both"  # the pass that is forward and backward together
_LEAST_PAIRS, _MOST_PAIRS = 5, 41
_FEWEST = 3  # this many decisions are measured even if the time is over
_LATER = 0.6  # the share of the seconds that is reserved for repeated measurements
_RESAMPLED = 2000
_PERCENTILES = (2.5, 97.5)
_NORMAL_99 = 2.576
_WIDEST = 10.0  # an interval is clipped to this factor above and below its value


class Agreement(Struct, frozen=True):
    """Agreement of an estimate with measurements of the same decisions.

    Attributes:
        estimate: the name of the estimate.
        spearman: Spearman's rank correlation, with 95 % interval `spearman_low` to `spearman_high`.
        apart: the number of decisions in a subset with disjoint intervals of measured time;
            `spearman_apart` is their rank correlation, None for fewer than three.
        picks: the decision with the lowest estimate; `fastest` has the lowest measured time.
        is_top: whether `fastest` has the lowest estimate, too.
        is_top_within_noise: whether the measured intervals of `picks` and `fastest` overlap.
        regret: the excess of the pick's measured time over the fastest's, as a fraction of it.
        error: the geometric mean of max(estimate/time, time/estimate), minus 1.
        scaled_error: `error` once the estimates are divided by the median of estimate/time.
    """

    estimate: str
    spearman: float
    spearman_low: float
    spearman_high: float
    apart: int
    spearman_apart: float | None
    picks: str
    fastest: str
    is_top: bool
    is_top_within_noise: bool
    regret: Annotated[float, Meta(ge=0)]
    error: float
    scaled_error: float

    @property
    def is_first(self) -> bool:
        """Whether the pick is the fastest decision, or its interval overlaps the fastest's."""
        return self.is_top or self.is_top_within_noise


class MeasuredMs(Struct, frozen=True):
    """A measured time in milliseconds, with the ends of its 99 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, ratio: Ratio, reference_ms: float) -> "MeasuredMs":
        """Convert a ratio to the reference into ms; clip the interval to a factor of 10."""
        low, high = max(ratio.low, ratio.value / _WIDEST), min(ratio.high, ratio.value * _WIDEST)
        return cls(*(reference_ms * factor for factor in (ratio.value, low, high)))


class MeasuredRank(Struct, frozen=True):
    """A rank's computation time in milliseconds: measured, and by name of the estimate."""

    rank: int
    estimated_ms: dict[str, float]
    measured_ms: float
    facts: dict[str, str]
    parts: tuple[dict[str, Any], ...] = ()


class MeasuredDecision(Struct, frozen=True):
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
    ranks: tuple[MeasuredRank, ...]


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
    decisions: tuple[MeasuredDecision, ...]
    agreements: tuple[Agreement, ...]
    residuals: tuple[Residual, ...]
    reference_ms: float
    measured_s: float
    environment: Environment


@objects_frozen()
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
    end = stopwatch.clock.wall() + seconds - stopwatch.seconds
    timed = _time_once(candidates.decisions, stopwatch, end - _LATER * seconds)
    _time_slowest(timed, stopwatch, end, random.Random(seed))
    notes, number = [*candidates.notes], len(candidates.decisions)
    if len(timed) < number:
        notes.append(
            f"{number - len(timed)} of {number} plans are left out for lack of time; the same "
            "command with more --seconds goes on with them."
        )
    reference_ms = candidates.reference_ms or stopwatch.reference_ms
    decisions = [_measured(decision, stopwatch, reference_ms) for decision in timed]
    estimates = list(decisions[0].estimated_ms) if decisions else []
    return Validation(
        problem=problem,
        device=stopwatch.device,
        inputs=inputs,
        notes=tuple(notes),
        decisions=tuple(decisions),
        agreements=tuple(agreement(name, decisions, seed) for name in estimates),
        residuals=tuple(residual for name in estimates for residual in residuals(name, decisions)),
        reference_ms=reference_ms,
        measured_s=stopwatch.seconds,
        environment=environment(seed),
    )


def _time_once(decisions: Sequence[Candidate], stopwatch: Stopwatch, end: float) -> list[Candidate]:
    """Time all ranks once, decision by decision; return the decisions measured before `end`."""
    number = len(decisions)
    # The first decisions tend to be the best. Alternating between both ends of the list makes the
    # decisions that are measured before the deadline a fair mix.
    done: list[int] = []
    for turn in sorted(range(number), key=lambda turn: min(turn, number - 1 - turn)):
        works = [rank.work for rank in decisions[turn].ranks]
        is_measured = all(stopwatch.pairs(work.key) for work in works)
        if not is_measured and stopwatch.clock.wall() > end and len(done) >= _FEWEST:
            continue
        stopwatch.on_progress("plans, each rank once", len(done), number)
        for work in works:
            stopwatch.time(work, 1)
        done.append(turn)
    return [decisions[turn] for turn in sorted(done)]


def _time_slowest(
    decisions: Sequence[Candidate], stopwatch: Stopwatch, end: float, rng: random.Random
) -> None:
    """Time the ranks that may be their decision's slowest, in rounds over all decisions."""

    def waiting(pairs: int) -> list[TimedWork]:
        works = (r.work for decision in decisions for r in _maybe_slowest(decision, stopwatch))
        return list({w.key: w for w in works if stopwatch.pairs(w.key) < pairs}.values())

    for pairs in range(_LEAST_PAIRS, _MOST_PAIRS + 1, _PAIRS_AT_ONCE):
        works = waiting(pairs)
        rng.shuffle(works)
        for number, work in enumerate(works):
            if pairs > _LEAST_PAIRS and stopwatch.clock.wall() > end:
                break
            current = f"slowest ranks, round {pairs // _PAIRS_AT_ONCE}"
            stopwatch.on_progress(current, number, len(works))
            stopwatch.time(work, pairs)
    # By its further times, another rank may have become the slowest.
    while works := waiting(_LEAST_PAIRS):
        for work in works:
            stopwatch.time(work, _LEAST_PAIRS)


def _maybe_slowest(candidate: Candidate, stopwatch: Stopwatch) -> list[RankWork]:
    """Return the ranks of a decision that may be its slowest rank, by falling time so far."""
    ratios = {rank.work.key: _ratio(stopwatch, rank).value for rank in candidate.ranks}
    distinct = {rank.work.key: rank for rank in reversed(candidate.ranks)}.values()
    by_time = sorted(distinct, key=lambda rank: -ratios[rank.work.key])
    least = _NEARLY_SLOWEST * max(ratios.values())
    near = [rank for rank in by_time if ratios[rank.work.key] >= least]
    return near[:_MOST_OF_A_DECISION]


def _ratio(stopwatch: Stopwatch, rank: RankWork) -> Ratio:
    return stopwatch.ratios(rank.work.key)[_WHOLE]


def _measured(candidate: Candidate, stopwatch: Stopwatch, reference_ms: float) -> MeasuredDecision:
    slowest = _maybe_slowest(candidate, stopwatch)[0]
    ratio = _ratio(stopwatch, slowest)
    ranks = []
    for number, rank in enumerate(candidate.ranks):
        measured_ms = _ratio(stopwatch, rank).value * reference_ms
        parts = tuple(map(dict, rank.parts))
        ranks.append(MeasuredRank(number, rank.estimated_ms, measured_ms, rank.facts, parts))
    return MeasuredDecision(
        name=candidate.name,
        fingerprint=candidate.fingerprint,
        estimated_ms={
            name: max(rank.estimated_ms[name] for rank in ranks) for name in slowest.estimated_ms
        },
        measured=MeasuredMs.of(ratio, reference_ms),
        pairs=ratio.pairs,
        slowest_rank=candidate.ranks.index(slowest),
        modelled_ms=max(rank.modelled_ms for rank in candidate.ranks),
        ranks=tuple(ranks),
    )


def residuals(estimate: str, decisions: Sequence[MeasuredDecision]) -> list[Residual]:
    """Return the residuals of an estimate, for each value of each property of the ranks."""
    logs: list[float] = []
    groups: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for rank in (rank for decision in decisions for rank in decision.ranks):
        if rank.measured_ms > 0 and rank.estimated_ms[estimate] > 0:
            logs.append(math.log(rank.estimated_ms[estimate] / rank.measured_ms))
            for fact, value in rank.facts.items():
                groups[fact][value].append(logs[-1])
    return [
        Residual(
            estimate,
            fact,
            value,
            len(of_value),
            math.exp(statistics.fmean(of_value) - statistics.fmean(logs)),
        )
        for fact, by_value in groups.items()
        for value, of_value in sorted(by_value.items(), key=lambda item: _order(item[0]))
    ]


def _order(value: str) -> tuple[float, str]:
    """Return a sort key that puts texts with a leading number first, by that number."""
    try:
        return float(value.split(" ")[0]), value
    except ValueError:
        return math.inf, value


def agreement(estimate: str, decisions: Sequence[MeasuredDecision], seed: int = 0) -> Agreement:
    """Compare the estimated with the measured milliseconds of decisions."""
    measured = [decision.measured for decision in decisions]
    values = np.array([time.value for time in measured])
    guesses = np.array([decision.estimated_ms[estimate] for decision in decisions])
    low, high = _interval(guesses, measured, seed)
    kept = _apart(measured)
    pick, fastest = int(guesses.argmin()), int(values.argmin())
    logs = np.log(guesses) - np.log(values)
    return Agreement(
        estimate=estimate,
        spearman=float(_spearman(guesses, values)),
        spearman_low=low,
        spearman_high=high,
        apart=len(kept),
        spearman_apart=float(_spearman(guesses[kept], values[kept])) if len(kept) > 2 else None,
        picks=decisions[pick].name,
        fastest=decisions[fastest].name,
        is_top=bool(guesses[fastest] == guesses[pick]),
        is_top_within_noise=bool(measured[pick].low <= measured[fastest].high),
        regret=float(values[pick] / values[fastest] - 1),
        error=float(np.expm1(np.abs(logs).mean())),
        scaled_error=float(np.expm1(np.abs(logs - np.median(logs)).mean())),
    )


def _spearman(one: Floats, other: Floats) -> Floats:
    """Return the rank correlation of `one` and `other` along the last axis, 0 for constant rows.

    `scipy.stats.spearmanr` compares the columns of one matrix, not two matrices row by row.
    """
    # Imported here, because the report reads validations, and scipy.stats takes a second.
    from scipy.stats import ConstantInputWarning, pearsonr, rankdata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)
        correlation = pearsonr(rankdata(one, axis=-1), rankdata(other, axis=-1), axis=-1)
    return np.nan_to_num(np.asarray(correlation.statistic, np.float64))


def _interval(estimated: Floats, measured: Sequence[MeasuredMs], seed: int) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the rank correlation.

    Decisions are drawn with replacement; each measured time is drawn from a log-normal distribution
    with the spread of its interval.
    """
    rng = np.random.default_rng(seed)
    logs = np.log([decision.value for decision in measured])
    spread = np.log([decision.high / decision.low for decision in measured]) / (2 * _NORMAL_99)
    chosen = rng.integers(0, len(logs), (_RESAMPLED, len(logs)))
    drawn = _spearman(estimated[chosen], rng.normal(logs[chosen], spread[chosen]))
    low, high = np.percentile(drawn, _PERCENTILES)
    return float(low), float(high)


def _apart(measured: Sequence[MeasuredMs]) -> list[int]:
    """Return indices of decisions with disjoint intervals, chosen greedily from the fastest on."""
    kept: list[int] = []
    for number in sorted(range(len(measured)), key=lambda number: measured[number].value):
        if not kept or measured[number].low > measured[kept[-1]].high:
            kept.append(number)
    return kept
