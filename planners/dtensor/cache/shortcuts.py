"""Make and redistribute DTensors without the work that torch does for other cases.

`DTensor.from_local` and the backward pass of `redistribute` always run an autograd function, even
if no gradient is needed, as for a batch and in every backward pass. These functions query the
mesh's sizes, and plan collectives even for gradients that do not move.

Torch redistributes by functional collectives. Each is an op with an autograd rule in Python. A
second Python op wraps the result, so that its user can wait later, but most users wait at once. If
no gradient is needed, it is enough to start the collective and wait for its result.
"""

from contextlib import AbstractContextManager
from math import prod
from operator import mul
from typing import Any

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    _api,
    _dispatch,
    _redistribute,
)
from torch.distributed.tensor._api import _FromTorchTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._redistribute import NestedRedistribute

from planners.dtensor.cache.recipes import make_dtensor
from planners.dtensor.dispatch.specs import copy_of, is_plain, layout_of
from planners.dtensor.dispatch.torch_path import is_watched
from planners.dtensor.search.tensor_meta import order_of, stride_of
from planners.instruments import replaced

_STRIDED = "use_strided_shard_as_shard_order"

_OPS = torch.ops._c10d_functional
_all_reduce = _OPS.all_reduce.default
_all_gather = _OPS.all_gather_into_tensor.default
_reduce_scatter = _OPS.reduce_scatter_tensor.default
_wait = _OPS.wait_tensor.default


def without_autograd() -> AbstractContextManager[None]:
    """Let torch create DTensors and pass gradients on without autograd, if it is not needed.

    Torch itself handles calls under modes, transforms or export, and on ranks outside the mesh.
    """
    from_local, redistribute = _FromTorchTensor.apply, NestedRedistribute.apply

    def made(
        local: torch.Tensor,
        mesh: Any,
        placements: Any,
        run_check: bool,
        shape: Any = None,
        stride: Any = None,
        *rest: Any,
    ) -> Any:
        if (
            type(local) is torch.Tensor
            and not (run_check or is_watched() or local.requires_grad)
            and mesh._is_current_rank_part_of_mesh()
            and (meta := _meta(local, mesh, placements, shape, stride))
        ):
            spec = DTensorSpec(mesh, placements, tensor_meta=meta)
            return make_dtensor(DTensor, _shared(local), spec, requires_grad=False)
        return from_local(local, mesh, placements, run_check, shape, stride, *rest)

    def passed_on(gradient: Any, previous: DTensorSpec, *rest: Any) -> Any:
        if (
            type(gradient) is DTensor
            and not (torch.is_grad_enabled() or is_watched() or gradient.requires_grad)
            and _stays(gradient, previous, rest)
        ):
            spec = copy_of(gradient._spec)
            return make_dtensor(DTensor, gradient._local_tensor, spec, requires_grad=False)
        return redistribute(gradient, previous, *rest)

    return replaced(((_FromTorchTensor, "apply", made), (NestedRedistribute, "apply", passed_on)))


def _meta(
    local: torch.Tensor, mesh: DeviceMesh, placements: Any, shape: Any, stride: Any
) -> TensorMeta | None:
    """Return the global tensor's meta; None if it does not simply follow from the local tensor."""
    local_shape = local.shape
    layout = layout_of(mesh, placements, len(local_shape))
    if layout is None:
        return None
    if shape and stride:
        is_hashable = isinstance(shape, tuple) and isinstance(stride, tuple)
        return TensorMeta(shape, stride, local.dtype) if is_hashable else None
    if shape or stride or (local_shape and min(local_shape) < 2):
        return None
    order = order_of(local_shape, local.stride())
    if order is None:
        return None
    whole = torch.Size(map(mul, local_shape, layout.parts))
    return TensorMeta(whole, stride_of(whole, order), local.dtype)


def _shared(local: torch.Tensor) -> torch.Tensor:
    """Return a new tensor with the same storage, made without gradients as torch makes it."""
    if not torch.is_grad_enabled():
        return local.view_as(local)
    torch._C._set_grad_enabled(False)
    try:
        return local.view_as(local)
    finally:
        torch._C._set_grad_enabled(True)


def _stays(gradient: DTensor, previous: DTensorSpec, rest: tuple[Any, ...]) -> bool:
    """Whether a gradient already has the placements and the type that it must have.

    The required placements are the tensor's previous ones, or Replicate in place of Partial.
    """
    spec, dtype = gradient._spec, gradient._local_tensor.dtype
    return (
        spec.mesh is previous.mesh
        and all(map(_lies_as, spec.placements, previous.placements))
        and spec.shard_order == previous.shard_order
        and vars(spec)[_STRIDED] == vars(previous)[_STRIDED]
        and is_plain(spec)
        and all(wanted is dtype for wanted in rest[1:])
        and spec.mesh._is_current_rank_part_of_mesh()
    )


def _lies_as(now: Placement, before: Placement) -> bool:
    return now == before or (type(now) is Replicate and type(before) is Partial)


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
    if count == 1 or not local.numel():
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
            if dim and prod(local.shape[:dim]) == 1:
                return None  # the reordering below would be a view; torch's is one only if async
            made = _all_gather(local.contiguous(), count, group)
            if dim:
                parts = _wait(made).unflatten(0, (count, -1)).movedim(0, dim)
                return parts.flatten(dim, dim + 1).contiguous()
        else:
            return None
        return AsyncCollectiveTensor(made) if async_op else _wait(made)
