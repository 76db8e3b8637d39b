"""The terms of a shard's time, whose coefficients are fitted, in two forms.

`TORCHREC` has the terms of TorchRec's own estimate: what is read, looked up and written, in bytes.
`CACHED` knows beside them that a kernel takes time to start, that an index costs time whatever the
row's width, and that rows which are named again are in a cache if that holds them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torchrec.distributed.planner.estimator.estimator import compute_block_usage_penalty

from planners.embedding.calibration.indices import Indices
from planners.embedding.calibration.shards import ShardWork

Floats = npt.NDArray[np.float64]

_INDEX_BYTES = 8
LAUNCH = "launch"
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
    ("index", "near", "far", "missed", "row", "row_bytes", "written", "output"),
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
    neither, which all are that are named for the first time; different rows, and their bytes;
    bytes of pooled vectors, and pooled vectors.
    """
    count, width = shard.indices, shard.columns * shard.item_bytes
    distinct = indices.distinct(shard.rows, count) if count else 0.0
    again = max(count - distinct, 0.0)
    in_near, in_far = (
        indices.share_of_hottest(shard.rows, size / width, count) if count else 0.0
        for size in caches
    )
    near, far = again * in_near, again * max(in_far - in_near, 0.0)
    lookups = np.array([near, far, count - near - far, distinct / width, distinct])
    return np.array(
        [count, *(lookups * width), shard.outputs * width, shard.outputs], dtype=np.float64
    )


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
