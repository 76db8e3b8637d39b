"""Validate a family's time estimates: measure decisions on a problem, and compare their times.

A comparison has the rank correlation, the plan that the estimate picks, and its error.
"""

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from harness.contract.estimates import Candidate, CandidateSet, RankWork
from harness.estimates.timing import Stopwatch
from harness.measuring.environment import environment
from harness.measuring.timing.turns import long_lived_objects_left_alone
from harness.model.cell import Environment, Ratio

if TYPE_CHECKING:  # every command imports this module, and numpy would double the time of that
    import numpy as np
    import numpy.typing as npt

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
    end = stopwatch.clock.wall() + seconds - stopwatch.seconds
    measured = _time_once(candidates, stopwatch, end - _LATER * seconds)
    _time_slowest(measured.decisions, stopwatch, end, random.Random(seed))
    _confirm_slowest(measured.decisions, stopwatch)
    reference_ms = candidates.reference_ms or stopwatch.reference_ms
    decisions = [_found(decision, stopwatch, reference_ms) for decision in measured.decisions]
    names, times = [d.name for d in decisions], [d.measured for d in decisions]
    estimates = list(decisions[0].estimated_ms) if decisions else []
    agreements = [
        agreement(name, names, [d.estimated_ms[name] for d in decisions], times, seed)
        for name in estimates
    ]
    return Validation(
        problem=problem,
        device=stopwatch.device,
        inputs=inputs,
        notes=tuple(measured.notes),
        decisions=tuple(decisions),
        agreements=tuple(agreements),
        residuals=tuple(_residuals(decisions, estimates)),
        reference_ms=reference_ms,
        measured_s=stopwatch.seconds,
        environment=environment(seed),
    )


def _time_once(candidates: CandidateSet, stopwatch: Stopwatch, end: float) -> CandidateSet:
    """Time all ranks once, decision by decision; return the decisions measured before `end`."""
    number = len(candidates.decisions)
    # The first decisions tend to be the best. Alternating between both ends of the list makes the
    # decisions that are measured before the deadline a fair mix.
    turns = sorted(range(number), key=lambda turn: min(turn, number - 1 - turn))
    done: list[int] = []
    for turn in turns:
        works = [rank.work for rank in candidates.decisions[turn].ranks]
        is_measured = all(stopwatch.pairs(work.key) for work in works)
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
    for pairs in range(1 + _PAIRS_AT_ONCE, _MOST_PAIRS + 1, _PAIRS_AT_ONCE):
        slowest = {
            rank.work.key: rank.work
            for decision in decisions
            for rank in _maybe_slowest(decision, stopwatch)
        }
        waiting = [work for work in slowest.values() if stopwatch.pairs(work.key) < pairs]
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
            work = _maybe_slowest(decision, stopwatch)[0].work
            if stopwatch.pairs(work.key) >= _LEAST_PAIRS:
                break
            stopwatch.time(work, _LEAST_PAIRS)


def _maybe_slowest(candidate: Candidate, stopwatch: Stopwatch) -> list[RankWork]:
    """Return the ranks of a decision that may be its slowest rank, by falling time so far."""
    by_time = sorted(candidate.ranks, key=lambda rank: -_ratio(stopwatch, rank).value)
    distinct = list({rank.work.key: rank for rank in by_time}.values())
    least = _NEARLY_SLOWEST * _ratio(stopwatch, distinct[0]).value
    near = [rank for rank in distinct if _ratio(stopwatch, rank).value >= least]
    return near[:_MOST_OF_A_DECISION]


def _ratio(stopwatch: Stopwatch, rank: RankWork) -> Ratio:
    return stopwatch.ratios(rank.work.key)[_WHOLE]


def _found(candidate: Candidate, stopwatch: Stopwatch, reference_ms: float) -> DecisionFound:
    slowest = _maybe_slowest(candidate, stopwatch)[0]
    ratio = _ratio(stopwatch, slowest)
    ranks = candidate.ranks
    return DecisionFound(
        name=candidate.name,
        fingerprint=candidate.fingerprint,
        estimated_ms={
            name: max(rank.estimated_ms[name] for rank in ranks) for name in slowest.estimated_ms
        },
        measured=MeasuredMs.of(ratio, reference_ms),
        pairs=ratio.pairs,
        slowest_rank=ranks.index(slowest),
        modelled_ms=max(rank.modelled_ms for rank in ranks),
        ranks=tuple(
            RankFound(
                number,
                {**rank.estimated_ms},
                _ratio(stopwatch, rank).value * reference_ms,
                {**rank.facts},
            )
            for number, rank in enumerate(ranks)
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


def agreement(
    estimate: str,
    names: Sequence[str],
    estimated: Sequence[float],
    measured: Sequence[MeasuredMs],
    seed: int = 0,
) -> Agreement:
    """Compare estimated with measured milliseconds; the sequences have an entry per decision."""
    import numpy as np

    values = np.array([decision.value for decision in measured])
    guesses = np.array(estimated, dtype=np.float64)
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
        picks=names[pick],
        fastest=names[fastest],
        is_top=bool(guesses[fastest] == guesses[pick]),
        is_top_within_noise=bool(measured[pick].low <= measured[fastest].high),
        regret=float(values[pick] / values[fastest] - 1),
        error=float(np.expm1(np.abs(logs).mean())),
        scaled_error=float(np.expm1(np.abs(logs - np.median(logs)).mean())),
    )


def _spearman(one: "Floats", other: "Floats") -> "Floats":
    """Return the rank correlation of `one` and `other` along the last axis, 0 for constant rows.

    `scipy.stats.spearmanr` compares the columns of one matrix, not two matrices row by row.
    """
    import warnings

    import numpy as np
    from scipy.stats import ConstantInputWarning, pearsonr, rankdata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)
        found = pearsonr(rankdata(one, axis=-1), rankdata(other, axis=-1), axis=-1)
    return np.nan_to_num(np.asarray(found.statistic, np.float64))


def _interval(
    estimated: "Floats", measured: Sequence[MeasuredMs], seed: int
) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the rank correlation.

    Decisions are drawn with replacement; each measured time is drawn from a log-normal distribution
    with the spread of its interval.
    """
    import numpy as np

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
