"""ColossalAI's objects as plain values, and its meshes made of them."""

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
    """Return a mesh without process groups; `alpha` and `beta` are 1 for all axes by default."""
    devices = torch.arange(math.prod(shape))
    return DeviceMesh(
        devices, tuple(shape), mesh_alpha=alpha, mesh_beta=beta, init_process_group=False
    )


def partition_of(spec: ShardingSpec) -> Partition:
    """Return the mesh axes of each sharded dimension, in insertion order."""
    return tuple([(dim, tuple(axes)) for dim, axes in spec.dim_partition_dict.items()])


def dictionary_of(partition: Partition) -> dict[int, list[int]]:
    """Return a partition as the argument of a ShardingSpec."""
    return {dim: list(axes) for dim, axes in partition}


def values_of(mesh: DeviceMesh) -> tuple[Any, ...]:
    """Return the values of a mesh that decide a conversion; upstream copies meshes often."""
    return tuple(mesh.shape), tuple(mesh.mesh_alpha), tuple(mesh.mesh_beta)


def query_of(source: ShardingSpec, target: ShardingSpec) -> Query:
    """Return the conversion between two specs."""
    mesh = Mesh(*values_of(source.device_mesh))
    return Query(mesh, tuple(source.entire_shape), partition_of(source), partition_of(target))
