"""The machines a workload is sharded over: presets with their sources, checked on load."""

from dataclasses import dataclass, replace

from harness.model.errors import UsageError

MOST_GPUS = 2**17
"""More than any cluster has; planners keep an object for each."""

CAPTURED = "captured"
"""The topology that a captured workload brings, in ids."""


@dataclass(frozen=True, slots=True)
class Topology:
    """A kind of machine, and how many of its GPUs a problem uses.

    Capacities are bytes per GPU, bandwidths bytes per millisecond and one way; None means that no
    sourced figure exists and the library's own default applies. `gpus` is 0 in a bare preset.
    """

    name: str
    gpus_per_host: int
    hosts_per_nvlink_domain: int
    hbm_bytes: int
    ddr_bytes: int | None
    intra_host_bw: float
    intra_host_bw_nccl: float | None
    inter_host_bw: float | None
    hbm_bw: float
    hbm_to_ddr_bw: float
    gpu: str
    hbm_basis: str
    confidence: str
    source: str
    gpus: int = 0

    @property
    def domain_size(self) -> int:
        """GPUs joined by the fast interconnect: a host, or an NVLink domain of several hosts."""
        return self.gpus_per_host * self.hosts_per_nvlink_domain

    @property
    def gpus_in_domain(self) -> int:
        """GPUs of this problem in each fast domain."""
        return min(self.gpus, self.domain_size)

    @property
    def domains(self) -> int:
        """Fast domains that the problem's GPUs span."""
        return self.gpus // self.gpus_in_domain

    def mesh_shape(self, ndim: int) -> tuple[int, ...]:
        """Return a mesh over all GPUs: one dimension, or domains first and their GPUs in the rest.

        GPUs of a domain are split by the smallest factor first: 8 become 8, 2 x 4 or 2 x 2 x 2.

        Raises:
            UsageError: there are too few GPUs for so many dimensions.
        """
        if ndim == 1:
            return (self.gpus,)
        shape = [self.domains] if self.domains > 1 else []
        rest = self.gpus_in_domain
        while len(shape) < ndim - 1:
            factor = next((n for n in range(2, rest) if rest % n == 0), None)
            if factor is None:
                break
            shape.append(factor)
            rest //= factor
        if len(shape) < ndim - 1 or rest < 2:
            raise UsageError(
                f"{self.gpus} GPUs in hosts of {self.gpus_in_domain} do not make a mesh of "
                f"{ndim} dimensions with at least 2 GPUs in each."
            )
        return (*shape, rest)

    def sized(self, gpus: int) -> "Topology":
        """Return this machine with `gpus` GPUs.

        Raises:
            UsageError: `gpus` is neither at most one domain nor a whole number of domains, or more
                than any cluster has.
        """
        if gpus < 1:
            raise UsageError(f"Topology '{self.name}' needs at least 1 GPU, not {gpus}.")
        if gpus > MOST_GPUS:
            raise UsageError(f"Topology '{self.name}' can have {MOST_GPUS:,} GPUs at most.")
        if gpus > self.domain_size and gpus % self.domain_size:
            raise UsageError(
                f"Topology '{self.name}' joins {self.domain_size} GPUs at a time: --gpus must be "
                f"at most {self.domain_size} or a multiple of it, not {gpus}."
            )
        return replace(self, gpus=gpus)


def captured_topology(
    gpus: int,
    gpus_per_host: int,
    *,
    hosts_per_nvlink_domain: int = 1,
    hbm_bytes: int = 0,
    ddr_bytes: int | None = None,
    intra_host_bw: float = 0.0,
    inter_host_bw: float | None = None,
    hbm_bw: float = 0.0,
    hbm_to_ddr_bw: float = 0.0,
) -> Topology:
    """Return the topology that a captured workload brings, as far as its file tells of machines.

    Units are those of `Topology`; 0 is what a file does not tell. A family that needs more of its
    own machines reads it from its file where it is given a topology of this name.
    """
    return Topology(
        name=CAPTURED,
        gpus_per_host=gpus_per_host,
        hosts_per_nvlink_domain=hosts_per_nvlink_domain,
        hbm_bytes=hbm_bytes,
        ddr_bytes=ddr_bytes,
        intra_host_bw=intra_host_bw,
        intra_host_bw_nccl=None,
        inter_host_bw=inter_host_bw,
        hbm_bw=hbm_bw,
        hbm_to_ddr_bw=hbm_to_ddr_bw,
        gpu="",
        hbm_basis="",
        confidence="captured",
        source="the captured file",
        gpus=gpus,
    )
