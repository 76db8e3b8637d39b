"""From the times of a sweep to a calibration, with what it is worth on other sizes."""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from harness.contract import FittedFigure, FittedMachine, FormError, UsageError
from planners.embedding.calibration.coefficients import (
    BACKWARD,
    DEVICE_BW,
    REFERENCE_MS,
    WEIGHTED_BACKWARD,
    Calibration,
)
from planners.embedding.calibration.indices import Indices, Zipf
from planners.embedding.calibration.shards import ShardWork
from planners.embedding.calibration.terms import (
    CACHED,
    LAUNCH,
    PASSES,
    START,
    TORCHREC,
    Caches,
    Floats,
    Form,
    cached_terms,
    kernels_of,
    torchrec_bytes,
    torchrec_terms,
)
from planners.embedding.measured.fit import fit, geometric_mean_error
from planners.embedding.measured.sweep import (
    FITTED,
    FITTED_PURPOSES,
    FITTED_WEIGHTED,
    PURPOSES,
    Point,
)

Times = Mapping[str, Mapping[str, float]]
"""Milliseconds by the key of a point, and by pass."""

_NEAR = (0.0, *(2.0**power for power in range(18, 23)))
_FAR = tuple(2.0 ** (power / 2) for power in range(42, 55))
_FEWEST = 12
_MOSTLY_LAUNCH = 3.0  # what takes less than so many starts of a kernel says little of its bytes
_LEAST_COLUMN = 10_000_000  # of the column hbm_bw; a slower device has its bandwidth in the others


def fit_sweep(
    points: Sequence[Point], times: Times, indices: Indices, reference_ms: float = 0.0
) -> FittedMachine:
    """Fit both forms, kernel by kernel; raises UsageError where too little was measured."""
    found: list[FittedFigure] = []
    if reference_ms:
        found.append(_given(REFERENCE_MS, reference_ms, "ms"))
    if isinstance(indices, Zipf):
        found.append(_given("indices.zipf", indices.exponent, ""))
    elif indices.name == "reuse":
        found.append(_given("indices.reuse", 1.0, ""))
    points = [point for point in points if point.key in times]
    caches: Caches | None = None
    for kernel in dict.fromkeys(point.shards[0].kernel for point in points):
        mine = _Measured([p for p in points if p.shards[0].kernel == kernel], times, kernel)
        if caches is None:  # the first kernel says what the device has
            caches = _best_caches(mine, indices)
            found.append(_given("cache.near", caches.near, "bytes"))
            found.append(_given("cache.far", caches.far, "bytes"))
            found += _of_topology(mine)
        found += mine.fitted(CACHED, caches, indices)
        found += mine.fitted(TORCHREC, caches, indices)
    calibration = Calibration({each.name: each.value for each in found})
    return FittedMachine(_columns(calibration), found, _errors(points, times, calibration))


class _Measured:
    """What was measured to fit one kernel by."""

    def __init__(self, points: Sequence[Point], times: Times, kernel: str) -> None:
        self.kernel = kernel
        self._points, self._times = points, times
        if (count := len(self.ranks(FITTED))) < _FEWEST:
            raise UsageError(
                f"Kernel '{kernel}' was measured at {count} points; a fit needs {_FEWEST}."
            )

    def ranks(self, *purposes: str) -> list[tuple[ShardWork, ...]]:
        """Return the shards of the points that were measured for these purposes."""
        return [point.shards for point in self._points if point.purpose in purposes]

    def ms(self, passed: str, *purposes: str) -> Floats:
        """Return the milliseconds of these points in one pass."""
        chosen = [point for point in self._points if point.purpose in purposes]
        return np.array([self._times[point.key][passed] for point in chosen])

    def fitted(self, form: Form, caches: Caches, indices: Indices) -> list[FittedFigure]:
        """Return the coefficients of a form.

        TorchRec's has a factor for weighted lookups, and none for the start of a pass, which is
        fitted beside it and left out.
        """
        purposes = FITTED_PURPOSES if form is CACHED else (FITTED,)
        terms = _terms(form, self.ranks(*purposes), caches, indices)
        found = []
        for passed in PASSES:
            made = fit(terms, self.ms(passed, *purposes))
            named = (*form.terms, LAUNCH, START) if form is CACHED else form.terms
            for number, term in enumerate(named):
                value, low, high = (float(e[number]) for e in (made.values, made.low, made.high))
                name = f"{self.kernel}.{form.name}.{passed}.{term}"
                found.append(FittedFigure(name, value, low, high, "ms"))
        return found


