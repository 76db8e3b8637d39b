"""From the times of a sweep to a calibration, with what it is worth on other sizes."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from harness.contract import UsageError
from planners.embedding.calibration.coefficients import (
    BACKWARD,
    DEVICE_BW,
    REFERENCE_MS,
    Calibration,
)
from planners.embedding.calibration.indices import Indices, Zipf
from planners.embedding.calibration.shards import ShardWork
from planners.embedding.calibration.terms import (
    CACHED,
    LAUNCH,
    PASSES,
    TORCHREC,
    Caches,
    Floats,
    Form,
    cached_terms,
    torchrec_bytes,
    torchrec_terms,
)
from planners.embedding.measured.fit import Fit, fit, geometric_mean_error
from planners.embedding.measured.sweep import FITTED, WEIGHTED, Point

Times = Mapping[str, Mapping[str, float]]
"""Milliseconds by the name of a point, and by pass."""

_NEAR = (0.0, *(2.0**power for power in range(18, 23)))
_FAR = tuple(2.0 ** (power / 2) for power in range(42, 55))
_FEWEST = 12
_MOSTLY_LAUNCH = 3.0  # what takes less than so many starts of a kernel says little of its bytes


class Coefficient(NamedTuple):
    """A fitted figure with the ends of its 95 % interval."""

    name: str
    value: float
    low: float
    high: float
    unit: str


class Judged(NamedTuple):
    """How far a form is off, as a geometric mean, on points of one purpose."""

    form: str
    purpose: str
    points: int
    error: float


class Fitted(NamedTuple):
    """What a sweep gives."""

    calibration: Calibration
    coefficients: tuple[Coefficient, ...]
    judged: tuple[Judged, ...]


def fit_sweep(
    points: Sequence[Point], times: Times, indices: Indices, reference_ms: float = 0.0
) -> Fitted:
    """Fit both forms, kernel by kernel; raises UsageError where too little was measured."""
    found: list[Coefficient] = []
    if reference_ms:
        found.append(_given(REFERENCE_MS, reference_ms, "ms"))
    if isinstance(indices, Zipf):
        found.append(_given("indices.zipf", indices.exponent, ""))
    elif indices.name == "reuse":
        found.append(_given("indices.reuse", 1.0, ""))
    kernels = dict.fromkeys(point.shards[0].kernel for point in points)
    for number, kernel in enumerate(kernels):
        mine = [each for each in points if each.shards[0].kernel == kernel and each.name in times]
        found += _fit_kernel(kernel, mine, times, indices, caches=None if number == 0 else found)
    calibration = Calibration({each.name: each.value for each in found})
    return Fitted(calibration, tuple(found), tuple(_judge(points, times, calibration)))


def _fit_kernel(
    kernel: str,
    points: Sequence[Point],
    times: Times,
    indices: Indices,
    caches: Sequence[Coefficient] | None,
) -> list[Coefficient]:
    chosen = [point for point in points if point.purpose == FITTED]
    if len(chosen) < _FEWEST:
        raise UsageError(
            f"Kernel '{kernel}' was measured at {len(chosen)} points; a fit needs {_FEWEST}."
        )
    shards = [point.shards[0] for point in chosen]
    measured = {p: np.array([times[point.name][p] for point in chosen]) for p in PASSES}
    found: list[Coefficient] = []
    if caches is None:
        sizes = _best_caches(shards, measured, indices)
        found += [
            _given("cache.near", sizes.near, "bytes"),
            _given("cache.far", sizes.far, "bytes"),
        ]
    else:
        held = {each.name: each.value for each in caches}
        sizes = Caches(held["cache.near"], held["cache.far"])
    fits: dict[str, Fit] = {}
    for form in (CACHED, TORCHREC):
        terms = _terms(form, shards, sizes, indices)
        for passed in PASSES:
            fits[passed] = made = fit(terms, measured[passed])
            # TorchRec's form has no start of a kernel: it is fitted beside it, and left out.
            named = (*form.terms, LAUNCH) if form is CACHED else form.terms
            found += [
                Coefficient(f"{kernel}.{form.name}.{passed}.{term}", value, low, high, "ms")
                for term, value, low, high in zip(
                    named,
                    *(each.tolist() for each in (made.values, made.low, made.high)),
                    strict=False,
                )
            ]
    if not any(each.name == DEVICE_BW for each in caches or ()):
        started = sum(fits["forward"].values[-1:])
        found += _of_topology(shards, measured, float(started))
    return found + _weighted(kernel, points, times, Calibration({e.name: e.value for e in found}))


def _given(name: str, value: float, unit: str) -> Coefficient:
    return Coefficient(name, value, value, value, unit)


def _terms(form: Form, shards: Sequence[ShardWork], caches: Caches, indices: Indices) -> Floats:
    """Return the terms of points, with a last one for the start of a kernel, (P, K + 1)."""
    if form is TORCHREC:
        rows = [torchrec_terms(shard) for shard in shards]
    else:
        rows = [cached_terms(shard, caches, indices) for shard in shards]
    return np.column_stack([np.array(rows), np.ones(len(rows))])


def _best_caches(
    shards: Sequence[ShardWork], measured: Mapping[str, Floats], indices: Indices
) -> Caches:
    """Return the sizes of caches with which the fits leave least."""

    def left(sizes: Caches) -> float:
        terms = _terms(CACHED, shards, sizes, indices)
        return sum(fit(terms, measured[passed], resampled=0).left for passed in PASSES)

    pairs = (Caches(*pair) for pair in itertools.product(_NEAR, _FAR))
    return min((pair for pair in pairs if pair.near < pair.far), key=left)


def _of_topology(
    shards: Sequence[ShardWork], measured: Mapping[str, Floats], started: float
) -> list[Coefficient]:
    """Return the bandwidth and the factor of backward that suit TorchRec's own form best."""
    forward, backward = measured["forward"], measured["backward"]
    told = forward > _MOSTLY_LAUNCH * started
    told = told if told.sum() >= 3 else np.ones(len(forward), bool)
    read = np.array([torchrec_bytes(shard) for shard in shards])
    return [
        _mean(DEVICE_BW, read[told] / forward[told], "bytes per ms"),
        _mean(BACKWARD, backward[told] / forward[told], ""),
    ]


