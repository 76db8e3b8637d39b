"""The designed sweep of a calibration: kernels to fit by, and others to judge the fit by."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from scipy.stats import qmc
from torchrec.distributed.types import ShardingType

from planners.embedding.calibration.shards import ShardWork

FITTED, HELD_OUT, RANKS, WEIGHTED = "fitted", "held out", "several tables", "weighted"

# The ends of the sizes: rows, width, lookups a sample, samples. All are spread evenly by logarithm.
_ROWS, _COLUMNS, _LOOKUPS, _SAMPLES = (100, 5e6), (8, 512), (1, 100), (2048, 8192)
_POINTS = {FITTED: 96, HELD_OUT: 24, RANKS: 24, WEIGHTED: 8}
_MOST_TABLES = 10
_MOST_BYTES = 1.2e9  # of rows that a point looks up
_MOST_TABLE_BYTES = 2**30
_MOST_RANK_BYTES = 2**31


class Point(NamedTuple):
    """Shards of one rank to measure, and what for."""

    name: str
    purpose: str
    shards: tuple[ShardWork, ...]


REFERENCE = ShardWork(
    "reference", "fused", ShardingType.TABLE_WISE.value, 1_000_000, 64, (20.0,), 8192
)
"""What every measurement is set against; it reads more than caches hold."""


def design(kernel: str, seed: int = 0, share: float = 1.0) -> list[Point]:
    """Return the points, or a share of them: those to fit by, and others that no fit has seen.

    They fill the space of sizes by Sobol's sequence (1967), scrambled anew for each purpose.
    """
    points: list[Point] = []
    for number, (purpose, count) in enumerate(_POINTS.items()):
        shards = _shards(kernel, 100 * seed + number)
        rng = random.Random(f"{purpose} {seed}")
        for _ in range(max(12 if purpose == FITTED else 2, round(share * count))):
            chosen = _tables(shards, rng) if purpose == RANKS else (next(shards),)
            if purpose == WEIGHTED:
                chosen = (replace(chosen[0], is_weighted=True),)
            points.append(Point(f"{kernel} {len(points)}", purpose, chosen))
    random.Random(seed).shuffle(points)  # no purpose is measured in one spell of the machine
    return points


def _tables(shards: Iterator[ShardWork], rng: random.Random) -> tuple[ShardWork, ...]:
    """Return shards of one kernel, all with the samples of the first."""
    chosen: list[ShardWork] = []
    for number in range(rng.randint(2, _MOST_TABLES)):
        shard = next(shards)
        samples = chosen[0].samples if chosen else shard.samples
        chosen.append(replace(shard, table=str(number), samples=samples))
        if sum(map(_table_bytes, chosen)) > _MOST_RANK_BYTES:
            return tuple(chosen[:-1])
    return tuple(chosen)


def _shards(kernel: str, seed: int) -> Iterator[ShardWork]:
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
            if _looked_up(shard) <= _MOST_BYTES and _table_bytes(shard) <= _MOST_TABLE_BYTES:
                yield shard


def _between(ends: tuple[float, float], part: float) -> float:
    return float(ends[0] * (ends[1] / ends[0]) ** part)


def _looked_up(shard: ShardWork) -> float:
    return shard.indices * shard.columns * shard.item_bytes


def _table_bytes(shard: ShardWork) -> float:
    return shard.rows * shard.columns * shard.item_bytes
