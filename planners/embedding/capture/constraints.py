"""torchrec's ParameterConstraints in a captured file."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any

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

from harness.registry import ShardbenchError
from planners.embedding.capture.limits import Number, Positive, Whole, one_of

SHARDING_TYPES = [each.value for each in ShardingType]
KERNELS = [each.value for each in EmbeddingComputeKernel]
_DEVICES = ("cpu", "cuda", "mtia")
_DataTypeName = Annotated[str, one_of(DataType.__members__)]


class PrefetchPasses(Struct, frozen=True):
    """How often a cache is filled ahead for one batch."""

    num_passes: Positive
    min_splitable_pass_size: Whole

    @classmethod
    def of(cls, passes: MultiPassPrefetchConfig | None) -> "PrefetchPasses | None":
        """Return what is captured of a cache's passes."""
        return passes and cls(**passes._asdict())

    def make(self) -> MultiPassPrefetchConfig:
        """Return torchrec's."""
        return MultiPassPrefetchConfig(**structs.asdict(self))


class CacheStatistics(Struct, frozen=True):
    """torchrec's EmbeddingOffloadStats."""

    cacheability: Number
    expected_lookups: Number
    height: Positive
    miss_ratios: Annotated[list[Number], Meta(max_length=100_000)]

    @classmethod
    def of(cls, stats: Any, table: str) -> "CacheStatistics | None":
        """Return what is captured of a cache's statistics; raises ShardbenchError."""
        if stats is None:
            return None
        if type(stats) is not EmbeddingOffloadStats:
            raise ShardbenchError(
                f"The cache statistics of table '{table}' are a {type(stats).__name__}; only "
                "torchrec's EmbeddingOffloadStats can be captured."
            )
        cacheability, ratios = float(stats.cacheability), stats.hist.tolist()
        return cls(cacheability, stats.expected_lookups, stats.height, ratios)

    def make(self) -> EmbeddingOffloadStats:
        """Return torchrec's."""
        return EmbeddingOffloadStats(
            cacheability=self.cacheability,
            expected_lookups=self.expected_lookups,
            mrc_hist_counts=torch.tensor(self.miss_ratios or [0.0]),
            height=self.height,
        )


class CapturedCache(Struct, frozen=True):
    """torchrec's CacheParams."""

    algorithm: Annotated[str, one_of(CacheAlgorithm.__members__)] | None
    load_factor: Number | None
    reserved_memory: Number | None
    precision: _DataTypeName | None
    prefetch_pipeline: bool | None
    stats: CacheStatistics | None
    multipass_prefetch_config: PrefetchPasses | None

    @classmethod
    def of(cls, cache: CacheParams | None, table: str) -> "CapturedCache | None":
        """Return what is captured of a table's cache; raises ShardbenchError."""
        return cache and cls(
            algorithm=_name(cache.algorithm),
            load_factor=cache.load_factor,
            reserved_memory=cache.reserved_memory,
            precision=_name(cache.precision),
            prefetch_pipeline=cache.prefetch_pipeline,
            stats=CacheStatistics.of(cache.stats, table),
            multipass_prefetch_config=PrefetchPasses.of(cache.multipass_prefetch_config),
        )

    def make(self) -> CacheParams:
        """Return torchrec's."""
        passes = self.multipass_prefetch_config
        return CacheParams(
            algorithm=self.algorithm and CacheAlgorithm[self.algorithm],
            load_factor=self.load_factor,
            reserved_memory=self.reserved_memory,
            precision=self.precision and DataType[self.precision],
            prefetch_pipeline=self.prefetch_pipeline,
            stats=self.stats and self.stats.make(),
            multipass_prefetch_config=passes and passes.make(),
        )


class KeyValueSizes(Struct, frozen=True):
    """What sizes anything of KeyValueParams; its folders and hosts say nothing to a planner."""

    l2_cache_size: Whole | None
    max_l1_cache_size: Whole | None


class CapturedConstraints(Struct, frozen=True):
    """torchrec's ParameterConstraints of one table."""

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

    @classmethod
    def of(
        cls, constraints: ParameterConstraints, table: str, features: Mapping[str, str]
    ) -> "CapturedConstraints":
        """Return what is captured of a table's constraints, with features as they are written.

        Raises:
            ShardbenchError: they hold what cannot be written down.
        """
        said = {name: getattr(constraints, name) for name in cls.__struct_fields__}
        for name in ("pooling_factors", "num_poolings", "batch_sizes"):
            said[name] = None if said[name] is None else list(said[name])
        group, names, sizes = (
            said[name] for name in ("device_group", "feature_names", "key_value_params")
        )
        said |= {
            "sharding_types": _known(constraints.sharding_types, SHARDING_TYPES),
            "compute_kernels": _known(constraints.compute_kernels, KERNELS),
            "is_weighted": bool(constraints.is_weighted),
            "cache_params": CapturedCache.of(constraints.cache_params, table),
            "bounds_check_mode": _name(constraints.bounds_check_mode),
            "feature_names": None if names is None else [features[name] for name in names],
            "output_dtype": _name(constraints.output_dtype),
            "device_group": group if not group or group in _DEVICES else "unknown",
            "key_value_params": sizes
            and KeyValueSizes(sizes.l2_cache_size, sizes.max_l1_cache_size),
            "use_virtual_table": bool(constraints.use_virtual_table),
        }
        return cls(**said)

    def make(self) -> ParameterConstraints:
        """Return torchrec's."""
        mode, dtype, sizes = self.bounds_check_mode, self.output_dtype, self.key_value_params
        return ParameterConstraints(
            **structs.asdict(self)
            | {
                "cache_params": self.cache_params and self.cache_params.make(),
                "bounds_check_mode": mode and BoundsCheckMode[mode],
                "output_dtype": dtype and DataType[dtype],
                "key_value_params": sizes and KeyValueParams(**structs.asdict(sizes)),
            }
        )


def _name(member: Any) -> str | None:
    return None if member is None else str(member.name)


def _known(values: Any, known: Collection[str]) -> list[str] | None:
    """Return texts of torchrec's own; any other allows nothing, and may be somebody's name."""
    return None if values is None else [each if each in known else "unknown" for each in values]
