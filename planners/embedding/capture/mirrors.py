"""Captures torchrec objects by their fields: constraints and the topology, in allowed ranges."""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from itertools import groupby
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from msgspec import Meta, Struct
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.shard_estimators import EmbeddingOffloadStats
from torchrec.distributed.planner.types import (
    CustomTopologyData,
    ParameterConstraints,
    Storage,
    Topology,
)
from torchrec.distributed.types import (
    BoundsCheckMode,
    CacheAlgorithm,
    CacheParams,
    KeyValueParams,
    MultiPassPrefetchConfig,
    ShardingType,
)
from torchrec.modules.embedding_configs import DataType

from harness.contract import ShardbenchError, Topology as Machines, captured_topology
from planners.embedding.tables.files import one_of

# More than any memory; sums of a few still fit the integers of NumPy.
_MOST_BYTES = 2**62
MOST_RANKS = 2**17

Whole = Annotated[int, Meta(ge=0, le=2**40)]
Positive = Annotated[int, Meta(ge=1, le=2**40)]
Ranks = Annotated[int, Meta(ge=1, le=MOST_RANKS)]
Bytes = Annotated[int, Meta(ge=0, le=_MOST_BYTES)]
BytesLeft = Annotated[int, Meta(ge=-_MOST_BYTES, le=_MOST_BYTES)]
"""Negative where more is reserved than there is."""

# Integers are not converted to floats.
Number = Bytes | Annotated[float, Meta(ge=0, le=1e30)]
Estimate = BytesLeft | Annotated[float, Meta(ge=-1e30, le=1e30)]
# A bandwidth of 0 would divide by zero.
Bandwidth = Annotated[int, Meta(ge=1, le=_MOST_BYTES)] | Annotated[float, Meta(ge=1e-9, le=1e30)]

DeviceRuns = Annotated[
    list[tuple[Ranks, BytesLeft, BytesLeft, BytesLeft]], Meta(min_length=1, max_length=MOST_RANKS)
]
"""Runs of equal devices: count, and bytes of HBM, DDR and SSD of each."""


