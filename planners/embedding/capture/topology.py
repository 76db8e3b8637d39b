"""torchrec's Topology, to a captured file and back, with every device's own memory."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torchrec.distributed.planner.types import CustomTopologyData, Storage, Topology

from harness.contract import Topology as Machines
from harness.model.topology import captured_topology
from planners.embedding.capture.fields import MOST_BYTES, Fields, Malformed

_BANDWIDTHS = (
    "hbm_mem_bw",
    "ddr_mem_bw",
    "ssd_mem_bw",
    "hbm_to_ddr_mem_bw",
    "intra_host_bw",
    "inter_host_bw",
)
_MULTIPLIERS = (
    "bwd_compute_multiplier",
    "weighted_feature_bwd_compute_multiplier",
    "uneven_sharding_perf_multiplier",
)
_MOST_RANKS = 2**17
_CUSTOM = tuple(CustomTopologyData.supported_fields)

Runs = list[list[int]]
"""Equal devices in a row: how many, and bytes of HBM, DDR and SSD of each."""


def topology_written(topology: Topology) -> dict[str, Any]:
    """Return a topology as plain JSON types; bandwidths are bytes per millisecond."""
    custom = topology._custom_topology_data
    return {
        "compute_device": topology.compute_device,
        "world_size": topology.world_size,
        "local_world_size": topology.local_world_size,
        "pod_size": topology._pod_size,
        "devices": devices_written(topology),
        "custom": None
        if custom is None
        else {name: list(custom.get_data(name)) for name in _CUSTOM if custom.has_data(name)},
        **{name: getattr(topology, name) for name in (*_BANDWIDTHS, *_MULTIPLIERS)},
    }


def devices_written(topology: Topology) -> Runs:
    """Return what the devices of a topology can hold."""
    held = [(each.storage.hbm, each.storage.ddr, each.storage.ssd) for each in topology.devices]
    return [[len(list(run)), *map(int, storage)] for storage, run in groupby(held)]


def devices_read(said: Fields, key: str, ranks: int) -> tuple[Storage, ...]:
    """Return what each device can hold; less than nothing where more is reserved than there is.

    Raises:
        Malformed: that is not said for each rank.
    """
    runs = said.rows(key, wholes=4, most=ranks, least=-MOST_BYTES)
    if sum(max(count, 0) for count, *_ in runs) != ranks or any(run[0] < 1 for run in runs):
        raise Malformed(f"{key} must be there for each of {ranks} ranks")
    return tuple(Storage(*storage) for count, *storage in runs for _ in range(count))


@dataclass(frozen=True, slots=True)
class CapturedTopology:
    """A topology of a file, of which any number can be made."""

    arguments: dict[str, Any]
    devices: tuple[Storage, ...]
    custom: dict[str, list[int]] | None

    def make(self) -> Topology:
        """Return a new topology."""
        ranks = len(self.devices)
        topology = Topology(
            **self.arguments,
            custom_topology_data=CustomTopologyData(self.custom, ranks) if self.custom else None,
            created_by_factory=True,  # says nothing of how topologies ought to be made
        )
        set_storage(topology, self.devices)
        return topology

    def machines(self) -> Machines:
        """Return what the harness calls these machines."""
        said = self.arguments
        return captured_topology(
            len(self.devices),
            said["local_world_size"],
            hosts_per_nvlink_domain=said["pod_size"] or 1,
            hbm_bytes=max(each.hbm for each in self.devices),
            ddr_bytes=max(each.ddr for each in self.devices),
            intra_host_bw=said["intra_host_bw"],
            inter_host_bw=said["inter_host_bw"],
            hbm_bw=said["hbm_mem_bw"],
            hbm_to_ddr_bw=said["hbm_to_ddr_mem_bw"],
        )


def set_storage(topology: Topology, held: Iterable[Storage]) -> None:
    """Let each device of a topology hold so much."""
    for device, storage in zip(topology.devices, held, strict=True):
        device.storage = Storage(storage.hbm, storage.ddr, storage.ssd)


def topology_read(said: Fields) -> CapturedTopology:
    """Return the topology that a file says.

    Raises:
        Malformed: a field is missing or cannot be so.
    """
    ranks = said.whole("world_size", 1, _MOST_RANKS)
    custom = said.optional("custom", said.inner)
    held = None
    if custom is not None:
        held = {name: custom.wholes(name, 0, MOST_BYTES) for name in custom.names()}
        if not set(held) <= set(_CUSTOM) or any(len(each) != ranks for each in held.values()):
            raise Malformed(f"custom must have {', '.join(_CUSTOM)} for each of {ranks} ranks")
    return CapturedTopology(
        arguments={
            "compute_device": said.text("compute_device", ("cpu", "cuda", "mtia")),
            "world_size": ranks,
            "local_world_size": said.whole("local_world_size", 1, ranks),
            "pod_size": said.optional("pod_size", lambda key: said.whole(key, 1, ranks)),
            # Whatever takes no time at all takes it at a bandwidth above this.
            **{name: said.number(name, least=1e-9) for name in _BANDWIDTHS},
            **{name: said.number(name) for name in _MULTIPLIERS},
        },
        devices=devices_read(said, "devices", ranks),
        custom=held,
    )
