"""A plan as a JSON document, and how a training job loads it instead of searching for one."""

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torchrec.distributed.planner.enumerators import get_partition_by_type
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    Perf,
    PlanLoader,
    Shard,
    ShardingOption,
    Storage,
)
from torchrec.distributed.types import CacheParams
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from harness.registry import UsageError
from planners.embedding.plan import Plan
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.quality import quality
from planners.embedding.tables import Table

FORMAT = "shardbench-plan"
VERSION = 1


def document(problem: EmbeddingProblem, plan: Plan) -> dict[str, Any]:
    """Return a valid plan of the problem as plain JSON types, tables in the problem's order.

    Each shard has its size and offset in rows and columns, its rank, and torchrec's estimates:
    `storage_bytes`, and `perf_ms` an iteration. `quality` is as `quality.quality` gives it.
    """
    options = {option.name: option for option in plan.options}
    return {
        "format": FORMAT,
        "version": VERSION,
        "world_size": problem.topology.world_size,
        "local_world_size": problem.topology.local_world_size,
        "quality": quality(problem, plan),
        "tables": [_written(table, options[table.name]) for table in problem.tables],
    }


def _written(table: Table, option: ShardingOption) -> dict[str, Any]:
    return {
        "name": table.name,
        "rows": table.rows,
        "dim": table.dim,
        "dtype": table.dtype,
        "pooling_factors": list(table.pooling_factors),
        "sharding_type": option.sharding_type,
        "compute_kernel": option.compute_kernel,
        "cache_load_factor": option.cache_load_factor,
        "shards": [
            {
                "size": [int(length) for length in shard.size],
                "offset": [int(start) for start in shard.offset],
                "rank": int(shard.rank),
                "storage_bytes": {kind: int(size) for kind, size in asdict(shard.storage).items()},
                "perf_ms": {part: float(ms) for part, ms in asdict(shard.perf).items()},
            }
            for shard in option.shards
        ],
    }


@dataclass(frozen=True, slots=True)
class _Placed:
    """A table of a plan file, with the option that was chosen for it."""

    name: str
    rows: int
    dim: int
    dtype: str
    pooling_factors: list[float]
    sharding_type: str
    compute_kernel: str
    cache_load_factor: float | None
    shards: list[Shard]

    @property
    def shape(self) -> str:
        return f"{self.rows} x {self.dim} {self.dtype}"

    @property
    def cache_params(self) -> CacheParams | None:
        if self.cache_load_factor is None:
            return None
        return CacheParams(load_factor=self.cache_load_factor)


class JsonPlanLoader(PlanLoader):
    """Gives a planner the plan of a file, for the training job's own model.

    Pass it as `EmbeddingShardingPlanner(plan_loader=...)`; the planner then enumerates the options
    of the model and takes those of the plan, without a search. Tables are found by their names in
    the EmbeddingBagCollections and EmbeddingCollections of the model, wherever these are in it.
    The file is read and compared with the model at once, so that every rank of a job fails
    together where they disagree.

    With `constraints(path)` the planner enumerates the options of the plan alone. Without them it
    must be constrained as the planner of the plan was: where it enumerates no such option
    (another width of column-wise shards, say), torchrec refuses the plan.

    Raises:
        UsageError: the file cannot be used, or its tables are not those of the model by name,
            rows, dim and dtype, or `world_size`, where given, is not the plan's.
    """

    def __init__(self, path: str | Path, module: nn.Module, world_size: int | None = None) -> None:
        self._file = _File.read(path)
        if world_size not in (None, self._file.world_size):
            raise UsageError(f"{path} is for {self._file.world_size} ranks, not for {world_size}.")
        self._owners = _owners(self._file, module)

    def load(self) -> dict[int, ShardingOption]:
        """Return new options with ranks, by the storage hash that torchrec enumerates them with."""
        options = (self._option(table) for table in self._file.tables)
        return {option.storage_hash(): option for option in options}

    def _option(self, table: _Placed) -> ShardingOption:
        path, owner = self._owners[table.name]
        is_pooled = isinstance(owner, EmbeddingBagCollection)
        weights = owner.embedding_bags if is_pooled else owner.embeddings
        return ShardingOption(
            name=table.name,
            tensor=weights[table.name].weight,
            module=(path, owner),
            input_lengths=table.pooling_factors,
            batch_size=0,  # not asked for: torchrec takes the shards alone from a loaded option
            sharding_type=table.sharding_type,
            partition_by=get_partition_by_type(table.sharding_type),
            compute_kernel=table.compute_kernel,
            shards=copy.deepcopy(table.shards),
            cache_params=table.cache_params,
            is_pooled=is_pooled,
        )

    def plan_context_hash(self) -> None:
        """Return None: torchrec's hash of its inputs is not compared, the tables are."""

    def get_plan_id(self) -> str:
        """Return the file's name and a hash of its content."""
        return self._file.label


