"""The work of a shard: its size and its lookups, which determine the time to compute it."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torchrec.distributed.planner.estimator.types import ShardPerfContext
from torchrec.distributed.planner.types import Shard, ShardingOption, Topology
from torchrec.distributed.types import ShardingType

from harness.contract import NotApplicable
from planners.embedding.tables.files import ITEM_BYTES
from planners.embedding.tables.torchrec_objects import DTYPES

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
