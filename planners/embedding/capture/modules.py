"""Captures a model's sharded modules with their tables, and the sharders.

A sharder is captured by the values that torchrec's planner reads from it.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal, Self, cast

import torch
from msgspec import Meta, Struct
from torch import nn
from torchrec import optim as torchrec_optim
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_types import BaseEmbeddingSharder, EmbeddingComputeKernel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.utils import build_sharder_data
from torchrec.distributed.types import CommOp, ModuleSharder, ShardingType
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from harness.contract import ShardbenchError
from planners.embedding.capture.mirrors import Mirror, Number, PrefetchPasses
from planners.embedding.tables.files import (
    ITEM_BYTES,
    MOST_DIM,
    MOST_ROWS,
    MOST_TABLES,
    one_of,
)
from planners.embedding.tables.torchrec_objects import DATA_TYPES, DTYPES, ShardedModule

ModuleKind = Literal["EmbeddingBagCollection", "EmbeddingCollection"]
# The optimizers that torchrec's estimate of optimizer state distinguishes; all others are "other".
_OPTIMIZERS = {
    torch.optim.SGD: "SGD",
    torchrec_optim.SGD: "SGD",
    torch.optim.Adam: "Adam",
    torchrec_optim.Adam: "Adam",
    torchrec_optim.RowWiseAdagrad: "RowWiseAdagrad",
    torch.optim.Adagrad: "other",
}
_SHARDERS: Mapping[ModuleKind, Any] = {
    "EmbeddingBagCollection": EmbeddingBagCollectionSharder,
    "EmbeddingCollection": EmbeddingCollectionSharder,
}
# The arguments for fused kernels that the planner reads.
_FUSED = ("cache_load_factor", "prefetch_pipeline", "multipass_prefetch_config")
_TYPES = [kind.value for kind in ShardingType]
_KERNELS = [kernel.value for kernel in EmbeddingComputeKernel]
_BY_BYTES = {1: torch.int8, 2: torch.float16, 4: torch.float32, 8: torch.float64}
_ItemBytes = Literal[1, 2, 4, 8]

NewNames = Mapping[str, str]
"""The captured text of each name, itself or hashed."""


class CapturedTable(Struct, frozen=True):
    """A captured table."""

    name: str
    rows: Annotated[int, Meta(ge=1, le=MOST_ROWS)]
    dim: Annotated[int, Meta(ge=1, le=MOST_DIM)]
    dtype: Annotated[str, one_of(DATA_TYPES)]
    pooling: Annotated[str, one_of(PoolingType.__members__)]
    optimizer: Annotated[str, one_of(_OPTIMIZERS.values())] | None
    features: list[str]

    @classmethod
    def of(cls, config: Any, parameter: nn.Parameter, name: str, features: NewNames) -> Self:
        """Capture a table; raises ShardbenchError for a virtual table or an unknown data type."""
        if config.use_virtual_table:
            raise ShardbenchError(f"Table '{config.name}' is virtual, which is not supported.")
        if parameter.dtype not in DTYPES:
            raise ShardbenchError(
                f"Table '{config.name}' is of {parameter.dtype}; only {', '.join(ITEM_BYTES)} are "
                "supported."
            )
        optimizers = getattr(parameter, "_optimizer_classes", None)
        rows, dim = map(int, parameter.shape)
        return cls(
            name=name,
            rows=rows,
            dim=dim,
            dtype=DTYPES[parameter.dtype],
            pooling=config.pooling.value if isinstance(config, EmbeddingBagConfig) else "NONE",
            optimizer=_OPTIMIZERS.get(optimizers[0], "other") if optimizers else None,
            features=[features[feature] for feature in config.feature_names],
        )


class CapturedModule(Struct, frozen=True):
    """A captured module with its tables."""

    path: str
    kind: ModuleKind
    is_weighted: bool
    tables: Annotated[list[CapturedTable], Meta(min_length=1, max_length=MOST_TABLES)]

    @property
    def is_pooled(self) -> bool:
        """Whether it is an EmbeddingBagCollection."""
        return self.kind == "EmbeddingBagCollection"

    @classmethod
    def of(cls, sharded: ShardedModule, path: str, tables: NewNames, features: NewNames) -> Self:
        """Capture a module under `path`; `tables` and `features` map names to captured names."""
        module: Any = sharded.module
        return cls(
            path=path,
            kind=sharded.kind,
            is_weighted=isinstance(module, EmbeddingBagCollection) and module.is_weighted(),
            tables=[
                CapturedTable.of(config, parameter, tables[config.name], features)
                for config, parameter in sharded.tables
            ],
        )

    def make(self) -> nn.Module:
        """Return a new module with these tables, on the meta device."""
        collection: Any = EmbeddingBagCollection if self.is_pooled else EmbeddingCollection
        config: Any = EmbeddingBagConfig if self.is_pooled else EmbeddingConfig
        configs = [
            config(
                name=table.name,
                num_embeddings=table.rows,
                embedding_dim=table.dim,
                data_type=DATA_TYPES[table.dtype],
                feature_names=list(table.features),
                **({"pooling": PoolingType(table.pooling)} if self.is_pooled else {}),
            )
            for table in self.tables
        ]
        weighted = {"is_weighted": self.is_weighted} if self.is_pooled else {}
        module: nn.Module = collection(tables=configs, device=torch.device("meta"), **weighted)
        kinds = {name: kind for kind, name in _OPTIMIZERS.items()}
        for table, weight in zip(self.tables, module.parameters(), strict=True):
            if table.optimizer is not None:
                cast(Any, weight)._optimizer_classes = [kinds[table.optimizer]]
        return module


def model_of(modules: Sequence[CapturedModule]) -> nn.Module:
    """Return a model that contains exactly these modules, at their paths.

    Raises ValueError for a module inside another, and torch's errors for names that it rejects.
    """
    if modules[0].path == "" and len(modules) == 1:
        return modules[0].make()
    root = nn.Module()
    for captured in reversed(modules):  # torchrec's enumerator visits the last child first
        *outer, last = captured.path.split(".")
        here = root
        for name in outer:
            if name not in here._modules:
                here.add_module(name, nn.Module())
            here = here.get_submodule(name)
        if type(here) is not nn.Module or last in here._modules:
            raise ValueError(f"module '{captured.path}' is in another one or has one in it")
        here.add_module(last, captured.make())
    return root


class CapturedSharder(Mirror, frozen=True):
    """A sharder for one class of modules; `kernels` are by kind of device, then sharding type."""

    parts: ClassVar = {"multipass_prefetch_config": PrefetchPasses}

    module: ModuleKind
    kernels: dict[str, dict[Annotated[str, one_of(_TYPES)], list[Annotated[str, one_of(_KERNELS)]]]]
    cache_load_factor: Number | None
    prefetch_pipeline: bool | None
    multipass_prefetch_config: PrefetchPasses | None
    # Per element, forward and backward, by communication.
    bytes_sent: dict[Annotated[str, one_of(CommOp.__members__)], tuple[_ItemBytes, _ItemBytes]]

    def make(self) -> ModuleSharder[nn.Module]:
        """Return a new sharder that answers as the captured one."""
        captured, fields = self, self.fields()
        kind: Any = _SHARDERS[self.module]
        codecs = {
            name: SimpleNamespace(
                forward=SimpleNamespace(quantized_dtype=_BY_BYTES[forward]),
                backward=SimpleNamespace(quantized_dtype=_BY_BYTES[backward]),
            )
            for name, (forward, backward) in self.bytes_sent.items()
        }

        class AsCaptured(kind):
            def sharding_types(self, compute_device_type: str) -> list[str]:
                return list(captured.kernels.get(compute_device_type, {}))

            def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
                return captured.kernels[compute_device_type][sharding_type]

        sharder: ModuleSharder[nn.Module] = AsCaptured(
            fused_params={name: fields[name] for name in _FUSED if fields[name] is not None},
            qcomm_codecs_registry=codecs or None,
        )
        return sharder


def captured_sharder(
    sharder: ModuleSharder[nn.Module], module: ModuleKind, device: str
) -> CapturedSharder:
    """Capture a sharder for modules of class `module`, with its kernels for `device` and GPUs.

    Raises ShardbenchError if the sharder is not a BaseEmbeddingSharder of torchrec.
    """
    if not isinstance(sharder, BaseEmbeddingSharder):
        raise ShardbenchError(
            f"{type(sharder).__name__}, a sharder of {module}s, is no BaseEmbeddingSharder of "
            "torchrec, so its answers are unknown."
        )
    data = build_sharder_data(sharder)
    kernels = {
        kind: {
            sharding_type: list(sharder.compute_kernels(sharding_type, kind))
            for sharding_type in sharder.sharding_types(kind)
        }
        for kind in sorted({device, "cuda"})
    }
    return CapturedSharder.of(
        SimpleNamespace(**data.fused_params),
        module=module,
        kernels=kernels,
        bytes_sent=dict(data.qcomm_dtype_sizes),
    )
