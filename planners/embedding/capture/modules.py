"""Captures a model's sharded modules and their tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from msgspec import Meta, Struct
from torch import nn
from torchrec import optim as torchrec_optim
from torchrec.distributed.planner.utils import sharder_name
from torchrec.distributed.types import ModuleSharder
from torchrec.modules.embedding_configs import (
    EmbeddingBagConfig,
    EmbeddingConfig,
    PoolingType,
    data_type_to_dtype,
)
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from harness.contract import ShardbenchError
from planners.embedding.capture.sharders import BAGS, SEQUENCES, ModuleKind
from planners.embedding.tables.files import ITEM_BYTES, MOST_DIM, MOST_ROWS, MOST_TABLES
from planners.embedding.tables.torchrec_objects import DATA_TYPES

_KINDS: Mapping[type[nn.Module], ModuleKind] = {
    EmbeddingBagCollection: BAGS,
    EmbeddingCollection: SEQUENCES,
}
DTYPES: Mapping[torch.dtype, Any] = {
    data_type_to_dtype(kind): name for name, kind in DATA_TYPES.items()
}
# The optimizers that torchrec's estimate of optimizer state distinguishes; else "other".
_OPTIMIZERS = {
    "SGD": (torch.optim.SGD, torchrec_optim.SGD),
    "Adam": (torch.optim.Adam, torchrec_optim.Adam),
    "RowWiseAdagrad": (torchrec_optim.RowWiseAdagrad,),
}


@dataclass(frozen=True, slots=True)
class ShardedModule:
    """A module with its path and sharder, and the weights of its shardable tables by name."""

    path: str
    module: nn.Module
    sharder: ModuleSharder[nn.Module]
    parameters: Mapping[str, nn.Parameter]

    @property
    def kind(self) -> ModuleKind:
        """The module's class name, `EmbeddingBagCollection` or `EmbeddingCollection`."""
        return _KINDS[type(self.module)]

    def configs(self) -> Iterator[tuple[Any, nn.Parameter]]:
        """Yield the configuration and the parameter of each table, in the sharder's order."""
        module = self.module
        is_pooled = isinstance(module, EmbeddingBagCollection)
        configs = module.embedding_bag_configs() if is_pooled else module.embedding_configs()
        by_name = {config.name: config for config in configs}
        for name, parameter in self.parameters.items():
            yield by_name[name], parameter


def sharded_modules(
    module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]]
) -> list[ShardedModule]:
    """Return the modules that have a sharder, in the order in which torchrec enumerates them.

    Raises ShardbenchError if the class of a module cannot be captured.
    """
    by_name = {sharder_name(sharder.module_type): sharder for sharder in sharders}
    found = []
    waiting = [("", module)]
    while waiting:
        path, child = waiting.pop()
        sharder = by_name.get(sharder_name(type(child)))
        if sharder is None:
            before = f"{path}." if path else ""
            waiting += [(before + name, inner) for name, inner in child.named_children()]
            continue
        parameters = sharder.shardable_parameters(child)
        if not parameters:
            continue
        if type(child) not in _KINDS:
            raise ShardbenchError(
                f"Module '{path}' is a {type(child).__name__}; only torchrec's {BAGS} and "
                f"{SEQUENCES} can be captured."
            )
        found.append(ShardedModule(path, child, sharder, parameters))
    return found


NewNames = Mapping[str, str]
"""The captured text of each name, itself or hashed."""


