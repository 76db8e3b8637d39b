"""The work of a shard: its size and its lookups, which determine the time to compute it."""

import csv
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.constants import UVM_CACHING_RATIO
from torchrec.distributed.planner.estimator.types import ShardPerfContext
from torchrec.distributed.planner.types import Shard, ShardingOption, Topology

from harness.contract import NotApplicable, UsageError
from planners.embedding.tables.files import ITEM_BYTES
from planners.embedding.tables.torchrec_objects import DTYPES

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CACHING = EmbeddingComputeKernel.FUSED_UVM_CACHING.value
"""The kernel whose rows are in host memory, with a cache of rows in the device's memory."""

_ZIPF, _REUSE = "indices.zipf", "indices.reuse"
_EXPONENT = 1.05  # of Merlin's synthetic models
_ZIPF_RANGES = 199  # that grow geometrically, so that the rows of a range are nearly equally likely
_SCATTER = 2654435761  # a prime, so that hot rows are not adjacent


@dataclass(frozen=True, slots=True)
class ShardWork:
    """A shard and the lookups that reach it in one iteration.

    `lookups` has, for each feature, the mean number of indices per sample that reach this shard.
    `samples` counts the samples of all ranks. A row-wise shard with a fraction of its table's rows
    gets the same fraction of the lookups, since ids are assumed to be hashed.
    """

    kernel: str
    sharding_type: str
    rows: int
    columns: int
    lookups: tuple[float, ...]
    samples: int
    dtype: str = "fp32"
    is_weighted: bool = False
    share: float = 1.0  # the fraction of the table's rows and lookups
    is_pooled: bool = True
    cached: float = 0.0  # the rows that fit into the device's cache, as a fraction; for CACHING

    @property
    def group(self) -> tuple[str, str, bool]:
        """A key that is equal for shards that TorchRec looks up with one kernel."""
        return self.sharding_type, self.dtype, self.is_weighted

    @property
    def row_bytes(self) -> int:
        """The bytes of the weights of one row."""
        return self.columns * ITEM_BYTES[self.dtype]

    @property
    def indices(self) -> float:
        """The number of indices looked up in one iteration."""
        return sum(self.lookups) * self.samples

    @property
    def outputs(self) -> int:
        """The number of vectors that one iteration writes."""
        return len(self.lookups) * self.samples if self.is_pooled else round(self.indices)

    def cut_to(self, rows: int) -> "ShardWork":
        """Return the shard with its rows cut to at most `rows`, and with the same lookups."""
        return replace(self, rows=min(self.rows, rows))


def work_key(shards: Sequence[ShardWork]) -> str:
    """Return a hash of the shards of a rank, equal for ranks with equal work."""
    return hashlib.sha256(str(list(shards)).encode()).hexdigest()[:16]


def kernels_of(shards: Sequence[ShardWork]) -> list[set[str]]:
    """Return the kinds of tables of each kernel that TorchRec creates for the shards of a rank.

    TorchRec looks up tables on the device, managed and cached ones with one kernel.
    """
    groups: dict[tuple[str, str, bool], set[str]] = {}
    for shard in shards:
        groups.setdefault(shard.group, set()).add(shard.kernel)
    return list(groups.values())


def shards_by_rank(
    plan: Iterable[ShardingOption], topology: Topology
) -> list[list[tuple[str, ShardWork, Shard]]]:
    """Return the shards of each rank: the table's name, the work and TorchRec's Shard.

    Raises NotApplicable if a table is not pooled or has no fused kernel.
    """
    ranks: list[list[tuple[str, ShardWork, Shard]]] = [[] for _ in range(topology.world_size)]
    for option in plan:
        kernel, kind = option.compute_kernel, option.sharding_type
        dtype = DTYPES.get(option.tensor.dtype)
        if not kernel.startswith("fused") or not option.is_pooled or dtype is None:
            raise NotApplicable(
                f"Table {option.name} is {kind} with kernel '{kernel}'"
                f"{'' if option.is_pooled else ', without pooling'}: only pooled tables with fused "
                f"kernels, of {', '.join(ITEM_BYTES)}, are measured."
            )
        for shard in option.shards:
            rows, columns = shard.size
            share = rows / int(option.tensor.shape[0])
            work = ShardWork(
                kernel,
                kind,
                max(rows, 1),
                columns,
                tuple(float(length) * share for length in option.input_lengths),
                option.batch_size * topology.world_size,
                dtype,
                bool(option.is_weighted),
                share,
                cached=_cached(kernel, option.cache_load_factor),
            )
            ranks[shard.rank].append((option.name, work, shard))
    return ranks


