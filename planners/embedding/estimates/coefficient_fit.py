"""Fits coefficients to measured times, and computes the fit's errors on other shard sizes."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from harness.contract import FitError, FittedFigure, FittedMachine, UsageError
from planners.embedding.coefficients import (
    BACKWARD,
    DEVICE_BW,
    WEIGHTED_BACKWARD,
    write_coefficients,
)
from planners.embedding.estimates.calibration import (
    LAUNCH,
    PASSES,
    REFERENCE_MS,
    START,
    TERMS,
    Caches,
    Calibration,
    coefficient_name,
    terms_of,
    torchrec_bytes,
)
from planners.embedding.estimates.design import (
    FITTED,
    FITTED_PURPOSES,
    FITTED_WEIGHTED,
    PURPOSES,
    DesignPoint,
)
from planners.embedding.estimates.lookup_distributions import Floats, LookupDistribution, Zipf
from planners.embedding.estimates.shard_work import kernels_of

Times = Mapping[str, Mapping[str, float]]
"""Milliseconds by the key of a point, and by pass."""

_RESAMPLED = 100
_PERCENTILES = (2.5, 97.5)
_NEAR = (0.0, *(2.0**power for power in range(18, 23)))
_FAR = tuple(2.0 ** (power / 2) for power in range(42, 55))
_FEWEST = 12
_MOSTLY_LAUNCH = 3.0  # shorter times, as multiples of the least time, are mostly launch
_LEAST_COLUMN = 10_000_000  # smallest value of column hbm_bw; below, only `coefficients` has it


def fit_machine(
    points: Sequence[DesignPoint],
    times: Times,
    distribution: LookupDistribution,
    reference_ms: float = 0,
) -> FittedMachine:
    """Fit the coefficients of each kernel; raises UsageError for too few points."""
    figures: list[FittedFigure] = []
    if reference_ms:
        figures.append(_given(REFERENCE_MS, reference_ms, "ms"))
    if isinstance(distribution, Zipf):
        figures.append(_given("indices.zipf", distribution.exponent, ""))
    elif distribution.name == "reuse":
        figures.append(_given("indices.reuse", 1.0, ""))
    points = [point for point in points if point.key in times]
    caches: Caches | None = None
    for kernel in dict.fromkeys(point.shards[0].kernel for point in points):
        of_kernel = [point for point in points if point.shards[0].kernel == kernel]
        if (count := len(_for(of_kernel, FITTED))) < _FEWEST:
            raise UsageError(
                f"Kernel '{kernel}' was measured at {count} points; a fit needs {_FEWEST}."
            )
        if caches is None:  # cache sizes are fitted to the first kernel only
            caches = _best_caches(_for(of_kernel, FITTED), times, distribution)
            figures.append(_given("cache.near", caches.near, "bytes"))
            figures.append(_given("cache.far", caches.far, "bytes"))
            figures += _of_topology(of_kernel, times)
        fitted = _for(of_kernel, *FITTED_PURPOSES)
        terms = _terms(fitted, caches, distribution)
        for passed in PASSES:
            of_pass = fit(terms, _ms(fitted, times, passed))
            figures += [
                of_pass.figure(coefficient_name(kernel, passed, term), "ms", number)
                for number, term in enumerate((*TERMS, LAUNCH, START))
            ]
    calibration = Calibration({figure.name: figure.value for figure in figures})
    columns = {"coefficients": write_coefficients(calibration.values)}
    bandwidth = calibration.values[DEVICE_BW]
    if bandwidth >= _LEAST_COLUMN:
        columns["hbm_bw"] = f"{bandwidth:.6g}"
    return FittedMachine(columns, figures, _errors(points, times, calibration))


def _for(points: Sequence[DesignPoint], *purposes: str) -> list[DesignPoint]:
    return [point for point in points if point.purpose in purposes]


def _ms(points: Sequence[DesignPoint], times: Times, passed: str) -> Floats:
    return np.array([times[point.key][passed] for point in points])


def _best_caches(
    points: Sequence[DesignPoint], times: Times, distribution: LookupDistribution
) -> Caches:
    """Return the cache sizes with the smallest sum of squared residuals."""

    def remaining(sizes: Caches) -> float:
        terms = _terms(points, sizes, distribution)
        passes = (_ms(points, times, passed) for passed in PASSES)
        return sum(fit(terms, milliseconds, resampled=0).squares for milliseconds in passes)

    pairs = (Caches(*pair) for pair in itertools.product(_NEAR, _FAR))
    return min((pair for pair in pairs if pair.near < pair.far), key=remaining)


def _of_topology(points: Sequence[DesignPoint], times: Times) -> list[FittedFigure]:
    """Return the bandwidth and the backward multipliers that fit TorchRec's own estimate best."""
    alone, weighted = _for(points, FITTED), _for(points, FITTED_WEIGHTED)
    forward, backward = (_ms(alone, times, passed) for passed in PASSES)
    kept = forward > _MOSTLY_LAUNCH * forward.min()
    kept = kept if kept.sum() >= 3 else np.ones(len(forward), bool)
    read = np.array([torchrec_bytes(point.shards[0]) for point in alone])
    figures = [
        _mean(DEVICE_BW, read[kept] / forward[kept], "bytes per ms"),
        _mean(BACKWARD, backward[kept] / forward[kept], ""),
    ]
    if weighted:
        forward, backward = (_ms(weighted, times, passed) for passed in PASSES)
        figures.append(_mean(WEIGHTED_BACKWARD, backward / forward / figures[-1].value, ""))
    return figures


