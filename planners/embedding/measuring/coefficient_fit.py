"""The design of a calibration, the fit of coefficients to its times, and the errors of the fit.

Coefficients are fitted to some points of the design, and judged by others.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import qmc
from torchrec.distributed.types import ShardingType

from harness.contract import FitError, FittedFigure, FittedMachine, UsageError
from planners.embedding.estimates.calibration import (
    CACHES,
    LAUNCH,
    PASSES,
    REFERENCE_MS,
    START,
    TERMS,
    Caches,
    Calibration,
    coefficient_name,
    terms_of,
)
from planners.embedding.estimates.shard_work import (
    CACHING,
    Floats,
    LookupDistribution,
    ShardWork,
    kernels_of,
    missed_shares,
    work_key,
)

# The purposes of points: to fit to, and to judge the fit by; and what else they vary than sizes.
FITTED, HELD_OUT = "fitted", "held out"
_WEIGHTED, _SHARED = ", weighted", ", shared tables"
_TABLES, _KERNELS = ", several tables", ", several kernels"
POINTS = {
    FITTED: 96,
    FITTED + _WEIGHTED: 24,
    FITTED + _SHARED: 24,
    FITTED + _KERNELS: 16,
    HELD_OUT: 24,
    HELD_OUT + _WEIGHTED: 12,
    HELD_OUT + _SHARED: 12,
    HELD_OUT + _TABLES: 24,
    HELD_OUT + _KERNELS: 12,
}
"""The number of points for each purpose."""

_FEWEST, _FEWEST_OF_OTHERS = 12, 2  # points that coefficients are fitted to, and of other purposes

# The ranges of sizes: rows, columns, lookups per sample, samples. All are log-uniform.
_ROWS, _COLUMNS, _LOOKUPS, _SAMPLES = (100, 2e7), (8, 512), (1, 100), (2048, 8192)
_CACHED = 0.05, 0.2, 0.5, 0.8  # of a table's rows, for kernels with a cache
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


class DesignPoint(NamedTuple):
    """Shards of one rank to measure, and their purpose; points of equal work have equal keys."""

    key: str
    purpose: str
    shards: tuple[ShardWork, ...]


REFERENCE = ShardWork("fused", ShardingType.TABLE_WISE.value, 4_000_000, 64, (20.0,), 8192)
"""The shard that runs before every measurement. Its 1 GiB is larger than any cache.