def work_of_context(context: ShardPerfContext) -> ShardWork:
    """Return the work of the shard that a context of TorchRec's estimator describes."""
    share = context.hash_size / context.hash_size_for_clamping
    numbers = zip(context.input_lengths, context.num_poolings, strict=True)
    return ShardWork(
        context.compute_kernel,
        context.sharding_type,
        max(context.hash_size, 1),
        context.emb_dim,
        tuple(length * poolings * share for length, poolings in numbers),
        int(context.batch_sizes[0]) * context.world_size,
        "fp16" if context.table_data_type_size == 2 else "fp32",  # of this size
        context.is_weighted,
        share,
        context.is_pooled,
        _cached(context.compute_kernel, context.caching_ratio),
    )


def _cached(kernel: str, ratio: float | None) -> float:
    return (ratio or UVM_CACHING_RATIO) if kernel == CACHING else 0.0


@dataclass(frozen=True, slots=True)
class LookupDistribution:
    """How lookups are distributed over the rows of a table: uniform, unless a field says otherwise.

    Attributes:
        exponent: of Zipf's law, if above 0: the probability of the r-th most frequent row is
            proportional to r ** -exponent.
        is_reuse: whether rows repeat within a batch as in Meta's dataset of 2021. The histogram of
            their reuse covers all tables and a batch of 65,536; a smaller batch is assumed to
            repeat its rows equally often.
    """

    exponent: float = 0.0
    is_reuse: bool = False

    @classmethod
    def named(cls, text: str) -> "LookupDistribution":
        """Return the distribution with this name; raises UsageError for an unknown name."""
        if text in ("uniform", "reuse"):
            return cls(is_reuse=text == "reuse")
        kind, _, exponent = text.partition(":")
        try:
            value = float(exponent or _EXPONENT) if kind == "zipf" else math.nan
        except ValueError:
            value = math.nan
        if not 0 < value <= 3:
            raise UsageError(
                f"--indices must be uniform, zipf, zipf:EXPONENT or reuse, not '{text}'; an "
                "exponent is from 0 to 3."
            )
        return cls(value)

    @classmethod
    def of_coefficients(cls, values: Mapping[str, float]) -> "LookupDistribution":
        """Return the distribution that a machine's coefficients were measured with."""
        return cls(values.get(_ZIPF, 0.0), bool(values.get(_REUSE)))

    @property
    def coefficients(self) -> dict[str, float]:
        """The coefficients that `of_coefficients` reads."""
        if self.is_reuse:
            return {_REUSE: 1.0}
        return {_ZIPF: self.exponent} if self.exponent else {}

    def draw(self, rows: int, count: int, rng: np.random.Generator) -> Ints:
        """Draw the row indices of `count` lookups in a table with `rows` rows, shape (count,)."""
        sizes, share = self._ranges(rows, count)
        chosen = rng.choice(len(share), count, p=share)
        row = (np.cumsum(sizes) - sizes)[chosen] + rng.random(count) * sizes[chosen]
        return np.minimum(row.astype(np.int64), rows - 1) * _SCATTER % rows

    def distinct(self, rows: int, count: float) -> float:
        """Return the expected number of distinct rows in `count` lookups."""
        # A row of probability p is looked up at least once with 1 - (1 - p) ** count.
        if self == _UNIFORM:  # planners ask for every shard; arrays take a hundred times as long
            return (
                -rows * math.expm1(count * math.log1p(-1 / rows)) if rows > 1 else min(1.0, count)
            )
        sizes, share = self._ranges(rows, count)
        chance = np.minimum(share / sizes, 1 - 1e-12)
        return min(float(rows), float((sizes * -np.expm1(count * np.log1p(-chance))).sum()))

    def share_of_hottest(self, rows: int, hottest: float, count: float) -> float:
        """Return the share of `count` lookups that hit the `hottest` most frequent rows."""
        if self == _UNIFORM:
            return min(1.0, hottest / rows)
        sizes, share = self._ranges(rows, count)
        return float(np.interp(hottest, [0, *np.cumsum(sizes)], [0, *np.cumsum(share)]))

    def _ranges(self, rows: int, count: float) -> tuple[Floats, Floats]:
        """Return ranges of about equally likely rows for `count` lookups, the hottest range first.

        The arrays are the number of rows in each range, which may be a fraction, and the range's
        share of the lookups.
        """
        if self.exponent:
            edges = np.geomspace(1, rows + 1, _ZIPF_RANGES + 1)
            power = 1 - self.exponent
            mass = np.log(edges) if power == 0 else (edges**power - 1) / power
            return np.diff(edges), np.diff(mass) / mass[-1]
        if self.is_reuse:
            share, reuse = _histogram()
            sizes = np.clip(share * count / np.maximum(reuse, 1.0), 1.0, None)
            sizes *= min(1.0, rows / sizes.sum())
            order = np.argsort(-share / sizes)
            return sizes[order], share[order]
        return np.array([float(rows)]), np.ones(1)


