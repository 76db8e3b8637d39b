"""The work of a shard: its size and its lookups, which determine the time to compute it.

Lookups are distributed over the rows of a table: they repeat rows, and some rows are hot.
"""

import csv
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

import numpy as np
import numpy.typing as npt
from torchrec.distributed.planner.estimator.types import ShardPerfContext
from torchrec.distributed.planner.types import Shard, ShardingOption, Topology
from torchrec.distributed.types import ShardingType
from typing_extensions import override

from harness.contract import NotApplicable, UsageError
from planners.embedding.tables.files import ITEM_BYTES
from planners.embedding.tables.torchrec_objects import DTYPES

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_EXPONENT = 1.05  # of Merlin's synthetic models
_SCATTER = 2654435761  # a prime, so that hot rows are not adjacent

_DTYPES = {4.0: "fp32", 2.0: "fp16"}  # by bytes, all that TorchRec's estimator knows


@dataclass(frozen=True, slots=True)
class ShardWork:
    """A shard and the lookups that reach it in one iteration.

    `lookups` has, for each feature, the mean number of indices per sample that reach this shard.
    `samples` counts the samples of all ranks. A row-wise shard with a fraction of its table's rows
    gets the same fraction of the lookups, since ids are assumed to be hashed.
    """

    table: str
    kernel: str
    sharding_type: str
    rows: int
    columns: int
    lookups: tuple[float, ...]
    samples: int
    dtype: str = "fp32"
    is_weighted: bool = False
    share: float = 1.0  # the fraction of the table's lookups that reach this shard
    row_parts: int = 1  # TorchRec divides a table's lookups by this number

    @property
    def group(self) -> tuple[str, str, bool]:
        """A key that is equal for shards that TorchRec looks up with one kernel."""
        return self.sharding_type, self.dtype, self.is_weighted

    @property
    def item_bytes(self) -> int:
        """The bytes of one weight."""
        return ITEM_BYTES[self.dtype]

    @property
    def indices(self) -> float:
        """The number of indices looked up in one iteration."""
        return sum(self.lookups) * self.samples

    @property
    def outputs(self) -> int:
        """The number of pooled vectors of one iteration."""
        return len(self.lookups) * self.samples

    def cut_to(self, rows: int) -> "ShardWork":
        """Return the shard with its rows cut to at most `rows`, and with the same lookups."""
        return self if self.rows <= rows else replace(self, rows=rows)


def work_key(shards: Iterable[ShardWork]) -> str:
    """Return a hash of the shards without table names, equal for ranks with equal work."""
    text = str([replace(shard, table="") for shard in shards])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def kernels_of(shards: Sequence[ShardWork]) -> int:
    """Return the number of kernels that TorchRec creates for the shards of a rank."""
    return len({shard.group for shard in shards})


def shards_by_rank(
    plan: Iterable[ShardingOption], topology: Topology
) -> list[list[tuple[ShardWork, Shard]]]:
    """Return the shards of each rank, as pairs of the work and TorchRec's Shard.

    Raises NotApplicable if a table is not pooled or has no fused kernel.
    """
    ranks: list[list[tuple[ShardWork, Shard]]] = [[] for _ in range(topology.world_size)]
    for option in plan:
        for shard in option.shards:
            ranks[shard.rank].append((_work_of_option(option, shard.size, topology), shard))
    return ranks


def _work_of_option(option: ShardingOption, size: Sequence[int], topology: Topology) -> ShardWork:
    kernel, kind = option.compute_kernel, option.sharding_type
    dtype = DTYPES.get(option.tensor.dtype)
    if not kernel.startswith("fused") or not option.is_pooled or dtype is None:
        raise NotApplicable(
            f"Table {option.name} is {kind} with kernel '{kernel}'"
            f"{'' if option.is_pooled else ', without pooling'}: only pooled tables with fused "
            f"kernels, of {', '.join(ITEM_BYTES)}, are measured."
        )
    rows, columns = size
    parts = _row_parts(kind, topology)
    share = rows / int(option.tensor.shape[0]) if parts > 1 else 1.0
    return ShardWork(
        table=option.name,
        kernel=kernel,
        sharding_type=kind,
        rows=max(rows, 1),
        columns=columns,
        lookups=tuple(float(length) * share for length in option.input_lengths),
        samples=option.batch_size * topology.world_size,
        dtype=dtype,
        is_weighted=bool(option.is_weighted),
        share=share,
        row_parts=parts,
    )


def work_of_context(context: ShardPerfContext) -> ShardWork:
    """Return the work of the shard that a context of TorchRec's estimator describes."""
    parts = _row_parts(context.sharding_type, context)
    share = context.hash_size / max(context.hash_size_for_clamping, 1) if parts > 1 else 1.0
    numbers = zip(context.input_lengths, context.num_poolings, strict=True)
    return ShardWork(
        table=context.table_name,
        kernel=context.compute_kernel,
        sharding_type=context.sharding_type,
        rows=max(context.hash_size, 1),
        columns=context.emb_dim,
        lookups=tuple(length * poolings * share for length, poolings in numbers),
        samples=int(context.batch_sizes[0]) * context.world_size,
        dtype=_DTYPES.get(context.table_data_type_size, "fp32"),
        is_weighted=context.is_weighted,
        share=share,
        row_parts=parts,
    )