def runs_of(values: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return runs of equal values, as tuples of the length of the run and the value."""
    return [(len(list(run)), *value) for value, run in groupby(values)]


class Mirror(Struct, frozen=True):
    """A captured torchrec object of class `original`.

    `parts` has the fields that are not numbers, texts or lists: the enumeration of a field that is
    stored by its member's name, or the mirror of a field that is an object.
    """

    original: ClassVar[Any]
    parts: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def of(cls, live: Any, **given: Any) -> Self:
        """Capture a torchrec object; `given` replaces fields."""
        fields = {name: getattr(live, name, None) for name in cls.__struct_fields__} | given
        for name, kind in cls.parts.items():
            if (value := fields[name]) is not None:
                fields[name] = value.name if issubclass(kind, Enum) else kind.of(value)
        return cls(**fields)

    def make(self) -> Any:
        """Return a new torchrec object with the captured fields."""
        return self.original(**self.fields())

    def fields(self) -> dict[str, Any]:
        """Return the captured fields as torchrec has them."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        for name, kind in self.parts.items():
            if (value := fields[name]) is not None:
                fields[name] = kind[value] if issubclass(kind, Enum) else value.make()
        return fields


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
    def of(cls, live: Any, **_: Any) -> Self:
        """Capture an EmbeddingOffloadStats; raises ShardbenchError for a user's own statistics."""
        if type(live) is not EmbeddingOffloadStats:
            raise ShardbenchError(
                f"A cache has statistics of class {type(live).__name__}; only torchrec's "
                "EmbeddingOffloadStats are supported."
            )
        return super().of(
            live, cacheability=float(live.cacheability), miss_ratios=live.hist.tolist()
        )

    def make(self) -> EmbeddingOffloadStats:
        """Return a new EmbeddingOffloadStats."""
        ratios = torch.tensor(self.miss_ratios or [0.0])
        return EmbeddingOffloadStats(self.cacheability, self.expected_lookups, ratios, self.height)


class CapturedCache(Mirror, frozen=True):
    """The captured cache parameters of a table."""

    original = CacheParams
    parts: ClassVar = {
        "algorithm": CacheAlgorithm,
        "precision": DataType,
        "stats": CacheStatistics,
        "multipass_prefetch_config": PrefetchPasses,
    }

    algorithm: Annotated[str, one_of(CacheAlgorithm.__members__)] | None
    load_factor: Number | None
    reserved_memory: Number | None
    precision: Annotated[str, one_of(DataType.__members__)] | None
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
    parts: ClassVar = {
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
    output_dtype: Annotated[str, one_of(DataType.__members__)] | None
    device_group: str | None
    key_value_params: KeyValueSizes | None
    use_virtual_table: bool


def captured_constraints(
    constraints: ParameterConstraints, features: Mapping[str, str]
) -> CapturedConstraints:
    """Capture a table's constraints; `features` maps names to their texts in the file."""
    group, names = constraints.device_group, constraints.feature_names
    return CapturedConstraints.of(
        constraints,
        sharding_types=_known(constraints.sharding_types, ShardingType),
        compute_kernels=_known(constraints.compute_kernels, EmbeddingComputeKernel),
        is_weighted=bool(constraints.is_weighted),
        feature_names=None if names is None else [features[name] for name in names],
        device_group=group if not group or group in ("cpu", "cuda", "mtia") else "unknown",
        use_virtual_table=bool(constraints.use_virtual_table),
    )


def _known(values: Collection[str] | None, kinds: Iterable[Enum]) -> list[str] | None:
    """Replace values that torchrec does not know by 'unknown', as they may be private names."""
    known = {kind.value for kind in kinds}
    return None if values is None else [text if text in known else "unknown" for text in values]


class CapturedTopology(Mirror, frozen=True):
    """A captured topology; bandwidths are in bytes per millisecond."""

    compute_device: Literal["cpu", "cuda", "mtia"]
    world_size: Ranks
    local_world_size: Ranks
    pod_size: Ranks | None
    devices: DeviceRuns
    custom: dict[str, list[Bytes]] | None
    hbm_mem_bw: Bandwidth
    ddr_mem_bw: Bandwidth
    ssd_mem_bw: Bandwidth
    hbm_to_ddr_mem_bw: Bandwidth
    intra_host_bw: Bandwidth
    inter_host_bw: Bandwidth
    bwd_compute_multiplier: Number
    weighted_feature_bwd_compute_multiplier: Number
    uneven_sharding_perf_multiplier: Number

    @classmethod
    def of(cls, live: Any, **_: Any) -> Self:
        """Capture a torchrec Topology; its custom data decide how rows are cut."""
        custom = live._custom_topology_data and live._custom_topology_data._data
        devices = device_runs(live)
        return super().of(live, pod_size=live._pod_size, devices=devices, custom=custom)

    def __post_init__(self) -> None:
        if max(self.local_world_size, self.pod_size or 1) > self.world_size:
            raise ValueError(f"local_world_size and pod_size must be at most {self.world_size}")

    def make(self, left: DeviceRuns | None = None) -> Topology:
        """Return a new torchrec Topology, with all memory of its devices or with that `left`."""
        fields = self.fields()
        devices, custom = left or fields["devices"], fields["custom"]
        del fields["devices"], fields["custom"]
        topology = Topology(
            **fields,
            custom_topology_data=CustomTopologyData(custom, self.world_size) if custom else None,
            created_by_factory=True,  # avoids a warning about how to make topologies
        )
        storages = (Storage(*storage) for count, *storage in devices for _ in range(count))
        for device, storage in zip(topology.devices, storages, strict=True):
            device.storage = storage
        return topology

    def machines(self) -> Machines:
        """Return the topology as an object of the harness's class Topology."""
        return captured_topology(
            self.world_size,
            self.local_world_size,
            hosts_per_nvlink_domain=self.pod_size or 1,
            hbm_bytes=max(hbm for _, hbm, _, _ in self.devices),
            ddr_bytes=max(ddr for _, _, ddr, _ in self.devices),
            intra_host_bw=self.intra_host_bw,
            inter_host_bw=self.inter_host_bw,
            hbm_bw=self.hbm_mem_bw,
            hbm_to_ddr_bw=self.hbm_to_ddr_mem_bw,
        )


def device_runs(topology: Topology) -> DeviceRuns:
    """Return the memory of a topology's devices as runs of equal devices."""
    storages = (device.storage for device in topology.devices)
    return runs_of((int(each.hbm), int(each.ddr), int(each.ssd)) for each in storages)
