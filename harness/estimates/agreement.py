"""Compare estimated with measured times: rank correlation, the estimate's best plan, its error."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from harness.model.cell import Ratio

if TYPE_CHECKING:  # every command imports this module, and numpy would double the time of that
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

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
