"""Least squares on logarithms: the coefficients of terms that are never negative."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
_RESAMPLED = 100


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients with the ends of their intervals, and the sum of squares that is left."""

    values: Floats
    low: Floats
    high: Floats
    left: float


def fit(terms: Floats, times: Floats, resampled: int = _RESAMPLED, seed: int = 0) -> Fit:
    """Fit `times` (P,) by coefficients of `terms` (P, K): the logarithms differ least in squares.

    The intervals are percentiles of fits to points drawn with replacement (Efron 1979).
    """
    values, left = _solve(terms, times, None)
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(resampled):
        chosen = rng.integers(0, len(times), len(times))
        drawn.append(_solve(terms[chosen], times[chosen], values)[0])
    if not drawn:
        return Fit(values, values, values, left)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(drawn, [tail, 100 - tail], axis=0)
    return Fit(values, np.minimum(low, values), np.maximum(high, values), left)


def _solve(terms: Floats, times: Floats, near: Floats | None) -> tuple[Floats, float]:
    """Return the coefficients and the sum of squares, from a start near others where given."""
    scale = terms.mean(0)
    scale[scale == 0] = 1.0
    scaled, logs = terms / scale, np.log(times)
    count = terms.shape[1]
    if near is None:
        start = np.full(count, np.exp(np.log(times / scaled.sum(1)).mean()))
    else:
        start = np.maximum(near * scale, 1e-9 * (near * scale).max())
    least = 1e-12 * np.exp(logs.min())

    def residuals(coefficients: Floats) -> Floats:
        return np.asarray(np.log(scaled @ coefficients + least) - logs)

    def slopes(coefficients: Floats) -> Floats:
        return np.asarray(scaled / (scaled @ coefficients + least)[:, None])

    found = least_squares(residuals, start, jac=slopes, bounds=(0.0, np.inf), x_scale="jac")
    return found.x / scale, 2 * float(found.cost)


def geometric_mean_error(
    estimated: Sequence[float] | Floats, times: Sequence[float] | Floats
) -> float:
    """Return by how much estimates are off on average, as a factor less one, up or down alike."""
    logs = np.log(np.asarray(estimated)) - np.log(np.asarray(times))
    return float(np.expm1(np.abs(logs).mean()))
