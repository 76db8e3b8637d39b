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

SHARDING_TYPES = [kind.value for kind in ShardingType]
KERNELS = [kernel.value for kernel in EmbeddingComputeKernel]

# More than any memory; sums of a few still fit the integers of NumPy.
_MOST_BYTES = 2**62
_MOST_RANKS = 2**17

Whole = Annotated[int, Meta(ge=0, le=2**40)]
Positive = Annotated[int, Meta(ge=1, le=2**40)]
Ranks = Annotated[int, Meta(ge=1, le=_MOST_RANKS)]
Bytes = Annotated[int, Meta(ge=0, le=_MOST_BYTES)]
BytesLeft = Annotated[int, Meta(ge=-_MOST_BYTES, le=_MOST_BYTES)]
"""Negative where more is reserved than there is."""

# Integers are not converted to floats.
Number = Bytes | Annotated[float, Meta(ge=0, le=1e30)]
Estimate = BytesLeft | Annotated[float, Meta(ge=-1e30, le=1e30)]
# A bandwidth of 0 would divide by zero.
Bandwidth = Annotated[int, Meta(ge=1, le=_MOST_BYTES)] | Annotated[float, Meta(ge=1e-9, le=1e30)]

DeviceRuns = Annotated[
    list[tuple[Ranks, BytesLeft, BytesLeft, BytesLeft]], Meta(max_length=_MOST_RANKS)
]
"""Runs of equal devices: count, and bytes of HBM, DDR and SSD of each."""


def one_of(names: Iterable[str]) -> Meta:
    """Return the msgspec constraint that a text equals one of the given names."""
    return Meta(pattern=rf"^({'|'.join(names)})\Z")


class Mirror(Struct, frozen=True):
    """A captured torchrec object; the class of a member of an enumeration is in `enums`."""

    original: ClassVar[Any]
    enums: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def of(cls, live: Any, **given: Any) -> Self:
        """Capture a torchrec object; `given` replaces fields, and enums are stored by name."""
        mirrors = {mirror.original: mirror for mirror in Mirror.__subclasses__()}

        def captured(value: Any) -> Any:
            if isinstance(value, Enum):
                return value.name
            kinds = [mirrors[kind] for kind in type(value).__mro__ if kind in mirrors]
            return kinds[0].of(value) if kinds else value

        fields = {name: captured(getattr(live, name, None)) for name in cls.__struct_fields__}
        return cls(**fields | given)

    def make(self) -> Any:
        """Return a new torchrec object with the captured fields."""
        return self.original(**self.fields())

    def fields(self) -> dict[str, Any]:
        """Return the captured fields as torchrec has them."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        for name, value in fields.items():
            if isinstance(value, Mirror):
                fields[name] = value.make()
            elif name in self.enums and value is not None:
                fields[name] = self.enums[name][value]
        return fields


class PrefetchPasses(Mirror, frozen=True):
    """Captured MultiPassPrefetchConfig: number and minimum size of passes that fill a cache."""

    original = MultiPassPrefetchConfig

    num_passes: Positive
    min_splitable_pass_size: Whole


class CacheStatistics(Mirror, frozen=True):
    """Captured EmbeddingOffloadStats: the miss ratios of a cache, as a function of its size."""

    original = EmbeddingOffloadStats

    cacheability: Number
    expected_lookups: Number
    height: Positive
    miss_ratios: Annotated[list[Number], Meta(max_length=100_000)]

    @classmethod
    def of(cls, live: Any, **_: Any) -> Self:
        """Capture an EmbeddingOffloadStats."""
        cacheability, ratios = float(live.cacheability), live.hist.tolist()
        return cls(cacheability, live.expected_lookups, live.height, ratios)

    def make(self) -> EmbeddingOffloadStats:
        """Return a new EmbeddingOffloadStats."""
        ratios = torch.tensor(self.miss_ratios or [0.0])
        return EmbeddingOffloadStats(self.cacheability, self.expected_lookups, ratios, self.height)


class CapturedCache(Mirror, frozen=True):
    """The captured cache parameters of a table."""

    original = CacheParams
    enums: ClassVar = {"algorithm": CacheAlgorithm, "precision": DataType}

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
    enums: ClassVar = {"bounds_check_mode": BoundsCheckMode, "output_dtype": DataType}

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
        device_group=group if not group or group in ("cpu", "cuda", "mtia") else "unknown",
        use_virtual_table=bool(constraints.use_virtual_table),
    )


def _known(values: Any, known: Collection[str]) -> list[str] | None:
    """Replace values that torchrec does not know by 'unknown', as they may be private names."""
    return None if values is None else [text if text in known else "unknown" for text in values]


class CapturedTopology(Mirror, frozen=True):
    """A captured topology; bandwidths are in bytes per millisecond."""

    original = Topology

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
        custom = live._custom_topology_data
        lists = custom and {
            name: list(custom.get_data(name))
            for name in CustomTopologyData.supported_fields
            if custom.has_data(name)
        }
        devices = device_runs(live)
        return super().of(live, pod_size=live._pod_size, devices=devices, custom=lists)

    def __post_init__(self) -> None:
        ranks, known = self.world_size, CustomTopologyData.supported_fields
        if max(self.local_world_size, self.pod_size or 1) > ranks:
            raise ValueError(f"local_world_size and pod_size must be at most {ranks}")
        check_devices(self.devices, ranks)
        for name, values in (self.custom or {}).items():
            if name not in known or len(values) != ranks:
                raise ValueError(f"custom must have {', '.join(known)} for each of {ranks} ranks")

    def make(self) -> Topology:
        """Return a new torchrec Topology."""
        fields = self.fields()
        devices, custom = fields.pop("devices"), fields.pop("custom")
        topology = Topology(
            **fields,
            custom_topology_data=CustomTopologyData(custom, self.world_size) if custom else None,
            created_by_factory=True,  # avoids a warning about how to make topologies
        )
        set_storage(topology, devices)
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
    sizes = ((int(storage.hbm), int(storage.ddr), int(storage.ssd)) for storage in storages)
    return [(len(list(run)), *storage) for storage, run in groupby(sizes)]


def check_devices(runs: DeviceRuns, ranks: int) -> None:
    """Raise ValueError unless the runs have as many devices as there are ranks."""
    if sum(count for count, *_ in runs) != ranks:
        raise ValueError(f"devices must be there for each of {ranks} ranks")


def storage_of_ranks(runs: DeviceRuns) -> tuple[Storage, ...]:
    """Return the memory of each rank's device, from runs of equal devices."""
    return tuple(Storage(*storage) for count, *storage in runs for _ in range(count))


def set_storage(topology: Topology, runs: DeviceRuns) -> None:
    """Set the memory of a topology's devices from runs of equal devices."""
    for device, storage in zip(topology.devices, storage_of_ranks(runs), strict=True):
        device.storage = storage
