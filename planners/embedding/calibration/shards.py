"""The shards of a rank, as what they compute depends on them."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torchrec.distributed.planner.types import Shard, ShardingOption, Topology
from torchrec.distributed.types import ShardingType

from harness.contract import NotApplicable

_BY_ROWS = (ShardingType.ROW_WISE.value,)
_BY_ROWS_OF_HOSTS = (ShardingType.TABLE_ROW_WISE.value, ShardingType.GRID_SHARD.value)


@dataclass(frozen=True, slots=True)
class ShardWork:
    """A shard and the lookups that reach it in one iteration.

    `lookups` are the mean indices per sample of each feature that reach this shard, `samples` those
    of all ranks together. A row-wise shard gets the part of its table's lookups that it has of the
    table's rows: ids are taken to be hashed.
    """

    table: str
    kernel: str
    sharding_type: str
    rows: int
    columns: int
    lookups: tuple[float, ...]
    samples: int
    dtype: str = "float32"
    is_weighted: bool = False
    share: float = 1.0  # the part of its table's lookups that reach it
    row_parts: int = 1  # TorchRec divides a table's lookups by so many

    @property
    def group(self) -> tuple[str, str, bool]:
        """Equal for shards that TorchRec looks up with one kernel."""
        return self.sharding_type, self.dtype, self.is_weighted

    @property
    def item_bytes(self) -> int:
        """Bytes of one weight."""
        return 4 if self.dtype == "float32" else 2

    @property
    def indices(self) -> float:
        """The indices of one iteration."""
        return sum(self.lookups) * self.samples

    @property
    def outputs(self) -> int:
        """The pooled vectors of one iteration."""
        return len(self.lookups) * self.samples

    def cut_to(self, rows: int) -> "ShardWork":
        """Return the shard with so many rows at most; its lookups stay."""
        return self if self.rows <= rows else replace(self, rows=rows)


def work_key(shards: Iterable[ShardWork]) -> str:
    """Return a text that is equal for ranks that compute the same, whatever tables are called."""
    said = str([replace(shard, table="") for shard in shards])
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def shards_by_rank(
    plan: Iterable[ShardingOption], topology: Topology
) -> list[list[tuple[ShardWork, Shard]]]:
    """Return the shards of each rank in the order of the tables, each with TorchRec's own object.

    Raises NotApplicable for what is not looked up by fused kernels with pooling.
    """
    ranks: list[list[tuple[ShardWork, Shard]]] = [[] for _ in range(topology.world_size)]
    for option in plan:
        for shard in option.shards:
            ranks[shard.rank].append((shard_work(option, shard.size, topology), shard))
    return ranks


def shard_work(option: ShardingOption, size: Sequence[int], topology: Topology) -> ShardWork:
    """Return what a shard of this size computes; raises NotApplicable as `shards_by_rank`."""
    kernel, kind = option.compute_kernel, option.sharding_type
    if not kernel.startswith("fused") or not option.is_pooled:
        raise NotApplicable(
            f"Table {option.name} is {kind} with kernel '{kernel}'"
            f"{'' if option.is_pooled else ', without pooling'}: what is measured are pooled "
            "tables with fused kernels."
        )
    parts = 1
    if kind in _BY_ROWS:
        parts = topology.world_size
    elif kind in _BY_ROWS_OF_HOSTS:
        parts = topology.intra_group_size
    rows, columns = size
    table_rows = int(option.tensor.shape[0])
    share = rows / table_rows if parts > 1 else 1.0
    return ShardWork(
        table=option.name,
        kernel=kernel,
        sharding_type=kind,
        rows=max(rows, 1),
        columns=columns,
        lookups=tuple(float(length) * share for length in option.input_lengths),
        samples=option.batch_size * topology.world_size,
        dtype=str(option.tensor.dtype).removeprefix("torch."),
        is_weighted=bool(option.is_weighted),
        share=share,
        row_parts=parts,
    )
