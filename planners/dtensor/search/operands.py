"""An input of an op on DTensors: its placements as integers, and the cost of moving it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    Partial,
    Placement,
    Replicate,
    Shard,
    _collective_utils as prices,
)
from torch.distributed.tensor._dtensor_spec import DTensorSpec

Codes = tuple[int, ...]
"""Placements as integers: the tensor dim of a Shard, REPLICATE, and below that the Partials."""
REPLICATE = -1
_PARTIAL = {"sum": -2, "avg": -3, "min": -4, "max": -5, "product": -6}

Combination = tuple[int, ...]
"""The index of a strategy for each mesh dim, from the outermost on; perhaps only the first few."""


class TorchDiffers(Exception):
    """Torch's rules differ from those of this module, so torch's own search must decide."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An input tensor of an op, on a mesh of N dims, and the placements that S strategies want."""

    spec: DTensorSpec
    topology: prices.MeshTopoInfo  # the prices of collectives on each mesh dim
    source: Codes  # the present placements (of `spec`), shape (N,)
    targets: Codes  # the placement that each strategy wants on one mesh dim, shape (S,)
    gigabytes: float  # size of the tensor's part on one rank
    mesh_dims: range  # in the order in which torch redistributes: innermost first if sharded
    may_stay: bool  # whether the present placements may leave ranks without elements
    known: dict[Codes, float] = field(default_factory=dict)  # microseconds by target placements

    def is_shardable(self, combination: Combination) -> bool:
        """Whether a combination gives each rank elements, or keeps uneven shards if allowed."""
        target = at(combination, self.targets)
        return has_enough(self.spec.shape, target, self.topology.mesh_dim_devices) or (
            self.may_stay and self.stays(combination)
        )

    def stays(self, combination: Combination) -> bool:
        """Whether a combination wants this tensor in its present placements."""
        return at(combination, self.targets) == self.source[: len(combination)]

    def cost(self, target: Codes) -> float:
        """Return the cost of moving this tensor to the placements `target`, in microseconds.

        Equal to torch's `redistribute_cost`; infinite from Shard or another Partial to a Partial.
        """
        if target not in self.known:
            cost, gigabytes = 0.0, self.gigabytes
            for mesh_dim in self.mesh_dims:
                wanted = target[mesh_dim]
                if wanted > REPLICATE and self.mesh_dims.step < 0:
                    for own, new in zip(self.source[:mesh_dim], target, strict=False):
                        # An outer mesh dim shards the same tensor dim, and that changes.
                        if own != new and wanted in (own, new):
                            wanted = REPLICATE
                            break
                if wanted != self.source[mesh_dim]:
                    step, gigabytes = self._step(mesh_dim, wanted, gigabytes)
                    cost += step
            self.known[target] = cost
        return self.known[target]

    def least_costs(self) -> dict[int, list[float]]:
        """Return, by mesh dim, a lower bound on each strategy's cost in microseconds."""
        least, gigabytes = {}, self.gigabytes
        targets = {*self.targets, REPLICATE}
        for mesh_dim in self.mesh_dims:
            # Invariant: under every plan, a rank has at least `gigabytes` before this mesh dim.
            costs = {code: self._step(mesh_dim, code, gigabytes)[0] for code in targets}
            whole = costs[REPLICATE]
            least[mesh_dim] = [min(costs[t], whole) if t >= 0 else costs[t] for t in self.targets]
            if self.source[mesh_dim] <= REPLICATE < max(targets):
                gigabytes /= self.topology.mesh_dim_devices[mesh_dim]
        return least

    def _step(self, mesh_dim: int, target: int, gigabytes: float) -> tuple[float, float]:
        """Return the microseconds of a move on one mesh dim, and a rank's gigabytes after it."""
        topology, source = self.topology, self.source[mesh_dim]
        devices = topology.mesh_dim_devices[mesh_dim]
        if source == target:
            return 0.0, gigabytes
        if source == REPLICATE:
            return 0.0, gigabytes / devices if target > REPLICATE else gigabytes
        if target < REPLICATE:
            return math.inf, gigabytes
        if source < REPLICATE:
            if target == REPLICATE:
                return prices.allreduce_cost(gigabytes, topology, mesh_dim), gigabytes
            return prices.reduce_scatter_cost(gigabytes, topology, mesh_dim), gigabytes / devices
        if target == REPLICATE:
            gigabytes *= devices
            return prices.allgather_cost(gigabytes, topology, mesh_dim), gigabytes
        # Torch prices an all-to-all like this.
        return prices.allgather_cost(gigabytes, topology, mesh_dim) + 1.0, gigabytes


def encode(placement: Placement | None) -> int:
    """Return a placement's code (None is REPLICATE); TorchDiffers for others, like strided."""
    if placement is None or type(placement) is Replicate:
        return REPLICATE
    if type(placement) is Shard and placement.dim >= 0:
        return int(placement.dim)
    if type(placement) is Partial and placement.reduce_op in _PARTIAL:
        return _PARTIAL[placement.reduce_op]
    raise TorchDiffers("This is not a plain placement.")


def encode_all(spec: DTensorSpec, mesh: DeviceMesh) -> Codes:
    """Return the codes of a spec's placements.

    Raises TorchDiffers for another mesh, strided shards, symbolic sizes or other shard orders.
    """
    codes = tuple([encode(placement) for placement in spec.placements])
    if (
        (spec.mesh is not mesh and spec.mesh != mesh)
        or spec.tensor_meta is None
        or any(type(size) is not int for size in spec.tensor_meta.shape)
        or not DTensorSpec.is_default_device_order(spec.shard_order)
        or max(codes) >= len(spec.tensor_meta.shape)
    ):
        raise TorchDiffers("This tensor is not laid out plainly.")
    return codes


def operand_of(spec: DTensorSpec, mesh: DeviceMesh, targets: Codes, may_stay: bool) -> Operand:
    """Return the operand for a tensor with this spec; raises TorchDiffers like `encode_all`."""
    source = encode_all(spec, mesh)
    topology, shards = prices.MeshTopoInfo.build_from_mesh(mesh), spec.num_shards
    gigabytes = prices.spec_to_bytes(spec) / shards / 1024 / 1024 / 1024
    mesh_dims = range(mesh.ndim)[:: -1 if shards > 1 else 1]
    return Operand(spec, topology, source, targets, gigabytes, mesh_dims, may_stay)


def has_enough(shape: Sequence[int], target: Codes, devices: Sequence[int]) -> bool:
    """Whether each rank gets elements of a tensor, by its placements on the first mesh dims."""
    left = list(shape)
    for tensor_dim, count in zip(target, devices, strict=False):
        if tensor_dim > REPLICATE:
            if tensor_dim >= len(left) or left[tensor_dim] < count:
                return False
            left[tensor_dim] //= count
    return True


def are_of_one_kind(placements: Iterable[int]) -> bool:
    """Whether torch allows these Partials together: all of one kind, or only sum and avg."""
    kinds = {code for code in placements if code < REPLICATE}
    return len(kinds) <= 1 or kinds == {_PARTIAL["sum"], _PARTIAL["avg"]}


def at(combination: Combination, column: Codes) -> Codes:
    """Return the codes in a column that the strategies of a combination want."""
    return tuple([column[strategy] for strategy in combination])
