"""Calibrated cost of a shard: milliseconds as a sum of terms times fitted coefficients.

The terms are bytes read, looked up and written, as in TorchRec's own estimate, and these effects:

- each pass takes time to start, and so does each kernel;
- each index takes time, whatever the row's width;
- a repeated row is read from a cache if it is still there, and the first access to a page of memory
  takes extra time;
- a row that the device's cache lacks is fetched from host memory;
- the backward pass of weighted lookups reads each row once more, for the gradient of its weight;
- the passes of a table that several features share are other code, with costs of their own for each
  distinct row.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planners.embedding.estimates.shard_work import (
    Floats,
    LookupDistribution,
    ShardWork,
    kernels_of,
    missed_shares,
)

REFERENCE_MS = "reference_ms"
CACHES = "cache.near", "cache.far"
PASSES = "forward", "backward"
TERMS = (
    *("index", "near", "far", "missed", "page", "row", "row_bytes", "written", "output"),
    *("weighted_near", "weighted_far", "weighted_missed"),
    *("shared_read", "shared_row", "shared_row_bytes"),
    "fetched",
)
LAUNCH, START = "launch", "start"  # of each kernel, and of a pass

_PAGE_BYTES = 4096


Caches = tuple[float, float]
"""Sizes of a near and a far cache in bytes; the size of the far cache includes the near cache."""


def terms_of(
    shard: ShardWork, caches: Caches, distribution: LookupDistribution, missed: float
) -> Floats:
    """Return the terms of a shard's work in one iteration, in the order of `TERMS`.

    `missed` is the share of distinct rows that are fetched from host memory.

    They are: indices; bytes of rows in the near cache, in the far cache, and in neither (which
    includes each row's first lookup); pages touched; distinct rows, and their bytes; bytes of
    pooled vectors, and their number. The next three repeat the bytes of rows for weighted lookups,
    else 0. Three more count, if features share the table: bytes of looked-up rows; distinct rows,
    and their bytes, which are then 0 in their place above. The last one is bytes of fetched rows.
    """
    count, width = shard.indices, shard.row_bytes
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
    is_shared = len(shard.lookups) > 1
    shared = np.array([count * width, *rows]) * is_shared
    rows *= not is_shared
    written = shard.outputs * width, shard.outputs
    weighted, fetched = places * shard.is_weighted, missed * distinct * width
    terms = [count, *places, touched, *rows, *written, *weighted, *shared, fetched]
    return np.array(terms, np.float64)


def coefficient_name(kernel: str, passed: str, term: str) -> str:
    """Return the name of a coefficient, which is in milliseconds per unit of the term."""
    return f"{kernel}.cached.{passed}.{term}"


@dataclass(frozen=True, slots=True)
class Calibration:
    """The fitted coefficients of a machine, by `coefficient_name`."""

    values: Mapping[str, float]

    @property
    def caches(self) -> Caches:
        """The sizes of the caches, in bytes."""
        near, far = (self.values.get(name, 0.0) for name in CACHES)
        return near, far

    @property
    def kernels(self) -> set[str]:
        """The kernels that were calibrated."""
        return {name.partition(".")[0] for name in self.values if f".{PASSES[0]}." in name}

    def covers(self, kernel: str) -> bool:
        """Return whether a kernel was calibrated."""
        return coefficient_name(kernel, PASSES[0], TERMS[0]) in self.values

    @property
    def distribution(self) -> LookupDistribution:
        """The distribution of lookups that the machine was measured with."""
        return LookupDistribution.of_coefficients(self.values)

    def shard_ms(self, shard: ShardWork, passed: str, missed: float | None = None) -> float:
        """Return the milliseconds of a shard in one pass, without the launch of its kernel.

        The kernel must be one that was calibrated. `missed` is the share of rows to be fetched; by
        default the shard has a cache of its own.
        """
        if missed is None:
            (missed,) = missed_shares([shard], self.distribution)
        terms = terms_of(shard, self.caches, self.distribution, missed)
        return float(terms @ self._coefficients(shard.kernel, passed, TERMS))

    def rank_ms(self, shards: Sequence[ShardWork]) -> float:
        """Return the milliseconds of a rank's shards in both passes, with the kernels' launches.

        A kernel with tables of several kinds is launched as its most expensive kind.
        """
        missed = missed_shares(shards, self.distribution)
        total = 0.0
        for passed in PASSES:
            total += sum(map(self.shard_ms, shards, [passed] * len(shards), missed))
            starts = {
                kind: self._coefficients(kind, passed, (LAUNCH, START))
                for kind in {shard.kernel for shard in shards}
            }
            for kinds in kernels_of(shards):
                total += max(float(starts[kind][0]) for kind in kinds)
            total += max((float(start) for _, start in starts.values()), default=0.0)
        return total

    def _coefficients(self, kernel: str, passed: str, terms: Sequence[str]) -> Floats:
        names = (coefficient_name(kernel, passed, term) for term in terms)
        return np.array([self.values.get(name, 0.0) for name in names])
