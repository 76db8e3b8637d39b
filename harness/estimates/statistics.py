"""Measures of an estimate: rank correlation, the plan it picks, and by how much it is off."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from harness.model.cell import Ratio

if TYPE_CHECKING:  # every command imports this module, and numpy would double what that takes
    import numpy as np
    import numpy.typing as npt

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

    @property
    def is_first(self) -> bool:
        """Whether the pick is the fastest, or cannot be told from it."""
        return self.is_top or self.is_top_within_noise


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
    import numpy as np

    values = np.array([each.value for each in measured])
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
    """Return the rank correlation of each row, ties at their mean rank; 0 where all are equal."""
    import numpy as np
    from scipy.stats import rankdata

    ranks = (rankdata(each, axis=-1) for each in (one, other))
    mine, theirs = (each - each.mean(axis=-1, keepdims=True) for each in ranks)
    scale = np.sqrt((mine**2).sum(axis=-1) * (theirs**2).sum(axis=-1))
    found = np.divide(
        (mine * theirs).sum(axis=-1), scale, out=np.zeros_like(scale), where=scale > 0
    )
    clipped: Floats = np.clip(found, -1, 1)
    return clipped


def _interval(
    estimated: "Floats",
    measured: Sequence[MeasuredMs],
    seed: int,
) -> tuple[float, float]:
    """Return the 95 % interval of the rank correlation.

    Decisions are drawn with replacement, and what was measured of each from its own interval.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    logs = np.log([each.value for each in measured])
    spread = np.log([each.high / each.low for each in measured]) / (2 * _NORMAL_99)
    chosen = rng.integers(0, len(logs), (_RESAMPLED, len(logs)))
    drawn = _spearman(estimated[chosen], rng.normal(logs[chosen], spread[chosen]))
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
