"""The design of a calibration: points to fit coefficients to, and points to test the fit on."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from scipy.stats import qmc
from torchrec.distributed.types import ShardingType

from planners.embedding.estimates.shard_work import ShardWork, work_key

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
