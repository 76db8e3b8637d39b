"""Defines, reads and checks the JSON document of a plan."""

import logging
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import Perf, Shard, ShardingOption, Storage, Topology
from torchrec.distributed.types import CacheParams, ParameterSharding, ShardingType

from harness.contract import InfeasibleDecision, UsageError
from planners.embedding.plan_files.checks import check_cut, check_memory, check_ranks
from planners.embedding.tables.files import (
    ITEM_BYTES,
    MOST_DIM,
    MOST_ROWS,
    Lookup,
    lookup_of,
    one_of,
)
from planners.embedding.tables.torchrec_objects import DTYPES

logger = logging.getLogger("shardbench")

# What training reads of a table's constraints: all that a ParameterSharding has but the option.
_OPTION = ("sharding_type", "compute_kernel", "ranks", "sharding_spec")
_TRAINED = {field.name for field in fields(ParameterSharding)}.difference(_OPTION)
_CACHING = "fused_uvm_caching"
# Kernels that keep all weights in memory; others may keep part on disk or allocate it later.
_WHOLE_IN_MEMORY = ("dense", "fused", "fused_uvm", _CACHING)

Ranks = Annotated[int, Meta(ge=1, le=2**17)]
Length = Annotated[int, Meta(ge=0, le=MOST_ROWS)]
Pair = Annotated[list[Length], Meta(min_length=2, max_length=2)]  # rows and columns
Bytes = Annotated[int, Meta(ge=0, le=2**62)]  # more than any memory
Amount = Annotated[float, Meta(ge=0, lt=2**63)]


class _Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the document; unknown fields are errors."""


class StorageEntry(_Entry, frozen=True):
    """The storage that a shard takes, in bytes, by torchrec's estimate."""

    hbm: Bytes
    ddr: Bytes
    ssd: Bytes = 0


class PerfEntry(_Entry, frozen=True):
    """The time that a shard takes per iteration, in milliseconds, by torchrec's estimate."""

    fwd_compute: Amount
    fwd_comms: Amount
    bwd_compute: Amount
    bwd_comms: Amount
    input_dist_comms: Amount = 0.0
    prefetch_compute: Amount = 0.0


class ShardEntry(_Entry, frozen=True):
    """A shard: size and offset in rows and columns, rank, and torchrec's estimates."""

    size: Pair
    offset: Pair
    rank: Annotated[int, Meta(ge=0)]
    storage: StorageEntry = msgspec.field(name="storage_bytes")
    perf: PerfEntry = msgspec.field(name="perf_ms")

    @classmethod
    def of(cls, shard: Shard) -> "ShardEntry":
        """Return the entry of a shard, which must have a rank."""
        return cls(
            size=[*map(int, shard.size)],
            offset=[*map(int, shard.offset)],
            rank=int(shard.rank),
            storage=StorageEntry(**{kind: int(n) for kind, n in vars(shard.storage).items()}),
            perf=PerfEntry(**{part: float(ms) for part, ms in vars(shard.perf).items()}),
        )

    def shard(self) -> Shard:
        """Return a new torchrec Shard."""
        return Shard(
            size=list(self.size),
            offset=list(self.offset),
            storage=Storage(**msgspec.structs.asdict(self.storage)),
            perf=Perf(**msgspec.structs.asdict(self.perf)),
            rank=self.rank,
        )


class TableEntry(_Entry, frozen=True, omit_defaults=True):
    """A table and its chosen sharding option, with a list of shards.

    `constrained` has the names of constraints that training reads and the document does not have.
    """

    name: str
    rows: Annotated[int, Meta(ge=1, le=MOST_ROWS)]
    dim: Annotated[int, Meta(ge=1, le=MOST_DIM)]
    dtype: Annotated[str, one_of(ITEM_BYTES)]
    pooling_factors: list[Amount]
    sharding_type: Annotated[str, one_of([kind.value for kind in ShardingType])]
    compute_kernel: str
    cache_load_factor: int | float | None  # an int stays one, since torchrec hashes its text
    shards: Annotated[list[ShardEntry], Meta(min_length=1)]
    constrained: list[str] = []
    lookup: Lookup = "pooled"

    @classmethod
    def of(cls, option: ShardingOption) -> "TableEntry":
        """Return the entry of a table from its chosen option, whose shards have ranks."""
        constrained = {name for name in _TRAINED if getattr(option, name, None) is not None}
        if option.cache_params == CacheParams(load_factor=option.cache_load_factor):
            constrained.discard("cache_params")
        rows, dim = map(int, option.tensor.shape)
        return cls(
            name=option.name,
            rows=rows,
            dim=dim,
            dtype=DTYPES[option.tensor.dtype],
            pooling_factors=[*map(float, option.input_lengths)],
            lookup=lookup_of(option.is_pooled, option.is_weighted),
            sharding_type=option.sharding_type,
            compute_kernel=option.compute_kernel,
            cache_load_factor=option.cache_load_factor,
            shards=[*map(ShardEntry.of, option.shards)],
            constrained=sorted(constrained),
        )

    @property
    def size(self) -> tuple[int, int]:
        """The table's rows and columns."""
        return self.rows, self.dim

    @property
    def cache_params(self) -> CacheParams | None:
        """The cache parameters of the table, or None if the plan has none."""
        factor = self.cache_load_factor
        return None if factor is None else CacheParams(load_factor=factor)

    def check_kernel(self, device: str) -> None:
        """Raise InfeasibleDecision unless torchrec can train the kernel on this kind of device."""
        kernel, load_factor = self.compute_kernel, self.cache_load_factor
        allowed = EmbeddingBagCollectionSharder().compute_kernels(self.sharding_type, device)
        if kernel not in allowed:
            raise InfeasibleDecision(
                f"The kernel of table {self.name} must be one of {', '.join(allowed)}, as it is "
                f"{self.sharding_type} on {device}, not '{kernel}'."
            )
        if kernel == _CACHING and load_factor is not None and not 0 < load_factor < 1:
            raise InfeasibleDecision(
                f"The cache load factor of table {self.name} must be between 0 and 1, as its "
                f"kernel is {_CACHING}, not {load_factor}."
            )
        for number, shard in enumerate(self.shards):
            weights = shard.size[0] * shard.size[1] * ITEM_BYTES[self.dtype]
            if device == "cpu" and not weights:
                raise InfeasibleDecision(
                    f"Shard {number} of table {self.name} is empty; no kernel trains that on cpu."
                )
            if kernel in _WHOLE_IN_MEMORY and shard.storage.hbm + shard.storage.ddr < weights:
                raise InfeasibleDecision(
                    f"Shard {number} of table {self.name} has weights of {weights} bytes and must "
                    "have as much storage."
                )