def _given(name: str, value: float, unit: str) -> FittedFigure:
    return FittedFigure(name, value, value, value, unit)


def _terms(
    form: Form, ranks: Sequence[Sequence[ShardWork]], caches: Caches, indices: Indices
) -> Floats:
    """Return the terms of points, (P, K); the last is the start of a pass.

    Before it stands how many kernels there are, with `CACHED` alone.
    """
    rows = []
    for shards in ranks:
        if form is TORCHREC:
            rows.append([*np.sum([torchrec_terms(each) for each in shards], 0), 1.0])
        else:
            terms = [cached_terms(each, caches, indices) for each in shards]
            rows.append([*np.sum(terms, 0), kernels_of(shards), 1.0])
    return np.array(rows, np.float64)


def _best_caches(measured: _Measured, indices: Indices) -> Caches:
    """Return the sizes of caches with which the fits leave least."""
    ranks = measured.ranks(FITTED)
    times = [measured.ms(passed, FITTED) for passed in PASSES]

    def left(sizes: Caches) -> float:
        terms = _terms(CACHED, ranks, sizes, indices)
        return sum(fit(terms, each, resampled=0).left for each in times)

    pairs = (Caches(*pair) for pair in itertools.product(_NEAR, _FAR))
    return min((pair for pair in pairs if pair.near < pair.far), key=left)


def _of_topology(measured: _Measured) -> list[FittedFigure]:
    """Return the bandwidth and the factors of backward that suit TorchRec's own form best."""
    forward, backward = (measured.ms(each, FITTED) for each in PASSES)
    told = forward > _MOSTLY_LAUNCH * forward.min()
    told = told if told.sum() >= 3 else np.ones(len(forward), bool)
    read = np.array([torchrec_bytes(shard) for (shard,) in measured.ranks(FITTED)])
    found = [
        _mean(DEVICE_BW, read[told] / forward[told], "bytes per ms"),
        _mean(BACKWARD, backward[told] / forward[told], ""),
    ]
    if measured.ranks(FITTED_WEIGHTED):
        forward, backward = (measured.ms(each, FITTED_WEIGHTED) for each in PASSES)
        found.append(_mean(WEIGHTED_BACKWARD, backward / forward / found[-1].value, ""))
    return found


def _mean(name: str, values: Floats, unit: str) -> FittedFigure:
    """Return a geometric mean with its interval."""
    logs = np.log(values)
    rng = np.random.default_rng(0)
    drawn = [rng.choice(logs, len(logs)).mean() for _ in range(200)]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return FittedFigure(name, math.exp(logs.mean()), math.exp(low), math.exp(high), unit)


def _columns(calibration: Calibration) -> dict[str, str]:
    """Return the columns of a topology file that carry a calibration."""
    columns = {"coefficients": str(calibration)}
    bandwidth = calibration.values[DEVICE_BW]
    return columns | ({"hbm_bw": f"{bandwidth:.6g}"} if bandwidth >= _LEAST_COLUMN else {})


def _errors(points: Sequence[Point], times: Times, calibration: Calibration) -> list[FormError]:
    """Say how far each form is off: at the fitted points, at held-out ones, and on many tables."""
    found = []
    for form in (TORCHREC, CACHED):
        for purpose in PURPOSES:
            mine = [point for point in points if point.purpose == purpose]
            if not mine:
                continue
            estimated = [calibration.rank_ms(point.shards, form) for point in mine]
            took = [sum(times[point.key].values()) for point in mine]
            error = geometric_mean_error(estimated, took)
            found.append(FormError(form.name, purpose, len(mine), error))
    return found
