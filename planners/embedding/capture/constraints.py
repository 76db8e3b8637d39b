"""torchrec's ParameterConstraints, to a captured file and back."""

from collections.abc import Collection, Mapping
from typing import Any

import torch
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
from planners.embedding.capture.fields import Fields

# Of KeyValueParams, what sizes anything; folders, hosts and reporting say nothing to a planner.
_KEY_VALUE_SIZES = ("l2_cache_size", "max_l1_cache_size")
_MOST_STATISTICS = 100_000
_TYPES = [each.value for each in ShardingType]
_KERNELS = [each.value for each in EmbeddingComputeKernel]
_DEVICES = ("cpu", "cuda", "mtia")


def constraints_written(
    constraints: ParameterConstraints, table: str, features: Mapping[str, str]
) -> dict[str, Any]:
    """Return a table's constraints as plain JSON types, with features as they are written.

    Raises:
        ShardbenchError: they hold what cannot be written down.
    """
    cache, key_value = constraints.cache_params, constraints.key_value_params
    return {
        "sharding_types": _known(constraints.sharding_types, _TYPES),
        "compute_kernels": _known(constraints.compute_kernels, _KERNELS),
        "min_partition": constraints.min_partition,
        "pooling_factors": _numbers(constraints.pooling_factors),
        "num_poolings": _numbers(constraints.num_poolings),
        "batch_sizes": _numbers(constraints.batch_sizes),
        "is_weighted": bool(constraints.is_weighted),
        "cache_params": None if cache is None else _cache_written(cache, table),
        "enforce_hbm": constraints.enforce_hbm,
        "stochastic_rounding": constraints.stochastic_rounding,
        "bounds_check_mode": _name(constraints.bounds_check_mode),
        "feature_names": None
        if constraints.feature_names is None
        else [features[name] for name in constraints.feature_names],
        "output_dtype": _name(constraints.output_dtype),
        "device_group": _device(constraints.device_group),
        "key_value_params": None
        if key_value is None
        else {name: getattr(key_value, name) for name in _KEY_VALUE_SIZES},
        "use_virtual_table": bool(constraints.use_virtual_table),
    }


def constraints_read(said: Fields) -> ParameterConstraints:
    """Return the constraints that a file says.

    Raises:
        Malformed: a field is missing or cannot be so.
    """

    def bounds_check_mode(key: str) -> BoundsCheckMode:
        return BoundsCheckMode[said.text(key, BoundsCheckMode.__members__)]

    return ParameterConstraints(
        sharding_types=said.optional("sharding_types", said.texts),
        compute_kernels=said.optional("compute_kernels", said.texts),
        min_partition=said.optional("min_partition", lambda key: said.whole(key, 1)),
        pooling_factors=said.numbers("pooling_factors"),
        num_poolings=said.optional("num_poolings", said.numbers),
        batch_sizes=said.optional("batch_sizes", said.wholes),
        is_weighted=said.flag("is_weighted"),
        cache_params=said.optional("cache_params", lambda key: _cache_read(said.inner(key))),
        enforce_hbm=said.optional("enforce_hbm", said.flag),
        stochastic_rounding=said.optional("stochastic_rounding", said.flag),
        bounds_check_mode=said.optional("bounds_check_mode", bounds_check_mode),
        feature_names=said.optional("feature_names", said.texts),
        output_dtype=said.optional("output_dtype", lambda key: _data_type(said, key)),
        device_group=said.optional("device_group", said.text),
        key_value_params=said.optional("key_value_params", lambda key: _sizes(said.inner(key))),
        use_virtual_table=said.flag("use_virtual_table"),
    )


def _cache_written(cache: CacheParams, table: str) -> dict[str, Any]:
    stats = cache.stats
    if stats is not None and type(stats) is not EmbeddingOffloadStats:
        raise ShardbenchError(
            f"The cache statistics of table '{table}' are a {type(stats).__name__}; only "
            "torchrec's EmbeddingOffloadStats can be captured."
        )
    passes = cache.multipass_prefetch_config
    return {
        "algorithm": _name(cache.algorithm),
        "load_factor": cache.load_factor,
        "reserved_memory": cache.reserved_memory,
        "precision": _name(cache.precision),
        "prefetch_pipeline": cache.prefetch_pipeline,
        "stats": None
        if stats is None
        else {
            "cacheability": float(stats.cacheability),
            "expected_lookups": stats.expected_lookups,
            "height": stats.height,
            "miss_ratios": stats.hist.tolist(),
        },
        "multipass_prefetch_config": None if passes is None else dict(passes._asdict()),
    }


def _cache_read(said: Fields) -> CacheParams:
    def algorithm(key: str) -> CacheAlgorithm:
        return CacheAlgorithm[said.text(key, CacheAlgorithm.__members__)]

    def stats(key: str) -> EmbeddingOffloadStats:
        held = said.inner(key)
        held.items("miss_ratios", _MOST_STATISTICS)
        return EmbeddingOffloadStats(
            cacheability=held.number("cacheability"),
            expected_lookups=held.number("expected_lookups"),
            mrc_hist_counts=torch.tensor(held.numbers("miss_ratios", least=0) or [0.0]),
            height=held.whole("height", 1),
        )

    return CacheParams(
        algorithm=said.optional("algorithm", algorithm),
        load_factor=said.optional("load_factor", said.number),
        reserved_memory=said.optional("reserved_memory", said.number),
        precision=said.optional("precision", lambda key: _data_type(said, key)),
        prefetch_pipeline=said.optional("prefetch_pipeline", said.flag),
        stats=said.optional("stats", stats),
        multipass_prefetch_config=said.optional(
            "multipass_prefetch_config", lambda key: passes_read(said.inner(key))
        ),
    )


def passes_read(said: Fields) -> MultiPassPrefetchConfig:
    """Return how often a cache is filled ahead for one batch."""
    return MultiPassPrefetchConfig(
        num_passes=said.whole("num_passes", 1),
        min_splitable_pass_size=said.whole("min_splitable_pass_size"),
    )


def _sizes(said: Fields) -> KeyValueParams:
    return KeyValueParams(**{name: said.optional(name, said.whole) for name in _KEY_VALUE_SIZES})


def _data_type(said: Fields, key: str) -> DataType:
    return DataType[said.text(key, DataType.__members__)]


def _device(group: str | None) -> str | None:
    return group if not group or group in _DEVICES else "unknown"


def _name(member: Any) -> str | None:
    return None if member is None else str(member.name)


def _known(values: Any, known: Collection[str]) -> list[str] | None:
    """Return texts of torchrec's own; any other allows nothing, and may be somebody's name."""
    return None if values is None else [each if each in known else "unknown" for each in values]


def _numbers(values: Any) -> list[float] | None:
    return None if values is None else list(values)
