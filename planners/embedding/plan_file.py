"""A plan as a JSON document, and how a training job loads it instead of searching for one."""

import copy
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from torch import nn
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.enumerators import get_partition_by_type
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    Perf,
    PlanLoader,
    Shard,
    ShardingOption,
    Storage,
)
from torchrec.distributed.types import CacheParams, ShardingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from harness.registry import UsageError, read_file
from planners.embedding.plan import Plan
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.quality import quality
from planners.embedding.tables import Table

FORMAT = "shardbench-plan"
VERSION = 1
_MOST = 2**63


def document(problem: EmbeddingProblem, plan: Plan) -> dict[str, Any]:
    """Return a valid plan of the problem as plain JSON types, tables in the problem's order.

    Each shard has its size and offset in rows and columns, its rank, and torchrec's estimates:
    `storage_bytes`, and `perf_ms` an iteration. `quality` is as `quality.quality` gives it.

    Raises:
        UsageError: two modules have a table of one name, by which a plan file knows tables.
    """
    for name, times in Counter(table.name for table in problem.tables).items():
        if times > 1:
            raise UsageError(f"Table {name} is in {times} modules; a plan knows tables by name.")
    options = {option.fqn: option for option in plan.options}
    return {
        "format": FORMAT,
        "version": VERSION,
        "world_size": problem.topology.world_size,
        "local_world_size": problem.topology.local_world_size,
        "quality": quality(problem, plan),
        "tables": [
            _written(table, options[fqn])
            for fqn, table in zip(problem.fqns, problem.tables, strict=True)
        ],
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
        data = read_file(path)
        try:
            said = json.loads(data)
        except (ValueError, RecursionError):
            raise UsageError(f"{path} is no plan: it must be JSON.") from None
        if not isinstance(said, dict) or said.get("format") != FORMAT:
            raise UsageError(f"{path} is no plan: its format must be '{FORMAT}'.")
        if said.get("version") != VERSION:
            raise UsageError(
                f"{path} is a plan of version {said.get('version')}; it must be {VERSION}."
            )
        try:
            tables = [_table(table) for table in _list(said, "tables")]
            world_size = _whole(said, "world_size", least=1)
            _check_placed(tables, world_size)
        except KeyError as error:
            raise UsageError(f"{path} is a damaged plan: {error} is missing.") from None
        except (TypeError, ValueError) as error:
            raise UsageError(f"{path} is a damaged plan: {error}.") from None
        label = f"{Path(path).name}#{hashlib.sha256(data).hexdigest()[:8]}"
        return cls(str(path), label, world_size, tables)


def _table(said: Any) -> _Placed:
    if not isinstance(said, dict):
        raise TypeError("each of its tables must be an object")
    name = _text(said, "name")
    shards = [_shard(shard) for shard in _list(said, "shards")]
    if not shards:
        raise ValueError(f"table {name} has no shards")
    cached = said["cache_load_factor"]
    return _Placed(
        name=name,
        rows=_whole(said, "rows", least=1),
        dim=_whole(said, "dim", least=1),
        dtype=_text(said, "dtype"),
        pooling_factors=[
            _number({"pooling_factors": factor}, "pooling_factors")
            for factor in _list(said, "pooling_factors")
        ],
        sharding_type=_text(said, "sharding_type", [each.value for each in ShardingType]),
        compute_kernel=_text(
            said, "compute_kernel", [each.value for each in EmbeddingComputeKernel]
        ),
        cache_load_factor=None if cached is None else _number(said, "cache_load_factor"),
        shards=shards,
    )


def _shard(said: Any) -> Shard:
    if not isinstance(said, dict):
        raise TypeError("each of its shards must be an object")
    storage, perf = said["storage_bytes"], said["perf_ms"]
    if not isinstance(storage, dict) or not isinstance(perf, dict):
        raise TypeError("storage_bytes and perf_ms must be objects")
    return Shard(
        size=_pair(said, "size"),
        offset=_pair(said, "offset"),
        storage=Storage(**{name: _whole(storage, name) for name in _held(Storage, storage)}),
        perf=Perf(**{name: _number(perf, name) for name in _held(Perf, perf)}),
        rank=_whole(said, "rank"),
    )


def _held(kind: type[Storage | Perf], said: Mapping[str, Any]) -> list[str]:
    """Return the fields of a kind of estimate that a file has; torchrec has defaults for some."""
    return [field.name for field in fields(kind) if field.name in said]


def _check_placed(tables: list[_Placed], world_size: int) -> None:
    names = [table.name for table in tables]
    if len(set(names)) < len(names):
        raise ValueError("it places a table twice")
    if any(shard.rank >= world_size for table in tables for shard in table.shards):
        raise ValueError(f"it must place shards on ranks below world_size, which is {world_size}")


def _list(said: Mapping[str, Any], key: str) -> list[Any]:
    if not isinstance(said[key], list):
        raise TypeError(f"{key} must be a list")
    return list(said[key])


def _text(said: Mapping[str, Any], key: str, allowed: Sequence[str] = ()) -> str:
    value = said[key]
    if not isinstance(value, str) or (allowed and value not in allowed):
        what = f"one of {', '.join(allowed)}" if allowed else "a text"
        raise TypeError(f"{key} must be {what}")
    return value


def _whole(said: Mapping[str, Any], key: str, least: int = 0) -> int:
    value = said[key]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < _MOST:
        raise TypeError(f"{key} must be a whole number from {least} to below 2^63")
    return value


def _number(said: Mapping[str, Any], key: str) -> float:
    value = said[key]
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _MOST:
        raise TypeError(f"{key} must hold no number but one from 0 to below 2^63")
    return float(value)


def _pair(said: Mapping[str, Any], key: str) -> list[int]:
    values = _list(said, key)
    if len(values) != 2:
        raise ValueError(f"{key} must be rows and columns")
    return [_whole({key: value}, key) for value in values]


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
