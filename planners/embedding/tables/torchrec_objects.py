"""Builds torchrec objects and describes plans, with any torchrec release from 1.2.0 on.

This module imports only names that all these releases have.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import ParameterConstraints, ShardingOption
from torchrec.distributed.planner.utils import sharder_name
from torchrec.distributed.types import ModuleSharder, ShardingType
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from harness.contract import ShardbenchError, UsageError
from planners.embedding.tables.files import Table

# Reserved for everything but embeddings, as in torchrec's planner examples and TorchEasyRec.
RESERVED_FRACTION = 0.15
KERNELS = (EmbeddingComputeKernel.FUSED.value, EmbeddingComputeKernel.FUSED_UVM_CACHING.value)
DATA_TYPES = {"fp32": DataType.FP32, "fp16": DataType.FP16, "bf16": DataType.BF16}
DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


class _ModelParallel:
    """A mixin for sharders: without `data_parallel`, which needs other kernels."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        """Return torchrec's sharding types except `data_parallel`, in its order."""
        types = super().sharding_types(compute_device_type)  # type: ignore[misc]
        return [name for name in types if name != ShardingType.DATA_PARALLEL.value]


class ModelParallelSharder(_ModelParallel, EmbeddingBagCollectionSharder):
    """Torchrec's sharder of pooled tables, without `data_parallel`."""


class SequenceSharder(_ModelParallel, EmbeddingCollectionSharder):
    """Torchrec's sharder of sequences, without `data_parallel`."""


def _collection_name(table: Table) -> str:
    """Name a table's collection; those of one `EmbeddingCollection` must have one dimension."""
    return f"sequence_{table.dim}" if table.lookup == "sequence" else table.lookup


def module_paths(tables: Sequence[Table]) -> tuple[str, ...]:
    """Return the path of each table's collection in `embedding_model`; empty if it has only one."""
    paths = tuple(map(_collection_name, tables))
    return paths if len(set(paths)) > 1 else ()


def embedding_model(tables: Sequence[Table], device: str = "meta") -> nn.Module:
    """Return a model of these tables on a device; raises UsageError for bad names.

    It is the collection of the tables, or a module with a collection for each kind of lookup.
    """
    members = defaultdict[str, list[Table]](list)
    for table in tables:
        members[_collection_name(table)].append(table)
    model = nn.Module()
    for name, together in members.items():
        model.add_module(name, _collection(together, torch.device(device)))
    return model if len(members) > 1 else next(model.children())


def _collection(tables: Sequence[Table], device: torch.device) -> nn.Module:
    lookup = tables[0].lookup
    config = EmbeddingConfig if lookup == "sequence" else EmbeddingBagConfig
    configs: list[Any] = [
        config(
            name=table.name,
            num_embeddings=table.rows,
            embedding_dim=table.dim,
            data_type=DATA_TYPES[table.dtype],
            feature_names=[f"{table.name}:{index}" for index in range(table.features)],
        )
        for table in tables
    ]
    try:
        if lookup == "sequence":
            return EmbeddingCollection(tables=configs, device=device)
        is_weighted = lookup == "weighted"
        return EmbeddingBagCollection(tables=configs, is_weighted=is_weighted, device=device)
    except KeyError as error:
        raise UsageError(_why_refused(tables, str(error.args[0]))) from None


def configs_of(collection: nn.Module) -> list[Any]:
    """Return the configurations of the tables of a collection."""
    made: Any = getattr(collection, "embedding_bag_configs", None) or collection.embedding_configs
    return list(made())


class ShardedModule(NamedTuple):
    """A module with its path and sharder; `tables` are configurations and weights."""

    path: str
    module: nn.Module
    sharder: ModuleSharder[nn.Module]
    tables: Sequence[tuple[Any, nn.Parameter]]  # in the sharder's order

    @property
    def kind(self) -> Any:
        """The class name of the module: EmbeddingBagCollection or EmbeddingCollection."""
        return type(self.module).__name__


def sharded_modules(
    module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]]
) -> list[ShardedModule]:
    """Return the modules that have a sharder, in the order in which torchrec enumerates them.

    Raises ShardbenchError if a module is no plain collection of torchrec, such as a tower.
    """
    by_name = {sharder_name(sharder.module_type): sharder for sharder in sharders}
    sharded = []
    waiting = [("", module)]
    while waiting:
        path, child = waiting.pop()
        sharder = by_name.get(sharder_name(type(child)))
        if sharder is None:
            before = f"{path}." if path else ""
            waiting += [(before + name, inner) for name, inner in child.named_children()]
        elif parameters := sharder.shardable_parameters(child):
            if type(child) not in (EmbeddingBagCollection, EmbeddingCollection):
                raise ShardbenchError(
                    f"Module '{path}' is a {sharder_name(type(child))}; only torchrec.modules' "
                    f"EmbeddingBagCollection and EmbeddingCollection are supported."
                )
            configs = {config.name: config for config in configs_of(child)}
            tables = [(configs[name], parameter) for name, parameter in parameters.items()]
            sharded.append(ShardedModule(path, child, sharder, tables))
    return sharded


def weights_digest(module: nn.Module) -> str:
    """Hash a module's weights; return "" where they are on the meta device and have no values."""
    weights = [weight.detach() for weight in module.state_dict().values()]
    if any(weight.is_meta for weight in weights):
        return ""
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(weight.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _why_refused(tables: Sequence[Table], error: str) -> str:
    """Return an error message with the table name that torch reserves, or else torch's error."""
    taken = dir(torch.nn.ModuleDict())
    name = next((table.name for table in tables if table.name in taken), None)
    if name is None:
        return f"Torch refuses a table's name: {error}."
    words = ", ".join(word for word in taken if word.isalnum())
    return (
        f"No table of a torchrec model can be called '{name}': torch.nn.ModuleDict, which holds "
        f"the tables, takes that name for itself. Rename it, in the file's column 'name' and in "
        f"the model, for example to '{name}_table'. Other words that it takes: {words}."
    )


def constraints_of(tables: Iterable[Table]) -> dict[str, ParameterConstraints]:
    """Return constraints by table name: the table's pooling factors, and the kernels KERNELS."""
    return {
        table.name: ParameterConstraints(
            compute_kernels=list(KERNELS), pooling_factors=list(table.pooling_factors)
        )
        for table in tables
    }


def plan_fingerprint(plan: Sequence[ShardingOption], fqns: Iterable[str] = ()) -> str:
    """Return a hash of each table's sharding type, kernel and shards (size, offset, rank).

    `fqns` are the tables' names, by default torchrec's; the order of the tables has no influence.
    """
    names = fqns or [option.fqn for option in plan]
    described = sorted(
        [
            name,
            option.sharding_type,
            option.compute_kernel,
            [[shard.size, shard.offset, shard.rank] for shard in option.shards],
        ]
        for name, option in zip(names, plan, strict=True)
    )
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:16]
