"""The machines that a workload is sharded over."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from harness.model.errors import UsageError

MOST_GPUS = 2**17
"""More than any cluster has; planners keep an object for each."""

MOST_IN_DOMAIN = 2**12

CAPTURED = "captured"
"""The topology that a captured workload brings, in ids."""

_MS = "bytes per millisecond"
_NAME = f"without '/', ':' and '@', which ids are made with, and not '{CAPTURED}'"
Name = Annotated[str, Meta(pattern=rf"^(?!{CAPTURED}$)[^/:@]+$", description=_NAME)]
Count = Annotated[int, Meta(ge=1, le=MOST_IN_DOMAIN, description="a whole number")]
Bytes = Annotated[int, Meta(ge=2**30, le=2**42, description="a whole number of bytes per GPU")]
# The limits reject a figure in bytes per second or in GB/s, the commonest mistake in topology
# files.
HostBandwidth = Annotated[float, Meta(ge=1_000_000, le=4_000_000_000, description=_MS)]
NetworkBandwidth = Annotated[float, Meta(ge=100_000, le=400_000_000, description=_MS)]
MemoryBandwidth = Annotated[float, Meta(ge=10_000_000, le=40_000_000_000, description=_MS)]
HostLinkBandwidth = Annotated[float, Meta(ge=1_000_000, le=1_000_000_000, description=_MS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A kind of machine, and the number of GPUs that a problem uses.

    Capacities are bytes per GPU, bandwidths bytes per millisecond in one direction. None means that
    no sourced figure exists; the planner library then uses its own default. All fields to `source`
    are the columns of a topology file, in this order. The types' limits apply to files only. `gpus`
    is 0 in a preset. `machine` names the calibrated machine whose estimate judges decisions, or is
    its file; empty for the planner library's own estimate.
    """

    name: Name
    gpu: str = ""
    gpus_per_host: Count
    hosts_per_nvlink_domain: Count = 1
    hbm_bytes: Bytes
    hbm_basis: str = ""
    ddr_bytes: Bytes | None = None
    intra_host_bw: HostBandwidth
    inter_host_bw: NetworkBandwidth | None = None
    hbm_bw: MemoryBandwidth
    hbm_to_ddr_bw: HostLinkBandwidth
    confidence: str = "not stated"
    source: str = "not stated"
    gpus: int = 0
    machine: str = ""

    @property
    def domain_size(self) -> int:
        """The number of GPUs in a fast domain: a host, or an NVLink domain of several hosts."""
        return self.gpus_per_host * self.hosts_per_nvlink_domain

    @property
    def gpus_in_domain(self) -> int:
        """The number of GPUs that the problem uses in each fast domain."""
        return min(self.gpus, self.domain_size)

    @property
    def hosts_in_domain(self) -> int:
        """The number of hosts that the problem uses in each fast domain."""
        return -(-self.gpus_in_domain // self.gpus_per_host)

    @property
    def domains(self) -> int:
        """The number of fast domains that the problem uses."""
        return self.gpus // self.gpus_in_domain

    def mesh_shape(self, ndim: int) -> tuple[int, ...]:
        """Return the shape of a mesh over all GPUs with `ndim` dimensions.

        With two or more dimensions, the first is the number of domains, if there are several. The
        others split the GPUs of a domain by the smallest factor first: 8 becomes 8, 2 x 4 or
        2 x 2 x 2. Raise UsageError if there are too few GPUs.
        """
        if ndim == 1:
            return (self.gpus,)
        shape = [self.domains] if self.domains > 1 else []
        rest = self.gpus_in_domain
        while len(shape) < ndim - 1 and rest > 1:
            shape.append(next(n for n in range(2, rest + 1) if rest % n == 0))
            rest //= shape[-1]
        if rest < 2:
            raise UsageError(
                f"{self.gpus} GPUs in hosts of {self.gpus_in_domain} do not make a mesh of "
                f"{ndim} dimensions with at least 2 GPUs in each."
            )
        return (*shape, rest)

    def judged_by(self, machine: str) -> "Topology":
        """Return this topology with a calibrated machine, whose name becomes a part of its own."""
        if not machine:
            return self
        return replace(self, name=f"{self.name}+{Path(machine).stem}", machine=machine)

    def sized(self, gpus: int) -> "Topology":
        """Return this topology with `gpus` GPUs. Raise UsageError if it cannot have that number."""
        if gpus < 1:
            raise UsageError(f"Topology '{self.name}' needs at least 1 GPU, not {gpus}.")
        if gpus > MOST_GPUS:
            raise UsageError(f"Topology '{self.name}' can have {MOST_GPUS:,} GPUs at most.")
        if gpus > (size := self.domain_size) and gpus % size:
            raise UsageError(
                f"Topology '{self.name}' joins {size} GPUs at a time: --gpus must be at most "
                f"{size} or a multiple of it, not {gpus}."
            )
        return replace(self, gpus=gpus)


def captured_topology(gpus: int, gpus_per_host: int, **figures: Any) -> Topology:
    """Return the topology of a captured workload, with the figures of its file.

    Missing figures are 0. A family that needs more figures reads them from the captured file.
    """
    unknown = {"hbm_bytes": 0, "intra_host_bw": 0.0, "hbm_bw": 0.0, "hbm_to_ddr_bw": 0.0}
    return Topology(
        name=CAPTURED,
        gpus_per_host=gpus_per_host,
        confidence="captured",
        source="the captured file",
        gpus=gpus,
        **(unknown | figures),
    )