_UNIFORM = LookupDistribution()


def missed_shares(shards: Sequence[ShardWork], distribution: LookupDistribution) -> list[float]:
    """Return, for each shard of a rank, the share of an iteration's distinct rows to be fetched.

    Rows are fetched from host memory if the device's cache lacks them; other kernels than CACHING
    fetch none. The shards of a group share a cache, which evicts the least recently used row: it
    keeps a row for the same number of iterations T, whichever its table (Che, Tung and Wang 2002).
    """
    missed = [0.0] * len(shards)
    groups: dict[tuple[str, str, bool], list[int]] = {}
    for number, shard in enumerate(shards):
        if shard.kernel == CACHING and shard.indices:
            groups.setdefault(shard.group, []).append(number)
    for members in groups.values():
        # 1. Ranges of equally likely rows, and how often an iteration looks up such a row.
        ranges, rates = [], []
        for shard in (shards[number] for number in members):
            sizes, share = distribution._ranges(shard.rows, shard.indices)
            ranges.append(sizes)
            rates.append(share * shard.indices / sizes)
        sizes, rate = np.concatenate(ranges), np.concatenate(rates)
        room = sum(shards[number].cached * shards[number].rows for number in members)
        if room >= sizes.sum():
            continue
        # 2. The T for which the rows of the last T iterations just fill the cache.
        kept = math.exp(
            brentq(
                lambda log: float(-(sizes @ np.expm1(-rate * math.exp(log)))) - room,  # noqa: B023
                math.log(1e-9 / rate.max()),
                math.log(1e3 / rate.min()),
            )
        )
        # 3. A row is missed if it was in none of the last T iterations.
        for number, size, of_row in zip(members, ranges, rates, strict=True):
            looked_up = size * -np.expm1(-of_row)
            missed[number] = float(looked_up @ np.exp(-of_row * kept) / looked_up.sum())
    return missed


@cache
def _histogram() -> tuple[Floats, Floats]:
    """Return each row group's share of all lookups, and the number of lookups of one such row."""
    file = resources.files("planners.embedding") / "data" / "dlrm_datasets_2021_reuse.csv"
    rows = csv.DictReader(file.read_text("utf-8").splitlines()[1:])
    share, reuse = np.array([(row["share"], row["reuse"]) for row in rows], float).T
    return share / share.sum(), reuse