class PlanDocument(_Entry, frozen=True, omit_defaults=True):
    """A plan as a document, with tables in the problem's order.

    `local_world_size` is torchrec's `intra_group_size`: the ranks of a host, or of a pod of hosts.
    `changes` has a sentence for each change that the plan needs, if the problem itself has no plan.
    """

    format: Literal["shardbench-plan"]
    version: Literal[1]
    world_size: Ranks
    local_world_size: Ranks
    quality: dict[str, float]
    tables: Annotated[list[TableEntry], Meta(min_length=1)]
    changes: list[str] = []

    def __post_init__(self) -> None:
        [(name, times)] = Counter(table.name for table in self.tables).most_common(1)
        if times > 1:
            raise ValueError(f"it places table {name} {times} times")
        for table in self.tables:
            if (rank := max(shard.rank for shard in table.shards)) >= self.world_size:
                raise ValueError(f"table {table.name} is on rank {rank} of {self.world_size}")

    @classmethod
    def of(
        cls,
        topology: Topology,
        quality: dict[str, float],
        plan: Iterable[ShardingOption],
        *changes: str,
    ) -> "PlanDocument":
        """Return the document of a plan, with a warning if no job on the topology can load it."""
        document = cls(
            format="shardbench-plan",
            version=1,
            world_size=topology.world_size,
            local_world_size=topology.intra_group_size,
            quality=quality,
            tables=[*map(TableEntry.of, plan)],
            changes=list(changes),
        )
        try:
            document.check(topology)
        except InfeasibleDecision as error:
            logger.warning("No training job can load this plan: %s", error)
        return document

    def check(self, topology: Topology | None = None) -> None:
        """Raise InfeasibleDecision unless DistributedModelParallel can train all tables.

        On `topology`, if given; else on GPUs.
        """
        device, hosts = "cuda", {self.local_world_size}
        if topology:
            device, hosts = topology.compute_device, hosts | {topology.intra_group_size}
        for table in self.tables:
            table.check_kernel(device)
            for host_ranks in hosts:
                check_cut(table, table.size, self.world_size, host_ranks)
                check_ranks(table, self.world_size, host_ranks)
        if topology:
            shards = [shard for table in self.tables for shard in table.shards]
            storages = [device.storage for device in topology.devices]
            check_memory(shards, [s.hbm for s in storages], [s.ddr for s in storages])


def parse_plan(path: str | Path, data: bytes) -> PlanDocument:
    """Parse a plan; `data` is the content of the file `path`. Raises UsageError if damaged."""
    try:
        return msgspec.json.decode(data, type=PlanDocument)
    except (ValueError, RecursionError) as error:  # explained below
        reason = str(error)
    try:
        content = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is no plan: it must be JSON.") from None
    header = content if isinstance(content, dict) else {}
    if header.get("format") != "shardbench-plan":
        raise UsageError(f"{path} is no plan: its format must be 'shardbench-plan'.")
    if header.get("version") != 1 or header["version"] is True:
        raise UsageError(f"{path} is a plan of version {header.get('version')}; it must be 1.")
    if number := re.search(r"\$\.tables\[(\d+)\]", reason):
        with suppress(LookupError, TypeError):  # the name may be damaged, too
            reason += f", table {content['tables'][int(number[1])]['name']}"
    raise UsageError(f"{path} is a damaged plan: {reason}.")
