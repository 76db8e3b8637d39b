"""Captures torchrec's ParameterConstraints."""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Annotated, Any, ClassVar, Self

import torch
from msgspec import Meta, Struct, structs
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.shard_estimators import EmbeddingOffloadStats
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.types import (
    BoundsCheckMode,
    CacheAlgorithm,
    CacheParams,
    KeyValueParams,
    MultiPassPrefetchConfig,
    ShardingType,
)
from torchrec.modules.embedding_configs import DataType

from harness.contract import ShardbenchError
from planners.embedding.capture.limits import Number, Positive, Whole, one_of

SHARDING_TYPES = [kind.value for kind in ShardingType]
KERNELS = [kernel.value for kernel in EmbeddingComputeKernel]
_DEVICES = ("cpu", "cuda", "mtia")
_DataTypeName = Annotated[str, one_of(DataType.__members__)]


class Mirror(Struct, frozen=True):
    """A captured torchrec object; `kinds` has the types of fields that are enums or Mirrors."""

    original: ClassVar[Any]
    kinds: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def of(cls, held: Any, **given: Any) -> Self:
        """Capture a torchrec object; `given` replaces fields, and enums are stored by name."""
        fields = {name: getattr(held, name) for name in cls.__struct_fields__} | given
        for name, kind in cls.kinds.items():
            if (inner := fields[name]) is not None:
                fields[name] = inner.name if issubclass(kind, Enum) else kind.of(inner)
        return cls(**fields)

    def make(self) -> Any:
        """Return a new torchrec object with the captured fields."""
        fields = structs.asdict(self)
        for name, kind in self.kinds.items():
            if (inner := fields[name]) is not None:
                fields[name] = kind[inner] if issubclass(kind, Enum) else inner.make()
        return self.original(**fields)


class PrefetchPasses(Mirror, frozen=True):
    """Captured MultiPassPrefetchConfig: number and minimum size of passes that fill a cache."""

    original = MultiPassPrefetchConfig

    num_passes: Positive
    min_splitable_pass_size: Whole


class CacheStatistics(Mirror, frozen=True):
    """Captured EmbeddingOffloadStats: the miss ratios of a cache, as a function of its size."""

    cacheability: Number
    expected_lookups: Number
    height: Positive
    miss_ratios: Annotated[list[Number], Meta(max_length=100_000)]

    @classmethod
    def of(cls, held: Any, **_: Any) -> Self:
        """Capture an EmbeddingOffloadStats."""
        cacheability, ratios = float(held.cacheability), held.hist.tolist()
        return cls(cacheability, held.expected_lookups, held.height, ratios)

    def make(self) -> EmbeddingOffloadStats:
        """Return a new EmbeddingOffloadStats."""
        ratios = torch.tensor(self.miss_ratios or [0.0])
        return EmbeddingOffloadStats(self.cacheability, self.expected_lookups, ratios, self.height)


class CapturedCache(Mirror, frozen=True):
    """The captured cache parameters of a table."""

    original = CacheParams
    kinds: ClassVar = {
        "algorithm": CacheAlgorithm,
        "precision": DataType,
        "stats": CacheStatistics,
        "multipass_prefetch_config": PrefetchPasses,
    }

    algorithm: Annotated[str, one_of(CacheAlgorithm.__members__)] | None
    load_factor: Number | None
    reserved_memory: Number | None
    precision: _DataTypeName | None
    prefetch_pipeline: bool | None
    stats: CacheStatistics | None
    multipass_prefetch_config: PrefetchPasses | None


class KeyValueSizes(Mirror, frozen=True):
    """The sizes in KeyValueParams; paths and hosts are omitted, since planners ignore them."""

    original = KeyValueParams

    l2_cache_size: Whole | None
    max_l1_cache_size: Whole | None


class CapturedConstraints(Mirror, frozen=True):
    """The captured constraints of one table."""

    original = ParameterConstraints
    kinds: ClassVar = {
        "cache_params": CapturedCache,
        "bounds_check_mode": BoundsCheckMode,
        "output_dtype": DataType,
        "key_value_params": KeyValueSizes,
    }

    sharding_types: list[str] | None
    compute_kernels: list[str] | None
    min_partition: Positive | None
    pooling_factors: list[Number]
    num_poolings: list[Number] | None
    batch_sizes: list[Whole] | None
    is_weighted: bool
    cache_params: CapturedCache | None
    enforce_hbm: bool | None
    stochastic_rounding: bool | None
    bounds_check_mode: Annotated[str, one_of(BoundsCheckMode.__members__)] | None
    feature_names: list[str] | None
    output_dtype: _DataTypeName | None
    device_group: str | None
    key_value_params: KeyValueSizes | None
    use_virtual_table: bool


def captured_constraints(
    constraints: ParameterConstraints, table: str, features: Mapping[str, str]
) -> CapturedConstraints:
    """Capture a table's constraints; raises ShardbenchError for a user's own cache statistics."""
    stats = constraints.cache_params and constraints.cache_params.stats
    if stats is not None and type(stats) is not EmbeddingOffloadStats:
        raise ShardbenchError(
            f"The cache statistics of table '{table}' are a {type(stats).__name__}; only "
            "torchrec's EmbeddingOffloadStats are supported."
        )
    group, names = constraints.device_group, constraints.feature_names
    return CapturedConstraints.of(
        constraints,
        sharding_types=_known(constraints.sharding_types, SHARDING_TYPES),
        compute_kernels=_known(constraints.compute_kernels, KERNELS),
        is_weighted=bool(constraints.is_weighted),
        feature_names=None if names is None else [features[name] for name in names],
        device_group=group if not group or group in _DEVICES else "unknown",
        use_virtual_table=bool(constraints.use_virtual_table),
    )


def _known(values: Any, known: Collection[str]) -> list[str] | None:
    """Replace values that torchrec does not know by 'unknown', as they may be private names."""
    return None if values is None else [text if text in known else "unknown" for text in values]
