"""Patches of torch that are active while the cache is installed.

Some patches notify the cache of changes to torch's own caches and strategies. Others save work
around DTensors: `DTensor.from_local` and the backward pass of `redistribute` always run an autograd
function, even if no gradient is needed, as for a batch and in every backward pass. These functions
query the mesh's sizes, and plan collectives even for gradients that do not move.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from operator import mul
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate
from torch.distributed.tensor._api import _FromTorchTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._redistribute import NestedRedistribute

from planners.dtensor.cache.recipes import make_dtensor
from planners.dtensor.dispatch.specs import copy_of, is_plain, layout_of
from planners.dtensor.dispatch.torch_path import PROPAGATOR, is_watched
from planners.dtensor.search.tensor_meta import order_of, stride_of
from planners.instruments import replaced

_REGISTRATIONS = (
    "register_op_strategy",
    "register_sharding_prop_rule",
    "register_single_dim_op_strategy",
)
_STRIDED = "use_strided_shard_as_shard_order"


def following_torch(
    forget: Callable[[], None], give_back: Callable[[OpOverload], None]
) -> AbstractContextManager[None]:
    """Call `forget` after torch's cache is cleared, `give_back` before a strategy is registered."""
    clear = torch._C._clear_DTensor_sharding_propagator_cache

    def cleared() -> None:
        clear()
        forget()

    def registering(register: Callable[..., None]) -> Callable[..., None]:
        def registered(propagator: Any, op: OpOverload, *args: Any, **kwargs: Any) -> None:
            give_back(op)
            register(propagator, op, *args, **kwargs)

        return registered

    kind = type(PROPAGATOR)
    return replaced(
        (
            (torch._C, "_clear_DTensor_sharding_propagator_cache", cleared),
            *((kind, name, registering(getattr(kind, name))) for name in _REGISTRATIONS),
        )
    )


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
