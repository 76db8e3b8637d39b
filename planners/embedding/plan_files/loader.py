"""Loads a plan from its file in a training job, instead of searching for one."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.planner.enumerators import get_partition_by_type
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    PlanLoader,
    ShardingOption,
    Topology,
)
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from harness.contract import UsageError, read_file
from planners.embedding.plan_files.document import TableEntry, read_plan


def plan_constraints(path: str | Path) -> dict[str, ParameterConstraints]:
    """Return constraints by table name, so that torchrec enumerates only the plan's options."""
    return {
        table.name: ParameterConstraints(
            sharding_types=[table.sharding_type],
            compute_kernels=[table.compute_kernel],
            min_partition=table.shards[0].size[1],
            pooling_factors=table.pooling_factors,
            cache_params=table.cache_params,
        )
        for table in read_plan(path, read_file(path)).tables
    }


class JsonPlanLoader(PlanLoader):
    """Gives a planner the plan of a file, for the training job's own model.

    Pass it as `EmbeddingShardingPlanner(plan_loader=...)`; the planner then enumerates the options
    of the model and takes those of the plan, without a search. Tables are matched by name with the
    EmbeddingBagCollections and EmbeddingCollections of the model. The constructor reads and checks
    the file and compares it with the model, so that every rank of a job fails together.

    With `plan_constraints(path)` the planner enumerates only the options of the plan. Without them
    it needs the constraints of the original planner: torchrec refuses a plan with an option that is
    not enumerated, such as another width of column-wise shards.

    `world_size`, if given, must equal the plan's. `topology` is the planner's topology, whole or
    after a storage reservation: the plan must match its ranks, hosts and kind of devices, and fit
    into their memory.

    Raises UsageError if DistributedModelParallel cannot train the plan, or if it is for another
    model, other ranks or another topology.
    """

    def __init__(
        self,
        path: str | Path,
        module: nn.Module,
        world_size: int | None = None,
        topology: Topology | None = None,
    ) -> None:
        data = read_file(path)
        plan = read_plan(path, data, world_size, topology)
        self._label = f"{Path(path).name}#{hashlib.sha256(data).hexdigest()[:8]}"
        self._tables = plan.tables
        self._owners = _owners(path, plan.tables, module)

    def load(self) -> dict[int, ShardingOption]:
        """Return new options with ranks, by the hash that torchrec calls storage hash."""
        options = (self._option(table) for table in self._tables)
        return {option.storage_hash(): option for option in options}

    def _option(self, table: TableEntry) -> ShardingOption:
        path, owner = self._owners[table.name]
        is_pooled = isinstance(owner, EmbeddingBagCollection)
        weights = owner.embedding_bags if is_pooled else owner.embeddings
        return ShardingOption(
            name=table.name,
            tensor=weights[table.name].weight,
            module=(path, owner),
            input_lengths=list(table.pooling_factors),
            batch_size=0,  # unused: torchrec takes only the shards of a loaded option
            sharding_type=table.sharding_type,
            partition_by=get_partition_by_type(table.sharding_type),
            compute_kernel=table.compute_kernel,
            shards=[entry.shard() for entry in table.shards],
            cache_params=table.cache_params,
            is_pooled=is_pooled,
        )

    def plan_context_hash(self) -> None:
        """Return None, since tables are compared instead of torchrec's hash of the inputs."""

    def get_plan_id(self) -> str:
        """Return the file's name and a hash of its content, as one text."""
        return self._label


def _owners(
    path: str | Path, tables: Sequence[TableEntry], module: nn.Module
) -> dict[str, tuple[str, nn.Module]]:
    """Return each table's module path and module; raises UsageError if plan and model differ."""
    owners: dict[str, tuple[str, nn.Module]] = {}
    placed = {table.name: table for table in tables}
    for owner_path, owner, config in _configs(module):
        name = config.name
        if name not in placed:
            raise UsageError(f"{path} does not place table {name}, which the model has.")
        if name in owners:
            raise UsageError(f"The model has table {name} twice; a plan knows tables by name.")
        _compare(path, placed[name], owner, config)
        owners[name] = owner_path, owner
    for name in placed:
        if name not in owners:
            raise UsageError(f"{path} places table {name}, which the model does not have.")
    return owners


def _compare(path: str | Path, table: TableEntry, owner: nn.Module, config: Any) -> None:
    """Raise UsageError if a table of the plan differs from the model's table of that name."""
    shape = f"{config.num_embeddings} x {config.embedding_dim} {config.data_type.value.lower()}"
    if shape != table.shape:
        raise UsageError(f"{path} is for a table {table.name} of {table.shape}, not of {shape}.")
    if len(table.pooling_factors) > len(config.feature_names):
        raise UsageError(
            f"{path} has {len(table.pooling_factors)} pooling factors for table {table.name}; it "
            f"must have {len(config.feature_names)} at most, one per feature of the table."
        )
    allowed = EmbeddingCollectionSharder().sharding_types("cuda")
    if isinstance(owner, EmbeddingCollection) and table.sharding_type not in allowed:
        raise UsageError(
            f"{path} cannot be trained: Table {table.name} is in an EmbeddingCollection and must "
            f"be one of {', '.join(allowed)}, not {table.sharding_type}."
        )


def _configs(module: nn.Module) -> Iterator[tuple[str, nn.Module, Any]]:
    """Yield the module path, the module and the configuration of each table of a model."""
    for path, child in module.named_modules():
        if isinstance(child, EmbeddingBagCollection):
            yield from ((path, child, config) for config in child.embedding_bag_configs())
        elif isinstance(child, EmbeddingCollection):
            yield from ((path, child, config) for config in child.embedding_configs())