class CapturedTable(Struct, frozen=True):
    """A captured table; its name has no '.', which torch reserves for paths."""

    name: Annotated[str, Meta(pattern=r"^[^.]+\Z")]
    rows: Annotated[int, Meta(ge=1, le=MOST_ROWS)]
    dim: Annotated[int, Meta(ge=1, le=MOST_DIM)]
    dtype: Literal["fp32", "fp16", "bf16"]
    pooling: Literal["SUM", "MEAN", "NONE"]
    optimizer: Literal["SGD", "Adam", "RowWiseAdagrad", "other"] | None
    features: list[str]

    @classmethod
    def of(
        cls, config: Any, parameter: nn.Parameter, name: str, features: NewNames
    ) -> "CapturedTable":
        """Capture a table; raises ShardbenchError for a virtual table or an unknown data type."""
        if config.use_virtual_table:
            raise ShardbenchError(f"Table '{config.name}' is virtual, which cannot be captured.")
        if parameter.dtype not in DTYPES:
            raise ShardbenchError(
                f"Table '{config.name}' is of {parameter.dtype}; only {', '.join(ITEM_BYTES)} can "
                "be captured."
            )
        rows, dim = map(int, parameter.shape)
        pooling: Any = config.pooling.value if isinstance(config, EmbeddingBagConfig) else "NONE"
        optimizer: Any = None
        if used := getattr(parameter, "_optimizer_classes", None):
            known = (name for name, classes in _OPTIMIZERS.items() if used[0] in classes)
            optimizer = next(known, "other")
        read = [features[feature] for feature in config.feature_names]
        return cls(name, rows, dim, DTYPES[parameter.dtype], pooling, optimizer, read)

    def config(self, kind: type[Any]) -> Any:
        """Return the table's configuration; `kind` is EmbeddingBagConfig or EmbeddingConfig."""
        pooling = {} if self.pooling == "NONE" else {"pooling": PoolingType(self.pooling)}
        return kind(
            name=self.name,
            num_embeddings=self.rows,
            embedding_dim=self.dim,
            data_type=DATA_TYPES[self.dtype],
            feature_names=list(self.features),
            **pooling,
        )


class CapturedModule(Struct, frozen=True):
    """A captured module with its tables; `make` rebuilds it on the meta device."""

    path: str
    kind: ModuleKind
    is_weighted: bool
    tables: Annotated[list[CapturedTable], Meta(min_length=1, max_length=MOST_TABLES)]

    def __post_init__(self) -> None:
        if len({table.name for table in self.tables}) < len(self.tables):
            raise ValueError("tables must each have a name of their own")
        if any((table.pooling == "NONE") == (self.kind == BAGS) for table in self.tables):
            raise ValueError(f"pooling must be SUM or MEAN in an {BAGS}, and NONE in others")

    @classmethod
    def of(
        cls, sharded: ShardedModule, path: str, tables: NewNames, features: NewNames
    ) -> "CapturedModule":
        """Capture a module under `path`; `tables` and `features` map names to captured names."""
        return cls(
            path=path,
            kind=sharded.kind,
            is_weighted=sharded.kind == BAGS and bool(sharded.module.is_weighted()),
            tables=[
                CapturedTable.of(config, parameter, tables[config.name], features)
                for config, parameter in sharded.configs()
            ],
        )

    def make(self) -> nn.Module:
        """Return a new module with these tables, on the meta device."""
        meta = torch.device("meta")
        if self.kind == BAGS:
            bags = [table.config(EmbeddingBagConfig) for table in self.tables]
            module: Any = EmbeddingBagCollection(bags, is_weighted=self.is_weighted, device=meta)
            weights = module.embedding_bags
        else:
            sequences = [table.config(EmbeddingConfig) for table in self.tables]
            module = EmbeddingCollection(sequences, device=meta)
            weights = module.embeddings
        for table in self.tables:
            if table.optimizer is not None:
                optimizer, *_ = _OPTIMIZERS.get(table.optimizer, (torch.optim.Adagrad,))
                weights[table.name].weight._optimizer_classes = [optimizer]
        return module


def model_of(modules: Sequence[CapturedModule]) -> nn.Module:
    """Return a model that contains exactly these modules, at their paths.

    Raises ValueError if two modules have the same path, or if torch rejects a name.
    """
    if [module.path for module in modules] == [""]:
        return modules[0].make()
    root = nn.Module()
    for captured in reversed(modules):  # torchrec's enumerator visits the last child first
        *outer, last = captured.path.split(".")
        here = root
        try:
            for name in outer:
                if name not in here._modules:
                    here.add_module(name, nn.Module())
                here = here.get_submodule(name)
            if type(here) is not nn.Module or last in here._modules:
                raise ValueError("there are two")
            here.add_module(last, captured.make())
        except (KeyError, ValueError, AttributeError, AssertionError) as error:
            reason = str(error).strip("\"'") or type(error).__name__
            raise ValueError(f"module '{captured.path}' cannot be made: {reason}") from None
    return root
