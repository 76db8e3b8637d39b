"""Captures a model's sharded modules, their tables, and their sharders.

A sharder is captured by the values that torchrec's planner reads from it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, Final, Literal

import torch
from msgspec import Meta, Struct
from torch import nn
from torchrec import optim as torchrec_optim
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_types import BaseEmbeddingSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.utils import build_sharder_data, sharder_name
from torchrec.distributed.types import CommOp, ModuleSharder
from torchrec.modules.embedding_configs import (
    EmbeddingBagConfig,
    EmbeddingConfig,
    PoolingType,
)
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from harness.contract import ShardbenchError
from planners.embedding.capture.mirrors import (
    KERNELS,
    SHARDING_TYPES,
    Number,
    PrefetchPasses,
    one_of,
)
from planners.embedding.tables.files import ITEM_BYTES, MOST_DIM, MOST_ROWS, MOST_TABLES
from planners.embedding.tables.torchrec_objects import DATA_TYPES, DTYPES

ModuleKind = Literal["EmbeddingBagCollection", "EmbeddingCollection"]
BAGS: Final = "EmbeddingBagCollection"
_SEQUENCES: Final = "EmbeddingCollection"
_KINDS: Mapping[type[nn.Module], ModuleKind] = {
    EmbeddingBagCollection: BAGS,
    EmbeddingCollection: _SEQUENCES,
}
# The optimizers that torchrec's estimate of optimizer state distinguishes; else "other".
_OPTIMIZERS = {
    "SGD": (torch.optim.SGD, torchrec_optim.SGD),
    "Adam": (torch.optim.Adam, torchrec_optim.Adam),
    "RowWiseAdagrad": (torchrec_optim.RowWiseAdagrad,),
}
_BY_BYTES = {1: torch.int8, 2: torch.float16, 4: torch.float32, 8: torch.float64}

NewNames = Mapping[str, str]
"""The captured text of each name, itself or hashed."""


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
        module: Any = self.module
        is_pooled = self.kind == BAGS
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
    sharded = []
    waiting = [("", module)]
    while waiting:
        path, child = waiting.pop()
        sharder = by_name.get(sharder_name(type(child)))
        if sharder is None:
            before = f"{path}." if path else ""
            waiting += [(before + name, inner) for name, inner in child.named_children()]
        elif parameters := sharder.shardable_parameters(child):
            if type(child) not in _KINDS:
                raise ShardbenchError(
                    f"Module '{path}' is a {sharder_name(type(child))}; only "
                    f"torchrec.modules' {BAGS} and {_SEQUENCES} are supported."
                )
            sharded.append(ShardedModule(path, child, sharder, parameters))
    return sharded


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
            raise ShardbenchError(f"Table '{config.name}' is virtual, which is not supported.")
        if parameter.dtype not in DTYPES:
            raise ShardbenchError(
                f"Table '{config.name}' is of {parameter.dtype}; only {', '.join(ITEM_BYTES)} are "
                "supported."
            )
        rows, dim = map(int, parameter.shape)
        dtype: Any = DTYPES[parameter.dtype]
        pooling: Any = config.pooling.value if isinstance(config, EmbeddingBagConfig) else "NONE"
        optimizer: Any = None
        if used := getattr(parameter, "_optimizer_classes", None):
            known = (name for name, classes in _OPTIMIZERS.items() if used[0] in classes)
            optimizer = next(known, "other")
        read = [features[feature] for feature in config.feature_names]
        return cls(name, rows, dim, dtype, pooling, optimizer, read)

    def config(self) -> EmbeddingBagConfig | EmbeddingConfig:
        """Return the table's configuration for its kind of module."""
        is_pooled = self.pooling != "NONE"
        config: Any = EmbeddingBagConfig if is_pooled else EmbeddingConfig
        return config(
            name=self.name,
            num_embeddings=self.rows,
            embedding_dim=self.dim,
            data_type=DATA_TYPES[self.dtype],
            feature_names=list(self.features),
            **({"pooling": PoolingType(self.pooling)} if is_pooled else {}),
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
        module: Any = sharded.module
        return cls(
            path=path,
            kind=sharded.kind,
            is_weighted=sharded.kind == BAGS and bool(module.is_weighted()),
            tables=[
                CapturedTable.of(config, parameter, tables[config.name], features)
                for config, parameter in sharded.configs()
            ],
        )

    def make(self) -> nn.Module:
        """Return a new module with these tables, on the meta device."""
        configs: list[Any] = [table.config() for table in self.tables]
        meta = torch.device("meta")
        module: Any
        if self.kind == BAGS:
            module = EmbeddingBagCollection(configs, is_weighted=self.is_weighted, device=meta)
            weights = module.embedding_bags
        else:
            module = EmbeddingCollection(configs, device=meta)
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


_Kernels = list[Annotated[str, one_of(KERNELS)]]
_ItemBytes = Literal[1, 2, 4, 8]


class CapturedSharder(Struct, frozen=True):
    """A sharder for one class of modules; `kernels` are by kind of device, then sharding type."""

    module: ModuleKind
    kernels: dict[str, dict[Annotated[str, one_of(SHARDING_TYPES)], _Kernels]]
    cache_load_factor: Number | None
    prefetch_pipeline: bool | None
    multipass_prefetch_config: PrefetchPasses | None
    bytes_sent: dict[
        Annotated[str, one_of(op.name for op in CommOp)], tuple[_ItemBytes, _ItemBytes]
    ]  # per element, forward and backward, by communication

    @classmethod
    def of(
        cls, sharder: ModuleSharder[nn.Module], module: ModuleKind, device: str
    ) -> "CapturedSharder":
        """Capture a sharder for modules of class `module`, with its kernels for `device` and GPUs.

        Raises ShardbenchError if the sharder is not a BaseEmbeddingSharder of torchrec.
        """
        if not isinstance(sharder, BaseEmbeddingSharder):
            raise ShardbenchError(
                f"{type(sharder).__name__}, a sharder of {module}s, is no BaseEmbeddingSharder of "
                "torchrec, so its answers are unknown."
            )
        data = build_sharder_data(sharder)
        passes = data.fused_params.get("multipass_prefetch_config")
        return cls(
            module=module,
            kernels={
                kind: {
                    sharding_type: list(sharder.compute_kernels(sharding_type, kind))
                    for sharding_type in sharder.sharding_types(kind)
                }
                for kind in sorted({device, "cuda"})
            },
            cache_load_factor=data.fused_params.get("cache_load_factor"),
            prefetch_pipeline=data.fused_params.get("prefetch_pipeline"),
            multipass_prefetch_config=passes and PrefetchPasses.of(passes),
            bytes_sent=dict(data.qcomm_dtype_sizes),
        )

    def make(self) -> ModuleSharder[nn.Module]:
        """Return a new sharder with the captured values."""
        passes = self.multipass_prefetch_config
        fused_params = {
            "cache_load_factor": self.cache_load_factor,
            "prefetch_pipeline": self.prefetch_pipeline,
            "multipass_prefetch_config": passes and passes.make(),
        }
        codecs = {
            name: SimpleNamespace(
                forward=SimpleNamespace(quantized_dtype=_BY_BYTES[forward]),
                backward=SimpleNamespace(quantized_dtype=_BY_BYTES[backward]),
            )
            for name, (forward, backward) in self.bytes_sent.items()
        }
        kind = _ReplayedBagsSharder if self.module == BAGS else _ReplayedSequencesSharder
        sharder = kind(
            fused_params={key: value for key, value in fused_params.items() if value is not None},
            qcomm_codecs_registry=codecs or None,
        )
        sharder.captured = self
        return sharder


class _CapturedAnswers:
    """A mixin that makes a sharder return the captured sharding types and kernels."""

    captured: CapturedSharder

    def sharding_types(self, compute_device_type: str) -> list[str]:
        return list(self.captured.kernels.get(compute_device_type, {}))

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        return self.captured.kernels[compute_device_type][sharding_type]


class _ReplayedBagsSharder(_CapturedAnswers, EmbeddingBagCollectionSharder):
    pass


class _ReplayedSequencesSharder(_CapturedAnswers, EmbeddingCollectionSharder):
    pass
