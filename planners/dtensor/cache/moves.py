"""Redistributions by a single collective, without torch's layers around the collective.

Torch redistributes by functional collectives. Each is an op with an autograd rule in Python. A
second Python op wraps the result, so that its user can wait later, but most users wait at once. If
no gradient is needed, it is enough to start the collective and wait for its result.
"""

from contextlib import AbstractContextManager
from math import prod
from typing import Any

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard, _api, _dispatch, _redistribute
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from planners.dtensor.dispatch.torch_path import is_watched
from planners.instruments import replaced

_OPS = torch.ops._c10d_functional
_all_reduce = _OPS.all_reduce.default
_all_gather = _OPS.all_gather_into_tensor.default
_reduce_scatter = _OPS.reduce_scatter_tensor.default
_wait = _OPS.wait_tensor.default


def direct_moves() -> AbstractContextManager[None]:
    """Let torch redistribute local tensors by a single collective inside the context."""
    by_torch = _redistribute.redistribute_local_tensor

    def redistributed(
        local: torch.Tensor,
        current: DTensorSpec,
        target: DTensorSpec,
        *,
        async_op: bool = False,
        **options: Any,
    ) -> torch.Tensor:
        if local.__class__ is torch.Tensor and not (
            options.get("use_graph_based_transform") is not None
            or is_watched()  # first: a mode would see the access to `requires_grad`
            or local.is_nested  # has no sizes
            or (local.requires_grad and torch.is_grad_enabled())
        ):
            step = _only_step(current, target)
            made = None if step is None else _moved(local, step, current.mesh, async_op)
            if made is not None:
                return made
        return by_torch(local, current, target, async_op=async_op, **options)

    modules = (_redistribute, _dispatch, _api)
    return replaced((owner, "redistribute_local_tensor", redistributed) for owner in modules)


def _only_step(current: DTensorSpec, target: DTensorSpec) -> Any:
    """Return the step of torch's plan if it has only one, else None."""
    mesh = current.mesh
    if mesh is not target.mesh or not mesh._is_current_rank_part_of_mesh():
        return None
    try:
        steps = _redistribute._gen_transform_infos(current, target, None)
    except Exception:  # torch has the better error message
        return None
    return steps[0] if len(steps) == 1 else None


def _moved(local: torch.Tensor, step: Any, mesh: DeviceMesh, async_op: bool) -> torch.Tensor | None:
    """Carry out a step, perhaps asynchronously; return None if torch has to do it."""
    now, then = step.src_dst_placements
    kinds = type(now), type(then)
    count, group = mesh.size(step.mesh_dim), mesh._dim_group_names[step.mesh_dim]
    if count == 1:
        return None
    if now.is_replicate() and then.is_partial():
        return then._partition_value(local, mesh, step.mesh_dim)
    if kinds == (Replicate, Shard):
        coordinate = mesh._sym_get_coordinate(step.mesh_dim)
        return then._replicate_to_shard(local, mesh, step.mesh_dim, coordinate)
    with torch._C._AutoDispatchBelowAutograd():
        if kinds == (Partial, Replicate):
            made = _all_reduce(local, now.reduce_op.lower(), group)
        elif kinds == (Partial, Shard) and then.dim >= 0 and local.shape[then.dim] % count == 0:
            if then.dim:
                parts = local.unflatten(then.dim, (count, -1))
                local = parts.movedim(then.dim, 0).flatten(0, 1)
            made = _reduce_scatter(local.contiguous(), now.reduce_op.lower(), count, group)
        elif kinds == (Shard, Replicate) and step.logical_shape[now.dim] % count == 0 <= now.dim:
            dim = now.dim
            if dim and async_op and prod(local.shape[:dim]) == 1:
                return None  # torch returns a view here, and waits for it later
            made = _all_gather(local.contiguous(), count, group)
            if dim:
                parts = _wait(made).unflatten(0, (count, -1)).movedim(0, dim)
                return parts.flatten(dim, dim + 1).contiguous()
        else:
            return None
        return AsyncCollectiveTensor(made) if async_op else _wait(made)