def _mean(name: str, values: Floats, unit: str) -> Coefficient:
    """Return a geometric mean with its interval."""
    logs = np.log(values)
    rng = np.random.default_rng(0)
    drawn = [rng.choice(logs, len(logs)).mean() for _ in range(200)]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Coefficient(name, math.exp(logs.mean()), math.exp(low), math.exp(high), unit)


def _weighted(
    kernel: str, points: Sequence[Point], times: Times, calibration: Calibration
) -> list[Coefficient]:
    """Return by which factors weights of indices make the passes longer."""
    mine = [point for point in points if point.purpose == WEIGHTED]
    if not mine:
        return []
    found = []
    for passed in PASSES:
        started = calibration.launch_ms(kernel, passed)
        plain = [calibration.shard_ms(p.shards[0], passed) for p in mine]
        took = [max(times[p.name][passed] - started, 1e-9) for p in mine]
        found.append(_mean(f"{kernel}.weighted.{passed}", np.array(took) / np.array(plain), ""))
    return found


def _judge(points: Sequence[Point], times: Times, calibration: Calibration) -> list[Judged]:
    """Say how far each form is off: at the fitted points, at held-out ones, and on many tables."""
    judged = []
    for form in (TORCHREC, CACHED):
        for purpose in dict.fromkeys(point.purpose for point in points):
            mine = [p for p in points if p.purpose == purpose and p.name in times]
            if mine:
                estimated = [calibration.rank_ms(p.shards, form) for p in mine]
                took = [sum(times[p.name].values()) for p in mine]
                error = geometric_mean_error(estimated, took)
                judged.append(Judged(form.name, purpose, len(mine), error))
    return judged
