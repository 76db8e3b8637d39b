"""Measures of an estimate: rank correlation, the plan it picks, and by how much it is off."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from harness.model.cell import Ratio

Floats = npt.NDArray[np.float64]

_RESAMPLED = 2000
_CONFIDENCE = 0.95
_NORMAL_99 = 2.576
_WIDEST = 10.0  # that an interval is written, as a factor


class Agreement(Struct, frozen=True):
    """How far an estimate agrees with measurements of the same decisions.

    Attributes:
        spearman: the rank correlation, with the ends of its 95 % interval.
        apart: how many decisions are left of those whose intervals do not overlap, and
            `spearman_apart` the rank correlation of these; None below three.
        picks: the name of the decision that the estimate calls fastest, `fastest` the measured one.
        is_top: whether they are the same, `is_top_within_noise` whether their intervals overlap.
        regret: how much slower the pick is than the fastest when measured, as a part.
        error: the geometric mean of the factor by which the estimate is off, less one.
        scaled_error: the same after the one factor for all that suits best: of the form alone.
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


class MeasuredMs(Struct, frozen=True):
    """Milliseconds with the ends of their 99 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, ratio: Ratio, reference_ms: float) -> "MeasuredMs":
        """Return a ratio to a reference as milliseconds."""
        low, high = max(ratio.low, ratio.value / _WIDEST), min(ratio.high, ratio.value * _WIDEST)
        return cls(*(reference_ms * each for each in (ratio.value, low, high)))


def agreement(
    estimate: str,
    names: Sequence[str],
    estimated: Sequence[float],
    measured: Sequence[MeasuredMs],
    seed: int = 0,
) -> Agreement:
    """Compare an estimate of some decisions with what was measured of them."""
    values = np.array([each.value for each in measured])
    guesses = np.array(estimated, dtype=np.float64)
    low, high = _interval(guesses, measured, seed)
    kept = _apart(measured)
    pick, fastest = int(guesses.argmin()), int(values.argmin())
    logs = np.log(guesses) - np.log(values)
    return Agreement(
        estimate=estimate,
        spearman=_spearman(guesses, values),
        spearman_low=low,
        spearman_high=high,
        apart=len(kept),
        spearman_apart=_spearman(guesses[kept], values[kept]) if len(kept) > 2 else None,
        picks=names[pick],
        fastest=names[fastest],
        is_top=bool(guesses[fastest] == guesses[pick]),
        is_top_within_noise=bool(measured[pick].low <= measured[fastest].high),
        regret=float(values[pick] / values[fastest] - 1),
        error=float(np.expm1(np.abs(logs).mean())),
        scaled_error=float(np.expm1(np.abs(logs - np.median(logs)).mean())),
    )


def _spearman(one: Floats, other: Floats) -> float:
    """Return the correlation of ranks, ties at their mean rank; 0 where all are equal."""
    from scipy.stats import rankdata

    ranks = rankdata(one), rankdata(other)
    if min(each.std() for each in ranks) == 0:
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def _interval(
    estimated: Floats,
    measured: Sequence[MeasuredMs],
    seed: int,
) -> tuple[float, float]:
    """Return the 95 % interval of the rank correlation.

    Decisions are drawn with replacement, and what was measured of each from its own interval.
    """
    rng = np.random.default_rng(seed)
    logs = np.log([each.value for each in measured])
    spread = np.log([each.high / each.low for each in measured]) / (2 * _NORMAL_99)
    drawn = []
    for _ in range(_RESAMPLED):
        chosen = rng.integers(0, len(logs), len(logs))
        noisy = rng.normal(logs[chosen], spread[chosen])
        drawn.append(_spearman(estimated[chosen], noisy))
    tail = 50 * (1 - _CONFIDENCE)
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return float(low), float(high)


def _apart(measured: Sequence[MeasuredMs]) -> list[int]:
    """Return decisions whose intervals do not overlap, from the fastest on."""
    kept: list[int] = []
    for number in sorted(range(len(measured)), key=lambda each: measured[each].value):
        if not kept or measured[number].low > measured[kept[-1]].high:
            kept.append(number)
    return kept