If its rows were in a cache that is shared with other machines, these would slow it down alone.
"""


def design(kernel: str, seed: int = 0, share: float = 1.0, gib: float = 4.0) -> list[DesignPoint]:
    """Return the points to measure for a kernel; `share` scales their number.

    The sizes follow Sobol's sequence (1967), scrambled differently for each purpose. The tables of
    a point take at most `gib` GiB, and at most 2 GiB, to limit the time of a measurement.
    """
    most = min(gib * 2**30, _MOST_BYTES_OF_TABLES)
    points: list[DesignPoint] = []
    for number, (purpose, count) in enumerate(POINTS.items()):
        read = _MOST_OF_A_KERNEL if purpose.endswith(_KERNELS) else _MOST_BYTES
        shards = _shards(kernel, 100 * seed + number, most / 2, read)
        rng = random.Random(f"{purpose} {seed}")
        fewest = _FEWEST if purpose == FITTED else _FEWEST_OF_OTHERS
        for _ in range(max(fewest, round(share * count))):
            chosen = _chosen(purpose, shards, rng, most)
            points.append(DesignPoint(work_key(chosen), purpose, chosen))
    random.Random(seed).shuffle(points)  # the machine's drift affects all purposes alike
    return points


def _shards(kernel: str, seed: int, most: float, read: float) -> Iterator[ShardWork]:
    """Yield endless shards: tables of up to `most` bytes, with lookups of up to `read` bytes."""
    sequence = qmc.Sobol(4, rng=seed)
    cached = cycle(_CACHED if kernel == CACHING else (0.0,))
    while True:
        for fractions in sequence.random(64):
            rows, columns, lookups, samples = (
                low * (high / low) ** fraction
                for (low, high), fraction in zip(
                    (_ROWS, _COLUMNS, _LOOKUPS, _SAMPLES), fractions, strict=True
                )
            )
            shard = ShardWork(
                kernel,
                ShardingType.TABLE_WISE.value,
                round(rows),
                4 * round(columns / 4),
                (float(round(lookups)),),
                round(samples),
                cached=next(cached),
            )
            if shard.indices * shard.row_bytes <= read and shard.rows * shard.row_bytes <= most:
                yield shard


def _chosen(
    purpose: str, shards: Iterator[ShardWork], rng: random.Random, most: float
) -> tuple[ShardWork, ...]:
    """Return the shards of one point for this purpose, of at most `most` bytes together."""
    if purpose.endswith((_TABLES, _KERNELS)):
        types = _GROUPS if purpose.endswith(_KERNELS) else _GROUPS[:1] * _MOST_TABLES
        chosen: list[ShardWork] = []
        for sharding_type in types[: rng.randint(2, len(types))]:
            shard = replace(next(shards), sharding_type=sharding_type)
            chosen.append(replace(shard, samples=(chosen or [shard])[0].samples))
            if sum(table.rows * table.row_bytes for table in chosen) > most:
                return tuple(chosen[:-1])
        return tuple(chosen)
    shard = next(shards)
    if purpose.endswith(_WEIGHTED):
        return (replace(shard, is_weighted=True),)
    if purpose.endswith(_SHARED):
        features = rng.randint(2, _MOST_FEATURES)
        mean = max(1.0, float(round(shard.lookups[0] / features)))
        return (replace(shard, lookups=(mean,) * features),)
    return (shard,)


def fit_machine(
    points: Sequence[DesignPoint],
    times: Times,
    distribution: LookupDistribution,
    reference_ms: float = 0,
) -> FittedMachine:
    """Fit the coefficients of each kernel; raises UsageError for too few points."""
    figures = [_figure(name, [value] * 3) for name, value in distribution.coefficients.items()]
    if reference_ms:
        figures.insert(0, _figure(REFERENCE_MS, [reference_ms] * 3, "ms"))
    points = [point for point in points if point.key in times]
    caches: Caches | None = None
    for kernel in dict.fromkeys(point.shards[0].kernel for point in points):
        fitted = [
            point
            for point in points
            if point.shards[0].kernel == kernel and point.purpose.startswith(FITTED)
        ]
        alone = _for(fitted, FITTED)
        if len(alone) < _FEWEST:
            raise UsageError(
                f"Kernel '{kernel}' was measured at {len(alone)} points; a fit needs {_FEWEST}."
            )
        if caches is None:  # cache sizes are fitted to the first kernel only
            caches = _best_caches(alone, times, distribution)
            figures += [
                _figure(name, [size] * 3, "bytes")
                for name, size in zip(CACHES, caches, strict=True)
            ]
        terms = _terms(fitted, caches, distribution)
        varied = terms.any(0)  # a kernel without a cache of rows fetches none
        names = np.array([*TERMS, LAUNCH, START])[varied].tolist()
        for passed, measured in zip(PASSES, _ms(fitted, times), strict=True):
            figures += [
                _figure(coefficient_name(kernel, passed, term), ends, "ms")
                for term, ends in zip(names, fit(terms[:, varied], measured).T, strict=True)
            ]
    calibration = Calibration({figure.name: figure.value for figure in figures})
    return FittedMachine(figures, _errors(points, times, calibration))


def _figure(name: str, ends: Sequence[float] | Floats, unit: str = "") -> FittedFigure:
    """Return a figure from its value and the ends of its interval."""
    value, low, high = map(float, ends)
    return FittedFigure(name, value, low, high, unit)


def _for(points: Sequence[DesignPoint], purpose: str) -> list[DesignPoint]:
    return [point for point in points if point.purpose == purpose]


def _ms(points: Sequence[DesignPoint], times: Times) -> Floats:
    """Return the measured milliseconds by pass and point."""
    return np.array([[times[point.key][passed] for point in points] for passed in PASSES])


def _best_caches(
    points: Sequence[DesignPoint], times: Times, distribution: LookupDistribution
) -> Caches:
    """Return the cache sizes with the smallest sum of squared residuals."""

    def remaining(sizes: Caches) -> float:
        terms = _terms(points, sizes, distribution)
        return sum(_solve(terms, measured)[1] for measured in _ms(points, times))

    pairs = ((near, far) for near in _NEAR for far in _FAR if near < far)
    return min(pairs, key=remaining)


def _terms(
    points: Sequence[DesignPoint], caches: Caches, distribution: LookupDistribution
) -> Floats:
    """Return the terms of each point, summed over its shards, then its kernels, and 1 (P, K)."""
    rows = []
    for point in points:
        missed = missed_shares(point.shards, distribution)
        terms = [
            terms_of(shard, caches, distribution, share)
            for shard, share in zip(point.shards, missed, strict=True)
        ]
        rows.append([*np.sum(terms, 0), len(kernels_of(point.shards)), 1.0])
    return np.array(rows, np.float64)


def _errors(
    points: Sequence[DesignPoint], times: Times, calibration: Calibration
) -> list[FitError]:
    """Return the geometric mean relative error for each purpose of points."""
    errors = []
    for purpose in POINTS:
        if chosen := _for(points, purpose):
            estimated = np.array([calibration.rank_ms(point.shards) for point in chosen])
            measured = np.array([sum(times[point.key].values()) for point in chosen])
            error = float(np.expm1(np.abs(np.log(estimated / measured)).mean()))
            errors.append(FitError(purpose, len(chosen), error))
    return errors


def fit(terms: Floats, times: Floats) -> Floats:
    """Fit `times` (P,) by `terms` (P, K) times non-negative coefficients, by least squares of logs.

    Return the coefficients, and the lower and upper ends of their 95 % intervals, shape (3, K). The
    intervals are percentiles of fits to points drawn with replacement (bootstrap, Efron 1979).
    """
    values, _ = _solve(terms, times)
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(_RESAMPLED):
        chosen = rng.integers(0, len(times), len(times))
        drawn.append(_solve(terms[chosen], times[chosen], values)[0])
    low, high = np.percentile(drawn, _PERCENTILES, axis=0)
    return np.array([values, np.minimum(low, values), np.maximum(high, values)])


def _solve(terms: Floats, times: Floats, near: Floats | None = None) -> tuple[Floats, float]:
    """Return coefficients and sum of squared residuals; start the solver at `near` if given."""
    scale = terms.mean(0)
    scale[scale == 0] = 1.0
    scaled, logs = terms / scale, np.log(times)
    if near is None:
        start = np.full(len(scale), np.exp(np.log(times / scaled.sum(1)).mean()))
    else:
        start = np.maximum(near * scale, 1e-9 * (near * scale).max())
    least = 1e-12 * np.exp(logs.min())

    def residuals(coefficients: Floats) -> Floats:
        return np.asarray(np.log(scaled @ coefficients + least) - logs)

    def slopes(coefficients: Floats) -> Floats:
        return np.asarray(scaled / (scaled @ coefficients + least)[:, None])

    solved = least_squares(residuals, start, jac=slopes, bounds=(0.0, np.inf), x_scale="jac")
    return solved.x / scale, 2 * float(solved.cost)