def _given(name: str, value: float, unit: str) -> FittedFigure:
    return FittedFigure(name, value, value, value, unit)


def _mean(name: str, values: Floats, unit: str) -> FittedFigure:
    """Return the geometric mean of `values` with its 95 % confidence interval."""
    return fit(np.ones((len(values), 1)), values).figure(name, unit)


def _terms(
    points: Sequence[DesignPoint], caches: Caches, distribution: LookupDistribution
) -> Floats:
    """Return the terms of each point, summed over its shards, then its kernels, and 1 (P, K)."""
    rows = []
    for point in points:
        terms = np.sum([terms_of(shard, caches, distribution) for shard in point.shards], 0)
        rows.append([*terms, kernels_of(point.shards), 1.0])
    return np.array(rows, np.float64)


def _errors(
    points: Sequence[DesignPoint], times: Times, calibration: Calibration
) -> list[FitError]:
    """Return the geometric mean relative error for each purpose of points."""
    errors = []
    for purpose in PURPOSES:
        if chosen := _for(points, purpose):
            estimated = np.array([calibration.rank_ms(point.shards) for point in chosen])
            measured = np.array([sum(times[point.key].values()) for point in chosen])
            error = float(np.expm1(np.abs(np.log(estimated / measured)).mean()))
            errors.append(FitError(purpose, len(chosen), error))
    return errors


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted coefficients, the ends of their 95 % intervals, and the sum of squared residuals."""

    values: Floats
    low: Floats
    high: Floats
    squares: float

    def figure(self, name: str, unit: str, number: int = 0) -> FittedFigure:
        """Return the coefficient with index `number` as a figure named `name`."""
        value, low, high = (float(ends[number]) for ends in (self.values, self.low, self.high))
        return FittedFigure(name, value, low, high, unit)


def fit(terms: Floats, times: Floats, resampled: int = _RESAMPLED, seed: int = 0) -> Fit:
    """Fit `times` (P,) by `terms` (P, K) times non-negative coefficients, by least squares of logs.

    The intervals are percentiles of fits to points drawn with replacement (bootstrap, Efron 1979).
    """
    values, squares = _solve(terms, times, None)
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(resampled):
        chosen = rng.integers(0, len(times), len(times))
        drawn.append(_solve(terms[chosen], times[chosen], values)[0])
    if not drawn:
        return Fit(values, values, values, squares)
    low, high = np.percentile(drawn, _PERCENTILES, axis=0)
    return Fit(values, np.minimum(low, values), np.maximum(high, values), squares)


def _solve(terms: Floats, times: Floats, near: Floats | None) -> tuple[Floats, float]:
    """Return coefficients and sum of squared residuals; start the solver at `near` if given."""
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

    solved = least_squares(residuals, start, jac=slopes, bounds=(0.0, np.inf), x_scale="jac")
    return solved.x / scale, 2 * float(solved.cost)
