"""Redistributions by a single collective, without torch's layers around the collective.

Torch redistributes by functional collectives. Each is an op with an autograd rule in Python. A
second Python op wraps the result, so that its user can wait later, but most users wait at once. If
no gradient is needed, it is enough to start the collective and wait for its result.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard, _api, _dispatch, _redistribute
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from planners.dtensor.dispatch.base import BoundedTable
from planners.dtensor.dispatch.torch_path import is_watched
from planners.instruments import replaced

MOST_KNOWN = 4096

_OPS = torch.ops._c10d_functional
_all_reduce = _OPS.all_reduce.default
_all_gather = _OPS.all_gather_into_tensor.default
_reduce_scatter = _OPS.reduce_scatter_tensor.default
_wait = _OPS.wait_tensor.default

_below_autograd = torch._C._AutoDispatchBelowAutograd

Direct = Callable[[torch.Tensor, DeviceMesh, bool], torch.Tensor | None]
"""Redistributes a local tensor on a mesh, asynchronously or not; None leaves that to torch."""


class DirectMoves:
    """Functions that carry out the latest redistributions, one for each plan of torch."""

    def __init__(self, limit: int = MOST_KNOWN) -> None:
        self._known: BoundedTable[int, tuple[Any, Direct | None]] = BoundedTable(limit)

    def clear(self) -> None:
        """Remove all functions."""
        self._known.clear()

    def made_directly(self) -> AbstractContextManager[None]:
        """Let torch redistribute local tensors by these functions inside the context."""
        by_torch, known = _redistribute.redistribute_local_tensor, self._known

        def redistributed(
            local: torch.Tensor,
            current: DTensorSpec,
            target: DTensorSpec,
            *,
            async_op: bool = False,
            **options: Any,
        ) -> torch.Tensor:
            steps = found = None
            if local.__class__ is torch.Tensor and not (
                options.get("use_graph_based_transform") is not None
                or is_watched()  # first: a mode would see the access to `requires_grad`
                or (local.requires_grad and torch.is_grad_enabled())
            ):
                steps = _steps(current, target)
                found = known.entries.get(id(steps))
                if found is not None and (direct := found[1]) is not None:
                    made = direct(local, current.mesh, async_op)
                    if made is not None:
                        return made
            made = by_torch(local, current, target, async_op=async_op, **options)
            if steps is not None and found is None:
                known.add(id(steps), (steps, _direct(steps, current.mesh)))
            return made

        modules = (_redistribute, _dispatch, _api)
        return replaced((owner, "redistribute_local_tensor", redistributed) for owner in modules)


def _steps(current: DTensorSpec, target: DTensorSpec) -> Any:
    """Return the steps of torch's plan, one object while torch caches it; None without a plan."""
    if current.mesh is not target.mesh or not current.mesh._is_current_rank_part_of_mesh():
        return None
    try:
        return _redistribute._gen_transform_infos(current, target, None)
    except Exception:  # torch has the better error message
        return None


def _direct(steps: Sequence[Any], mesh: DeviceMesh) -> Direct | None:
    """Return a function for a plan with one step of a supported kind; None for other plans."""
    if len(steps) != 1:
        return None
    (step,) = steps
    now, then = step.src_dst_placements
    count = mesh.size(step.mesh_dim)
    kinds = type(now), type(then)
    if count == 1:
        return None
    if kinds == (Partial, Replicate):
        return _reduced(now.reduce_op.lower(), step.mesh_dim)
    if kinds == (Shard, Replicate) and now.dim >= 0 and step.logical_shape[now.dim] % count == 0:
        return _gathered(now.dim, step.mesh_dim, count)
    if kinds == (Partial, Shard) and then.dim >= 0:
        return _scattered(now.reduce_op.lower(), then.dim, step.mesh_dim, count)
    if now.is_replicate() and then.is_partial():
        return lambda local, mesh, _: then._partition_value(local, mesh, step.mesh_dim)
    if kinds == (Replicate, Shard):
        return lambda local, mesh, _: then._replicate_to_shard(
            local, mesh, step.mesh_dim, mesh._sym_get_coordinate(step.mesh_dim)
        )
    return None


def _reduced(operator: str, mesh_dim: int) -> Direct:
    def direct(local: torch.Tensor, mesh: DeviceMesh, async_op: bool) -> torch.Tensor:
        with _below_autograd():
            made = _all_reduce(local, operator, mesh._dim_group_names[mesh_dim])
            return AsyncCollectiveTensor(made) if async_op else _wait(made)

    return direct


def _gathered(dim: int, mesh_dim: int, count: int) -> Direct:
    def direct(local: torch.Tensor, mesh: DeviceMesh, async_op: bool) -> torch.Tensor | None:
        if dim and async_op and prod(local.shape[:dim]) == 1:
            return None  # torch returns a view here, and waits for it later
        with _below_autograd():
            made = _all_gather(local.contiguous(), count, mesh._dim_group_names[mesh_dim])
            if async_op and not dim:
                return AsyncCollectiveTensor(made)
            made = _wait(made)
        if not dim:
            return made
        parts = made.unflatten(0, (count, -1)).movedim(0, dim)
        return parts.flatten(dim, dim + 1).contiguous()

    return direct


def _scattered(operator: str, dim: int, mesh_dim: int, count: int) -> Direct:
    def direct(local: torch.Tensor, mesh: DeviceMesh, async_op: bool) -> torch.Tensor | None:
        if local.shape[dim] % count:
            return None
        if dim:
            local = local.unflatten(dim, (count, -1)).movedim(dim, 0).flatten(0, 1)
        with _below_autograd():
            name = mesh._dim_group_names[mesh_dim]
            made = _reduce_scatter(local.contiguous(), operator, count, name)
            return AsyncCollectiveTensor(made) if async_op else _wait(made)

    return direct
