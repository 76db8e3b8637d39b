"""Loads a plan from its file in a training job, instead of searching for one."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_tower_sharding import (
    EmbeddingTowerCollectionSharder,
    EmbeddingTowerSharder,
)
from torchrec.distributed.planner.enumerators import get_partition_by_type
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    PlanLoader,
    ShardingOption,
    Topology,
)
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from harness.contract import InfeasibleDecision, ShardbenchError, UsageError, read_file
from planners.embedding.plan_files.document import PlanDocument, TableEntry, parse_plan
from planners.embedding.tables.torchrec_objects import DTYPES, sharded_modules

logger = logging.getLogger("shardbench")

# Torchrec's planner never sees the collections inside of a module that has a sharder.
_SHARDERS = (
    *get_default_sharders(),
    EmbeddingTowerSharder(),
    EmbeddingTowerCollectionSharder(),
)


def plan_constraints(
    path: str | Path, base: Mapping[str, ParameterConstraints] | None = None
) -> dict[str, ParameterConstraints]:
    """Return constraints by table name, so that torchrec enumerates only the plan's options.

    `base` has your own constraints. All of their values are kept but those that choose an option:
    sharding types, kernels, the minimum width of a shard and the load factor of a cache. A warning
    on the logger `shardbench` names what is lost: constraints that the tables were planned with and
    `base` lacks, and sharding types and kernels of `base` that exclude the plan's.
    """
    base, within, lost = base or {}, {}, []
    for table in _read(path, read_file(path)).tables:
        own = base.get(table.name)
        lost += [(name, table.name) for name in table.constrained if not _has(own, name)]
        own = own or ParameterConstraints(pooling_factors=table.pooling_factors)
        option = {"sharding_types": table.sharding_type, "compute_kernels": table.compute_kernel}
        for name, chosen in option.items():
            if chosen not in (getattr(own, name) or [chosen]):
                lost.append((name, table.name))
        cache = own.cache_params or table.cache_params
        within[table.name] = replace(
            own,
            **{name: [chosen] for name, chosen in option.items()},
            min_partition=table.shards[0].size[1],
            cache_params=cache and replace(cache, load_factor=table.cache_load_factor),
        )
    if lost:
        names = ", ".join(sorted({name for name, _ in lost}))
        hint = "." if base else "; give your constraints to plan_constraints as `base`."
        logger.warning(
            "Loading %s loses constraints (%s), such as %s of table %s%s",
            *(path, names, *lost[0], hint),
        )
    return {**base, **within}


def _has(constraints: ParameterConstraints | None, name: str) -> bool:
    return getattr(constraints, name, None) is not None


class JsonPlanLoader(PlanLoader):
    """Gives a planner the plan of a file, for the training job's own model.

    Pass it as `EmbeddingShardingPlanner(plan_loader=...)`; the planner then enumerates the options
    of the model and takes those of the plan, without a search. Tables are matched by name with the
    EmbeddingBagCollections and EmbeddingCollections of the model. The constructor reads and checks
    the file and compares it with the model, so that every rank of a job fails together.

    With `plan_constraints(path, base=constraints)` the planner enumerates only the options of the
    plan. Without them it needs the constraints of the original planner: torchrec refuses a plan
    with an option that is not enumerated, such as another width of column-wise shards.

    `world_size`, if given, must equal the plan's. `topology` is the planner's topology, whole or
    after a storage reservation: the plan must match its ranks, hosts and kind of devices, and fit
    into their memory.

    Raises UsageError if DistributedModelParallel cannot train the plan, if it is for another model,
    other ranks or another topology, or if the model has tables in other modules, such as behind a
    feature processor.
    """

    def __init__(
        self,
        path: str | Path,
        module: nn.Module,
        world_size: int | None = None,
        topology: Topology | None = None,
    ) -> None:
        data = read_file(path)
        plan = _read(path, data, world_size, topology)
        self._label = f"{Path(path).name}#{hashlib.sha256(data).hexdigest()[:8]}"
        self._tables = plan.tables
        self._owners = _owners(path, plan.tables, module)

    def load(self) -> dict[int, ShardingOption]:
        """Return new options with ranks, by the hash that torchrec calls storage hash."""
        options = {}
        for table in self._tables:
            path, owner, weight = self._owners[table.name]
            option = ShardingOption(
                name=table.name,
                tensor=weight,
                module=(path, owner),
                input_lengths=list(table.pooling_factors),
                batch_size=0,  # unused: torchrec takes only the shards of a loaded option
                sharding_type=table.sharding_type,
                partition_by=get_partition_by_type(table.sharding_type),
                compute_kernel=table.compute_kernel,
                shards=[entry.shard() for entry in table.shards],
                cache_params=table.cache_params,
                is_pooled=isinstance(owner, EmbeddingBagCollection),
            )
            options[option.storage_hash()] = option
        return options

    def plan_context_hash(self) -> None:
        """Return None, since tables are compared instead of torchrec's hash of the inputs."""

    def get_plan_id(self) -> str:
        """Return the file's name and a hash of its content, as one text."""
        return self._label


def _read(
    path: str | Path,
    data: bytes,
    world_size: int | None = None,
    topology: Topology | None = None,
) -> PlanDocument:
    """Return the plan in a file; raises UsageError if it cannot be trained on these ranks."""
    plan = parse_plan(path, data)
    for ranks in (world_size, topology and topology.world_size):
        if ranks not in (None, plan.world_size):
            raise UsageError(f"{path} is for {plan.world_size} ranks, not for {ranks}.")
    try:
        plan.check(topology)
    except InfeasibleDecision as error:
        raise UsageError(f"{path} cannot be trained: {error}") from None
    return plan


def _owners(
    path: str | Path, tables: Sequence[TableEntry], module: nn.Module
) -> dict[str, tuple[str, nn.Module, torch.Tensor]]:
    """Return each table's path, module and weight; raises UsageError if plan and model differ."""
    placed = {table.name: table for table in tables}
    owners: dict[str, tuple[str, nn.Module, torch.Tensor]] = {}
    try:
        modules = sharded_modules(module, _SHARDERS)
    except ShardbenchError as error:
        raise UsageError(f"{path} cannot be loaded: {error}") from None
    for sharded in modules:
        for config, weight in sharded.tables:
            name = config.name
            if name not in placed:
                raise UsageError(f"{path} does not place table {name}, which the model has.")
            if name in owners:
                raise UsageError(f"The model has table {name} twice; a plan knows tables by name.")
            _compare(path, placed[name], sharded.module, weight)
            owners[name] = sharded.path, sharded.module, weight
    if missing := placed.keys() - owners.keys():
        raise UsageError(f"{path} places table {min(missing)}, which the model does not have.")
    return owners


def _compare(path: str | Path, table: TableEntry, owner: nn.Module, weight: torch.Tensor) -> None:
    """Raise UsageError if a table of the plan differs from the model's table of that name."""
    rows, dim = weight.shape
    wanted = f"{table.rows} x {table.dim} {table.dtype}"
    shape = f"{rows} x {dim} {DTYPES.get(weight.dtype, weight.dtype)}"
    if shape != wanted:
        raise UsageError(f"{path} is for a table {table.name} of {wanted}, not of {shape}.")
    allowed = EmbeddingCollectionSharder().sharding_types("cuda")
    if isinstance(owner, EmbeddingCollection) and table.sharding_type not in allowed:
        raise UsageError(
            f"{path} cannot be trained: Table {table.name} is in an EmbeddingCollection and must "
            f"be one of {', '.join(allowed)}, not {table.sharding_type}."
        )
