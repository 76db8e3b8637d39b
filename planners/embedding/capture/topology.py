"""Captures torchrec's Topology, with the memory of each device."""

from itertools import groupby
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs
from torchrec.distributed.planner.types import CustomTopologyData, Storage, Topology

from harness.contract import Topology as Machines, captured_topology
from planners.embedding.capture.limits import MOST_RANKS, Bandwidth, Bytes, BytesLeft, Number, Ranks

DeviceRuns = Annotated[
    list[tuple[Ranks, BytesLeft, BytesLeft, BytesLeft]], Meta(max_length=MOST_RANKS)
]
"""Runs of equal devices: count, and bytes of HBM, DDR and SSD of each."""


class CapturedTopology(Struct, frozen=True):
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
    def of(cls, topology: Topology) -> "CapturedTopology":
        """Capture a torchrec Topology."""
        custom = topology._custom_topology_data
        fields: dict[str, Any] = {
            name: getattr(topology, name, None) for name in cls.__struct_fields__
        }
        fields["pod_size"] = topology._pod_size
        fields["devices"] = device_runs(topology)
        fields["custom"] = custom and {
            name: list(custom.get_data(name))
            for name in CustomTopologyData.supported_fields
            if custom.has_data(name)
        }
        return cls(**fields)

    def __post_init__(self) -> None:
        ranks, known = self.world_size, CustomTopologyData.supported_fields
        if max(self.local_world_size, self.pod_size or 1) > ranks:
            raise ValueError(f"local_world_size and pod_size must be at most {ranks}")
        check_devices(self.devices, ranks)
        for name, held in (self.custom or {}).items():
            if name not in known or len(held) != ranks:
                raise ValueError(f"custom must have {', '.join(known)} for each of {ranks} ranks")

    def make(self) -> Topology:
        """Return a new torchrec Topology."""
        arguments = structs.asdict(self)
        devices, custom = arguments.pop("devices"), arguments.pop("custom")
        topology = Topology(
            **arguments,
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
    held = ((int(storage.hbm), int(storage.ddr), int(storage.ssd)) for storage in storages)
    return [(len(list(run)), *storage) for storage, run in groupby(held)]


def check_devices(runs: DeviceRuns, ranks: int) -> None:
    """Raise ValueError unless the runs have as many devices as there are ranks."""
    if sum(count for count, *_ in runs) != ranks:
        raise ValueError(f"devices must be there for each of {ranks} ranks")


def storage_by_rank(runs: DeviceRuns) -> tuple[Storage, ...]:
    """Return the memory of each rank's device, from runs of equal devices."""
    return tuple(Storage(*storage) for count, *storage in runs for _ in range(count))


def set_storage(topology: Topology, runs: DeviceRuns) -> None:
    """Set the memory of a topology's devices from runs of equal devices."""
    for device, storage in zip(topology.devices, storage_by_rank(runs), strict=True):
        device.storage = storage
