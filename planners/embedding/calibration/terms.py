"""The terms of a shard's time, whose coefficients are fitted, in two forms.

`TORCHREC` has the terms of TorchRec's own estimate: what is read, looked up and written, in bytes.
`CACHED` knows beside them

- that a pass takes time to start, and each kernel of it again;
- that an index costs time whatever the row's width;
- that rows which are named again are in a cache if that holds them, and that pages of memory which
  are touched for the first time have to be found;
- that the backward pass of weighted lookups reads each row once more, for the gradient of its
  weight, and that of a table which several features share merges their gradients row by row.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torchrec.distributed.planner.estimator.estimator import compute_block_usage_penalty

from planners.embedding.calibration.indices import Indices
from planners.embedding.calibration.shards import ShardWork

Floats = npt.NDArray[np.float64]

_INDEX_BYTES = 8
_PAGE_BYTES = 4096
LAUNCH, START = "launch", "start"  # of each kernel, and of a pass beside it
PASSES = ("forward", "backward")


class Caches(NamedTuple):
    """Bytes of two caches: the near one, and the far one, which holds the near one's too."""

    near: float
    far: float


class Form(NamedTuple):
    """The terms of a form, each with a unit; a kernel's own term is the last one."""

    name: str
    terms: tuple[str, ...]


TORCHREC = Form("torchrec", ("input", "lookup", "output", "rows"))
CACHED = Form(
    "cached",
    (
        *("index", "near", "far", "missed", "page", "row", "row_bytes", "written", "output"),
        *("weighted_near", "weighted_far", "weighted_missed"),
        *("shared_read", "shared_row", "shared_row_bytes"),
    ),
)


def torchrec_terms(shard: ShardWork) -> Floats:
    """Return bytes of indices, of rows looked up and of output, and rows, as TorchRec has them.

    TorchRec takes the lookups of a row-wise table to be divided evenly, whatever rows a shard has.
    """
    of_table = sum(shard.lookups) / shard.share if shard.share else 0.0
    indices = of_table / shard.row_parts * shard.samples
    width = shard.columns * shard.item_bytes
    read = _INDEX_BYTES * indices * (2 if shard.is_weighted else 1)
    return np.array([read, indices * width, shard.outputs * width, shard.rows], np.float64)


def cached_terms(shard: ShardWork, caches: Caches, indices: Indices) -> Floats:
    """Return the terms of an iteration in the order of `CACHED.terms`.

    They are: indices; bytes of rows that are found in the near cache, in the far one, and in
    neither, which all are that are named for the first time; pages that are touched; different
    rows, and their bytes; bytes of pooled vectors, and pooled vectors. Where lookups are weighted:
    bytes of rows in the three places again. Where features share the table: bytes of rows,
    different rows, and their bytes again.
    """
    count, width = shard.indices, shard.columns * shard.item_bytes
    distinct = indices.distinct(shard.rows, count) if count else 0.0
    pages = max(shard.rows * width / _PAGE_BYTES, 1.0)
    touched = -pages * math.expm1(-distinct / pages)
    again = max(count - distinct, 0.0)
    in_near, in_far = (
        indices.share_of_hottest(shard.rows, size / width, count) if count else 0.0
        for size in caches
    )
    near, far = again * in_near, again * max(in_far - in_near, 0.0)
    places = np.array([near, far, count - near - far]) * width
    rows = np.array([distinct, distinct * width])
    written = [shard.outputs * width, shard.outputs]
    shared = np.array([count * width, *rows]) * (len(shard.lookups) > 1)
    terms = [count, *places, touched, *rows, *written, *(places * shard.is_weighted), *shared]
    return np.array(terms, dtype=np.float64)


def kernels_of(shards: Sequence[ShardWork]) -> int:
    """Return how many kernels TorchRec makes of the shards of a rank."""
    return len({shard.group for shard in shards})


def torchrec_bytes(shard: ShardWork) -> float:
    """Return the bytes that TorchRec's default estimate divides by the bandwidth, penalties in it.

    Table- and column-wise shards narrower than 128 have a penalty, and count as 32 wide at least.
    """
    read, looked_up, written, _ = torchrec_terms(shard)
    if shard.row_parts > 1:
        return float(read + looked_up + written)
    looked_up *= max(shard.columns, 32) / shard.columns
    return float((read + looked_up + written) * compute_block_usage_penalty(shard.columns))
