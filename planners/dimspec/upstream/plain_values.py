"""Convert between ColossalAI's objects and plain values."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from colossalai.device.device_mesh import DeviceMesh
from colossalai.tensor.sharding_spec import ShardingSpec

from planners.dimspec.conversion.partition import Mesh, Partition
from planners.dimspec.conversion.stream import Query


def device_mesh(
    shape: Sequence[int], alpha: Sequence[float] | None = None, beta: Sequence[float] | None = None
) -> DeviceMesh:
    """Return a ColossalAI mesh without process groups; `alpha` and `beta` default to all 1."""
    devices = torch.arange(math.prod(shape))
    return DeviceMesh(
        devices, tuple(shape), mesh_alpha=alpha, mesh_beta=beta, init_process_group=False
    )


def partition_of(spec: ShardingSpec) -> Partition:
    """Return the partition of a ColossalAI spec, in the insertion order of its dictionary."""
    return tuple([(dim, tuple(axes)) for dim, axes in spec.dim_partition_dict.items()])


def dictionary_of(partition: Partition) -> dict[int, list[int]]:
    """Return a partition as the dictionary that ColossalAI's ShardingSpec takes."""
    return {dim: list(axes) for dim, axes in partition}


def values_of(mesh: DeviceMesh) -> tuple[Any, ...]:
    """Return a mesh's shape, alpha and beta, which determine conversions, as a hashable tuple."""
    return tuple(mesh.shape), tuple(mesh.mesh_alpha), tuple(mesh.mesh_beta)


def query_of(source: ShardingSpec, target: ShardingSpec) -> Query:
    """Return the query for a conversion between two ColossalAI specs."""
    mesh = Mesh(*values_of(source.device_mesh))
    return Query(mesh, tuple(source.entire_shape), partition_of(source), partition_of(target))
