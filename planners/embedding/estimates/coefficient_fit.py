"""The design of a calibration, the fit of coefficients to its times, and the errors of the fit.

Coefficients are fitted to some points of the design, and judged by others.
"""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import qmc
from torchrec.distributed.types import ShardingType

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
from planners.embedding.estimates.shard_work import (
    Floats,
    LookupDistribution,
    ShardWork,
    Zipf,
    kernels_of,
    work_key,
)

FITTED, FITTED_WEIGHTED = "fitted", "fitted, weighted"
FITTED_SHARED, FITTED_KERNELS = "fitted, shared tables", "fitted, several kernels"
HELD_OUT, WEIGHTED, SHARED = "held out", "held out, weighted", "held out, shared tables"
TABLES, KERNELS = "held out, several tables", "held out, several kernels"

FITTED_PURPOSES = FITTED, FITTED_WEIGHTED, FITTED_SHARED, FITTED_KERNELS
PURPOSES = *FITTED_PURPOSES, HELD_OUT, WEIGHTED, SHARED, TABLES, KERNELS
"""The purposes of points: to fit to, and to judge the fit by."""

_POINTS = dict(zip(PURPOSES, (96, 24, 24, 16, 24, 12, 12, 24, 12), strict=True))

# The ranges of sizes: rows, columns, lookups per sample, samples. All are log-uniform.
_ROWS, _COLUMNS, _LOOKUPS, _SAMPLES = (100, 2e7), (8, 512), (1, 100), (2048, 8192)
_MOST_TABLES, _MOST_FEATURES = 10, 5
_MOST_BYTES = 1.2e9  # of rows that a point looks up
_MOST_OF_A_KERNEL = 3e6  # the same for one of several kernels: few, so that launches matter
_MOST_BYTES_OF_TABLES = 2.0**31  # of a point; a single table has half
_GROUPS = (  # TorchRec looks each of these up with a kernel of its own
    ShardingType.TABLE_WISE.value,
    ShardingType.COLUMN_WISE.value,
    ShardingType.ROW_WISE.value,
    ShardingType.TABLE_ROW_WISE.value,
)

Times = Mapping[str, Mapping[str, float]]
"""Milliseconds by the key of a point, and by pass."""

_RESAMPLED = 100
_PERCENTILES = (2.5, 97.5)
_NEAR = (0.0, *(2.0**power for power in range(18, 23)))
_FAR = tuple(2.0 ** (power / 2) for power in range(42, 55))
_FEWEST = 12
_MOSTLY_LAUNCH = 3.0  # shorter times, as multiples of the least time, are mostly launch
_LEAST_COLUMN = 10_000_000  # smallest value of column hbm_bw; below, only `coefficients` has it


class DesignPoint(NamedTuple):
    """Shards of one rank to measure, and their purpose; points of equal work have equal keys."""

    key: str
    purpose: str
    shards: tuple[ShardWork, ...]


REFERENCE = ShardWork(
    "reference", "fused", ShardingType.TABLE_WISE.value, 1_000_000, 64, (20.0,), 8192
)
"""The shard that runs before every measurement; it reads more than caches hold."""


def design(kernel: str, seed: int = 0, share: float = 1.0, gib: float = 4.0) -> list[DesignPoint]:
    """Return the points to measure for a kernel; `share` scales their number.

    The sizes follow Sobol's sequence (1967), scrambled differently for each purpose. The tables of
    a point take at most `gib` GiB, and at most 2 GiB, to limit the time of a measurement.
    """
    most = min(gib * 2**30, _MOST_BYTES_OF_TABLES)
    points: list[DesignPoint] = []
    for number, (purpose, count) in enumerate(_POINTS.items()):
        read = _MOST_OF_A_KERNEL if purpose in (FITTED_KERNELS, KERNELS) else _MOST_BYTES
        shards = _shards(kernel, 100 * seed + number, most / 2, read)
        rng = random.Random(f"{purpose} {seed}")
        for _ in range(max(12 if purpose == FITTED else 2, round(share * count))):
            chosen = _chosen(purpose, shards, rng, most)
            points.append(DesignPoint(work_key(chosen), purpose, chosen))
    random.Random(seed).shuffle(points)  # the machine's drift affects all purposes alike
    return points


def _chosen(
    purpose: str, shards: Iterator[ShardWork], rng: random.Random, most: float
) -> tuple[ShardWork, ...]:
    """Return the shards of one point for this purpose, from the sequence `shards`."""
    if purpose == TABLES:
        return _tables(shards, rng.randint(2, _MOST_TABLES), most)
    if purpose in (FITTED_KERNELS, KERNELS):
        chosen = _tables(shards, rng.randint(2, len(_GROUPS)), most)
        pairs = zip(chosen, _GROUPS, strict=False)
        return tuple(replace(shard, sharding_type=kind) for shard, kind in pairs)
    shard = next(shards)
    if purpose in (FITTED_WEIGHTED, WEIGHTED):
        return (replace(shard, is_weighted=True),)
    if purpose in (FITTED_SHARED, SHARED):
        features = rng.randint(2, _MOST_FEATURES)
        mean = max(1.0, float(round(shard.lookups[0] / features)))
        return (replace(shard, lookups=(mean,) * features),)
    return (shard,)


def _tables(shards: Iterator[ShardWork], tables: int, most: float) -> tuple[ShardWork, ...]:
    """Return a shard of each of up to `tables` tables, of at most `most` bytes together."""
    chosen: list[ShardWork] = []
    for number in range(tables):
        shard = next(shards)
        samples = chosen[0].samples if chosen else shard.samples
        chosen.append(replace(shard, table=str(number), samples=samples))
        if sum(map(_table_bytes, chosen)) > most:
            return tuple(chosen[:-1])
    return tuple(chosen)


def _shards(kernel: str, seed: int, most: float, read: float) -> Iterator[ShardWork]:
    """Yield endless shards: tables of up to `most` bytes, with lookups of up to `read` bytes."""
    sequence = qmc.Sobol(4, rng=seed)
    while True:
        for rows, columns, lookups, samples in sequence.random(64):
            shard = ShardWork(
                "0",
                kernel,
                ShardingType.TABLE_WISE.value,
                round(_between(_ROWS, rows)),
                4 * round(_between(_COLUMNS, columns) / 4),
                (float(round(_between(_LOOKUPS, lookups))),),
                round(_between(_SAMPLES, samples)),
            )
            looked_up = shard.indices * shard.columns * shard.item_bytes
            if looked_up <= read and _table_bytes(shard) <= most:
                yield shard


def _between(ends: tuple[float, float], fraction: float) -> float:
    return float(ends[0] * (ends[1] / ends[0]) ** fraction)


def _table_bytes(shard: ShardWork) -> float:
    return shard.rows * shard.columns * shard.item_bytes


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
