"""The modules that are sharded and their tables, to a captured file and back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torchrec import optim as torchrec_optim
from torchrec.distributed.planner.utils import sharder_name
from torchrec.distributed.types import ModuleSharder
from torchrec.modules.embedding_configs import (
    EmbeddingBagConfig,
    EmbeddingConfig,
    PoolingType,
)
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from harness.contract import ShardbenchError
from planners.embedding.capture.fields import Fields, Malformed
from planners.embedding.capture.sharders import BAGS, SEQUENCES
from planners.embedding.tables import ITEM_BYTES, MOST_DIM, MOST_ROWS, MOST_TABLES
from planners.embedding.torchrec_objects import DATA_TYPES

_KINDS = {EmbeddingBagCollection: BAGS, EmbeddingCollection: SEQUENCES}
_DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
# What torchrec's estimate of an optimizer's state tells apart; "other" is any other class.
_OPTIMIZERS = {
    "SGD": (torch.optim.SGD, torchrec_optim.SGD),
    "Adam": (torch.optim.Adam, torchrec_optim.Adam),
    "RowWiseAdagrad": (torchrec_optim.RowWiseAdagrad,),
}
_OTHER = "other"
_OPTIMIZERS_SAID = (*_OPTIMIZERS, _OTHER)


@dataclass(frozen=True, slots=True)
class Sharded:
    """A module that has a sharder, with the tables that it may shard, by name."""

    path: str
    module: nn.Module
    sharder: ModuleSharder[nn.Module]
    parameters: Mapping[str, nn.Parameter]

    @property
    def kind(self) -> str:
        """What kind of module it is."""
        return _KINDS[type(self.module)]

    def configs(self) -> Iterator[tuple[Any, nn.Parameter]]:
        """Yield each table's configuration and its parameter, in the sharder's order."""
        module = self.module
        is_pooled = isinstance(module, EmbeddingBagCollection)
        configs = module.embedding_bag_configs() if is_pooled else module.embedding_configs()
        by_name = {config.name: config for config in configs}
        for name, parameter in self.parameters.items():
            yield by_name[name], parameter


def sharded_modules(
    module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]]
) -> list[Sharded]:
    """Return the modules that torchrec's enumerator finds a sharder for, as it walks them.

    Raises:
        ShardbenchError: one is of a kind that cannot be captured.
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
        found.append(Sharded(path, child, sharder, parameters))
    return found


def module_written(
    sharded: Sharded, path: str, tables: Mapping[str, str], features: Mapping[str, str]
) -> dict[str, Any]:
    """Return a module as plain JSON types, with names as they are written.

    Raises:
        ShardbenchError: a table is of a kind that cannot be captured.
    """
    return {
        "path": path,
        "kind": sharded.kind,
        "is_weighted": sharded.kind == BAGS and bool(sharded.module.is_weighted()),
        "tables": [
            {
                "name": tables[config.name],
                **_table_written(config, parameter),
                "features": [features[name] for name in config.feature_names],
            }
            for config, parameter in sharded.configs()
        ],
    }


def _table_written(config: Any, parameter: nn.Parameter) -> dict[str, Any]:
    if config.use_virtual_table:
        raise ShardbenchError(f"Table '{config.name}' is virtual, which cannot be captured.")
    if parameter.dtype not in _DTYPES:
        raise ShardbenchError(
            f"Table '{config.name}' is of {parameter.dtype}; only {', '.join(ITEM_BYTES)} can be "
            "captured."
        )
    rows, dim = parameter.shape
    classes = getattr(parameter, "_optimizer_classes", None)
    return {
        "rows": int(rows),
        "dim": int(dim),
        "dtype": _DTYPES[parameter.dtype],
        "pooling": config.pooling.value if isinstance(config, EmbeddingBagConfig) else "NONE",
        "optimizer": None if not classes else _optimizer_written(classes[0]),
    }


