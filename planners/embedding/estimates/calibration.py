"""Calibrated cost of a shard: milliseconds as a sum of terms times fitted coefficients.

The terms are bytes read, looked up and written, as in TorchRec's own estimate, and these effects:

- each pass takes time to start, and so does each kernel;
- each index takes time, whatever the row's width;
- a repeated row is read from a cache if it is still there, and the first access to a page of memory
  takes extra time;
- the backward pass of weighted lookups reads each row once more, for the gradient of its weight,
  and the backward pass of a table that several features share merges their gradients row by row.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torchrec.distributed.planner.estimator.estimator import compute_block_usage_penalty

from harness.contract import UsageError
from planners.embedding.estimates.shard_work import (
    Floats,
    LookupDistribution,
    Reuse,
    ShardWork,
    UniformLookups,
    Zipf,
    kernels_of,
)

REFERENCE_MS = "reference_ms"
PASSES = ("forward", "backward")
TERMS = (
    *("index", "near", "far", "missed", "page", "row", "row_bytes", "written", "output"),
    *("weighted_near", "weighted_far", "weighted_missed"),
    *("shared_read", "shared_row", "shared_row_bytes"),
)
LAUNCH, START = "launch", "start"  # of each kernel, and of a pass

_INDEX_BYTES = 8
_PAGE_BYTES = 4096
_LEAST_COLUMNS = 32  # of a row, for TorchRec


class Caches(NamedTuple):
    """Sizes of two caches in bytes; the size of the far cache includes the near cache."""

    near: float
    far: float


def torchrec_bytes(shard: ShardWork) -> float:
    """Return the bytes that TorchRec's default estimate divides by the bandwidth, with penalties.

    TorchRec divides the lookups of a row-wise table evenly among its shards, even if their numbers
    of rows differ. Other shards of less than 128 columns have a penalty, and count as at least 32
    columns wide.
    """
    of_table = sum(shard.lookups) / shard.share if shard.share else 0.0
    indices = of_table / shard.row_parts * shard.samples
    width = shard.columns * shard.item_bytes
    read = _INDEX_BYTES * indices * (2 if shard.is_weighted else 1)
    looked_up, written = indices * width, shard.outputs * width
    if shard.row_parts > 1:
        return read + looked_up + written
    looked_up *= max(shard.columns, _LEAST_COLUMNS) / shard.columns
    return float((read + looked_up + written) * compute_block_usage_penalty(shard.columns))


def terms_of(shard: ShardWork, caches: Caches, distribution: LookupDistribution) -> Floats:
    """Return the terms of a shard's work in one iteration, in the order of `TERMS`.

    They are: indices; bytes of rows in the near cache, in the far cache, and in neither (which
    includes each row's first lookup); pages touched; distinct rows, and their bytes; bytes of
    pooled vectors, and their number. The next three repeat the bytes of rows for weighted lookups,
    else 0. The last three are, if features share the table, else 0: bytes of looked-up rows,
    distinct rows, and their bytes.
    """
    count, width = shard.indices, shard.columns * shard.item_bytes
    distinct = distribution.distinct(shard.rows, count) if count else 0.0
    pages = max(shard.rows * width / _PAGE_BYTES, 1.0)
    # Expected number of distinct pages of `distinct` random rows (Poisson approximation).
    touched = -pages * math.expm1(-distinct / pages)
    again = max(count - distinct, 0.0)
    in_near, in_far = (
        distribution.share_of_hottest(shard.rows, size / width, count) if count else 0.0
        for size in caches
    )
    near, far = again * in_near, again * max(in_far - in_near, 0.0)
    places = np.array([near, far, count - near - far]) * width
    rows = np.array([distinct, distinct * width])
    written = [shard.outputs * width, shard.outputs]
    shared = np.array([count * width, *rows]) * (len(shard.lookups) > 1)
    terms = [count, *places, touched, *rows, *written, *(places * shard.is_weighted), *shared]
    return np.array(terms, dtype=np.float64)


def coefficient_name(kernel: str, passed: str, term: str) -> str:
    """Return the name of a coefficient, which is in milliseconds per unit of the term."""
    return f"{kernel}.cached.{passed}.{term}"


@dataclass(frozen=True, slots=True)
class Calibration:
    """The fitted coefficients of a machine, by `coefficient_name`."""

    values: Mapping[str, float]

    @property
    def distribution(self) -> LookupDistribution:
        """The distribution of the lookups that were measured."""
        if exponent := self.values.get("indices.zipf"):
            return Zipf(exponent)
        return Reuse() if self.values.get("indices.reuse") else UniformLookups()

    @property
    def caches(self) -> Caches:
        """The sizes of the caches, in bytes."""
        return Caches(self.values.get("cache.near", 0.0), self.values.get("cache.far", 0.0))

    def covers(self, kernel: str) -> bool:
        """Return whether a kernel was calibrated."""
        return coefficient_name(kernel, PASSES[0], TERMS[0]) in self.values

    def shard_ms(self, shard: ShardWork, passed: str) -> float:
        """Return the milliseconds of a shard in one pass, without the launch of its kernel.

        Raises UsageError if the kernel was not calibrated.
        """
        if not self.covers(shard.kernel):
            raise UsageError(
                f"The topology's coefficients are of other kernels than '{shard.kernel}', which "
                f"was not calibrated."
            )
        terms = terms_of(shard, self.caches, self.distribution)
        return float(terms @ self._coefficients(shard.kernel, passed, TERMS))

    def rank_ms(self, shards: Sequence[ShardWork]) -> float:
        """Return the milliseconds of a rank's shards in both passes, with the kernels' launches."""
        total = sum(self.shard_ms(shard, passed) for shard in shards for passed in PASSES)
        if shards:
            counts = np.array([kernels_of(shards), 1])
            for passed in PASSES:
                starts = self._coefficients(shards[0].kernel, passed, (LAUNCH, START))
                total += float(counts @ starts)
        return total

    def _coefficients(self, kernel: str, passed: str, terms: Sequence[str]) -> Floats:
        names = (coefficient_name(kernel, passed, term) for term in terms)
        return np.array([self.values.get(name, 0.0) for name in names])