def constraints(path: str | Path) -> dict[str, ParameterConstraints]:
    """Return constraints, by table, under which torchrec enumerates a plan's options alone.

    Raises:
        UsageError: the file cannot be used.
    """
    return {
        table.name: ParameterConstraints(
            sharding_types=[table.sharding_type],
            compute_kernels=[table.compute_kernel],
            min_partition=table.shards[0].size[1],
            pooling_factors=table.pooling_factors,
            cache_params=table.cache_params,
        )
        for table in _File.read(path).tables
    }


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    label: str
    world_size: int
    tables: list[_Placed]

    @classmethod
    def read(cls, path: str | Path) -> "_File":
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None
        try:
            said = json.loads(data)
        except ValueError:
            raise UsageError(f"{path} is no plan: it must be JSON.") from None
        if not isinstance(said, dict) or said.get("format") != FORMAT:
            raise UsageError(f"{path} is no plan: its format must be '{FORMAT}'.")
        if said.get("version") != VERSION:
            raise UsageError(
                f"{path} is a plan of version {said.get('version')}; it must be {VERSION}."
            )
        try:
            tables = [_table(table) for table in said["tables"]]
            world_size = int(said["world_size"])
        except KeyError as error:
            raise UsageError(f"{path} is a damaged plan: {error} is missing.") from None
        except (TypeError, ValueError) as error:
            raise UsageError(f"{path} is a damaged plan: {error}.") from None
        label = f"{Path(path).name}#{hashlib.sha256(data).hexdigest()[:8]}"
        return cls(str(path), label, world_size, tables)


def _table(said: Mapping[str, Any]) -> _Placed:
    cached = said["cache_load_factor"]
    shards = [_shard(shard) for shard in said["shards"]]
    if not shards:
        raise ValueError(f"table {said['name']} has no shards")
    return _Placed(
        name=str(said["name"]),
        rows=int(said["rows"]),
        dim=int(said["dim"]),
        dtype=str(said["dtype"]),
        pooling_factors=[float(factor) for factor in said["pooling_factors"]],
        sharding_type=str(said["sharding_type"]),
        compute_kernel=str(said["compute_kernel"]),
        cache_load_factor=None if cached is None else float(cached),
        shards=shards,
    )


def _shard(said: Mapping[str, Any]) -> Shard:
    rows, columns = said["size"]
    row, column = said["offset"]
    return Shard(
        size=[int(rows), int(columns)],
        offset=[int(row), int(column)],
        storage=Storage(**said["storage_bytes"]),
        perf=Perf(**said["perf_ms"]),
        rank=int(said["rank"]),
    )


def _owners(file: _File, module: nn.Module) -> dict[str, tuple[str, nn.Module]]:
    """Return the path and the module that each table of a plan is in, having compared them all."""
    owners: dict[str, tuple[str, nn.Module]] = {}
    placed = {table.name: table for table in file.tables}
    for path, owner, config in _configs(module):
        name = config.name
        if name not in placed:
            raise UsageError(f"{file.path} does not place table {name}, which the model has.")
        if name in owners:
            raise UsageError(f"The model has table {name} twice; a plan knows tables by name.")
        shape = f"{config.num_embeddings} x {config.embedding_dim} {config.data_type.value.lower()}"
        if shape != placed[name].shape:
            raise UsageError(
                f"{file.path} is for a table {name} of {placed[name].shape}, not of {shape}."
            )
        owners[name] = path, owner
    for name in placed:
        if name not in owners:
            raise UsageError(f"{file.path} places table {name}, which the model does not have.")
    return owners


def _configs(module: nn.Module) -> Iterator[tuple[str, nn.Module, Any]]:
    """Yield each table's configuration, with the path and the module that it is in."""
    for path, child in module.named_modules():
        if isinstance(child, EmbeddingBagCollection):
            yield from ((path, child, config) for config in child.embedding_bag_configs())
        elif isinstance(child, EmbeddingCollection):
            yield from ((path, child, config) for config in child.embedding_configs())