def _optimizer_written(optimizer: type) -> str:
    return next((name for name, classes in _OPTIMIZERS.items() if optimizer in classes), _OTHER)


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table of a file."""

    name: str
    rows: int
    dim: int
    dtype: str
    pooling: str
    optimizer: str | None
    features: list[str]

    def arguments(self) -> dict[str, Any]:
        """Return what its configuration is made with."""
        return {
            "name": self.name,
            "num_embeddings": self.rows,
            "embedding_dim": self.dim,
            "data_type": DATA_TYPES[self.dtype],
            "feature_names": list(self.features),
        }


@dataclass(frozen=True, slots=True)
class CapturedModule:
    """A module of a file, of which any number can be made, on the meta device."""

    path: str
    kind: str
    is_weighted: bool
    tables: tuple[CapturedTable, ...]

    def make(self) -> nn.Module:
        """Return a new module."""
        meta = torch.device("meta")
        if self.kind == BAGS:
            module: Any = EmbeddingBagCollection(
                device=meta,
                is_weighted=self.is_weighted,
                tables=[
                    EmbeddingBagConfig(**each.arguments(), pooling=PoolingType(each.pooling))
                    for each in self.tables
                ],
            )
            weights = module.embedding_bags
        else:
            module = EmbeddingCollection(
                device=meta, tables=[EmbeddingConfig(**each.arguments()) for each in self.tables]
            )
            weights = module.embeddings
        for table in self.tables:
            if table.optimizer is not None:
                optimizer, *_ = _OPTIMIZERS.get(table.optimizer, (torch.optim.Adagrad,))
                weights[table.name].weight._optimizer_classes = [optimizer]
        return module


def model_of(modules: Sequence[CapturedModule]) -> nn.Module:
    """Return a module that has these in their places and nothing else.

    Raises:
        Malformed: two of them are in one place, or a name is none that torch takes.
    """
    if [each.path for each in modules] == [""]:
        return modules[0].make()
    root = nn.Module()
    for each in reversed(modules):  # torchrec's enumerator looks at the last child first
        *outer, last = each.path.split(".")
        here = root
        try:
            for name in outer:
                if name not in here._modules:
                    here.add_module(name, nn.Module())
                here = here.get_submodule(name)
            if type(here) is not nn.Module or last in here._modules:
                raise Malformed(f"there are two modules at '{each.path}'")
            here.add_module(last, each.make())
        except (KeyError, ValueError, AttributeError, AssertionError) as error:
            if isinstance(error, Malformed):
                raise
            reason = str(error).strip("\"'") or type(error).__name__
            raise Malformed(f"module '{each.path}' cannot be made: {reason}") from None
    return root


def module_read(said: Fields) -> CapturedModule:
    """Return the module that a file says.

    Raises:
        Malformed: a field is missing or cannot be so.
    """
    kind = said.text("kind", (BAGS, SEQUENCES))
    pooling = ("SUM", "MEAN") if kind == BAGS else ("NONE",)
    tables = tuple(
        CapturedTable(
            name=_table_name(each),
            rows=each.whole("rows", 1, MOST_ROWS),
            dim=each.whole("dim", 1, MOST_DIM),
            dtype=each.text("dtype", ITEM_BYTES),
            pooling=each.text("pooling", pooling),
            optimizer=each.optional("optimizer", partial(each.text, allowed=_OPTIMIZERS_SAID)),
            features=each.texts("features"),
        )
        for each in said.each("tables", "table", MOST_TABLES)
    )
    names = [table.name for table in tables]
    if not names or len(set(names)) < len(names):
        raise Malformed("a module must have tables, each with a name of its own")
    return CapturedModule(said.text("path"), kind, said.flag("is_weighted"), tables)


def _table_name(said: Fields) -> str:
    name = said.text("name")
    if not name or "." in name:
        raise Malformed("a table's name must be a text without '.', which torch reserves")
    return name