def _row_parts(sharding_type: str, machines: Topology | ShardPerfContext) -> int:
    """Return the number of shards that TorchRec divides the lookups of a table among."""
    if sharding_type == ShardingType.ROW_WISE.value:
        return int(machines.world_size)
    if sharding_type in (ShardingType.TABLE_ROW_WISE.value, ShardingType.GRID_SHARD.value):
        return int(machines.intra_group_size)
    return 1


class LookupDistribution(ABC):
    """A distribution of lookups as ranges of rows; the rows of a range are equally likely."""

    name: str

    @abstractmethod
    def ranges(self, rows: int, count: float) -> tuple[Floats, Floats]:
        """Return ranges of a table with `rows` rows for `count` lookups, the hottest range first.

        The arrays are the number of rows in each range, which may be a fraction, and the range's
        share of the lookups.
        """

    def draw(self, rows: int, count: int, rng: np.random.Generator) -> Ints:
        """Draw the row indices of `count` lookups in a table with `rows` rows, shape (count,)."""
        sizes, share = self.ranges(rows, count)
        chosen = rng.choice(len(share), count, p=share)
        row = (np.cumsum(sizes) - sizes)[chosen] + rng.random(count) * sizes[chosen]
        return np.minimum(row.astype(np.int64), rows - 1) * _SCATTER % rows

    def distinct(self, rows: int, count: float) -> float:
        """Return the expected number of distinct rows in `count` lookups."""
        sizes, share = self.ranges(rows, count)
        # A row of probability p is looked up at least once with 1 - (1 - p) ** count.
        chance = np.minimum(share / sizes, 1 - 1e-12)
        return min(float(rows), float((sizes * -np.expm1(count * np.log1p(-chance))).sum()))

    def share_of_hottest(self, rows: int, hottest: float, count: float) -> float:
        """Return the share of `count` lookups that hit the `hottest` most frequent rows."""
        sizes, share = self.ranges(rows, count)
        return float(np.interp(hottest, [0, *np.cumsum(sizes)], [0, *np.cumsum(share)]))


class UniformLookups(LookupDistribution):
    """All rows are equally likely."""

    name = "uniform"

    @override
    def ranges(self, rows: int, count: float) -> tuple[Floats, Floats]:
        return np.array([float(rows)]), np.ones(1)

    @override  # planners call this for every shard; the closed form takes a hundredth of the time
    def distinct(self, rows: int, count: float) -> float:
        return -rows * math.expm1(count * math.log1p(-1 / rows)) if rows > 1 else min(1.0, count)

    @override
    def share_of_hottest(self, rows: int, hottest: float, count: float) -> float:
        return min(1.0, hottest / rows)


class Zipf(LookupDistribution):
    """The probability of the r-th most frequent row is proportional to r ** -exponent.

    The ranges grow geometrically, so that the rows of a range are nearly equally likely.
    """

    def __init__(self, exponent: float = _EXPONENT) -> None:
        self.exponent = exponent
        self.name = f"zipf:{exponent:g}"

    @override
    def ranges(self, rows: int, count: float) -> tuple[Floats, Floats]:
        edges = np.geomspace(1, rows + 1, 200)
        power = 1 - self.exponent
        mass = np.log(edges) if power == 0 else (edges**power - 1) / power
        return np.diff(edges), np.diff(mass) / mass[-1]


class Reuse(LookupDistribution):
    """Rows repeat within a batch as in Meta's dataset of 2021, by a histogram of their reuse.

    The histogram covers all tables and a batch of 65,536; a smaller batch is assumed to repeat its
    rows equally often.
    """

    name = "reuse"

    @override
    def ranges(self, rows: int, count: float) -> tuple[Floats, Floats]:
        share, reuse = _histogram()
        sizes = np.clip(share * count / np.maximum(reuse, 1.0), 1.0, None)
        sizes *= min(1.0, rows / sizes.sum())
        order = np.argsort(-share / sizes)
        return sizes[order], share[order]


@cache
def _histogram() -> tuple[Floats, Floats]:
    """Return each row group's share of all lookups, and the number of lookups of one such row."""
    file = resources.files("planners.embedding") / "data" / "dlrm_datasets_2021_reuse.csv"
    lines = file.read_text("utf-8").splitlines()[1:]
    rows = [(float(row["share"]), float(row["reuse"])) for row in csv.DictReader(lines)]
    share, reuse = np.array(rows).T
    return share / share.sum(), reuse


def distribution_named(text: str) -> LookupDistribution:
    """Return the distribution with this name; raises UsageError for an unknown name."""
    kind, _, exponent = text.partition(":")
    if text in ("uniform", "reuse"):
        return UniformLookups() if text == "uniform" else Reuse()
    if kind == "zipf":
        try:
            value = float(exponent) if exponent else _EXPONENT
        except ValueError:
            value = math.nan
        if 0 < value <= 3:
            return Zipf(value)
    raise UsageError(
        f"--indices must be uniform, zipf, zipf:EXPONENT or reuse, not '{text}'; an exponent is "
        "from 0 to 3."
    )
