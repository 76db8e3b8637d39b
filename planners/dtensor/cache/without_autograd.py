"""DTensors made of local tensors, and gradients handed on, without autograd where it has no part.

`DTensor.from_local` and the backward of `redistribute` go through an autograd function each time,
also where no gradient is taken: for a batch, and in every backward pass. They ask the mesh for its
sizes and plan collectives for gradients that stay where they are.
"""

from contextlib import AbstractContextManager
from operator import mul
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate
from torch.distributed.tensor._api import _FromTorchTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._redistribute import NestedRedistribute

from planners.dtensor.cache.layouts import Layouts
from planners.dtensor.cache.plans import make_dtensor
from planners.dtensor.dispatch.specs import PlacedSpec, SpecTable
from planners.dtensor.dispatch.torch_path import functions_overridden, modes_active
from planners.dtensor.search.tensor_meta import order_of, stride_of
from planners.instruments import replaced

_STRIDED = "use_strided_shard_as_shard_order"

_transformed = torch._C._are_functorch_transforms_active


def without_autograd(specs: SpecTable, layouts: Layouts) -> AbstractContextManager[None]:
    """Let torch make DTensors and hand gradients on without autograd where it has no part.

    What modes, transforms, export or the ranks outside of a mesh take part in stays torch's.
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
            and not (run_check or others_take_part() or local.requires_grad)
            and (placed := specs.of_any_size(mesh, placements)) is not None
            and mesh._is_current_rank_part_of_mesh()
        ):
            meta = _meta(local, placed, layouts, shape, stride)
            if meta is not None:
                shared = _shared(local)
                spec = specs.spec(placed, meta)
                return make_dtensor(DTensor, shared, spec, requires_grad=False)
        return from_local(local, mesh, placements, run_check, shape, stride, *rest)

    def handed_on(gradient: Any, previous: DTensorSpec, *rest: Any) -> Any:
        if (
            type(gradient) is DTensor
            and not (torch.is_grad_enabled() or others_take_part() or gradient.requires_grad)
            and (placed := specs.of_any_size(previous.mesh, gradient.placements)) is not None
            and _stays(gradient, placed, previous, rest)
        ):
            spec = specs.spec(placed, gradient._spec.tensor_meta)
            return make_dtensor(DTensor, gradient._local_tensor, spec, requires_grad=False)
        return redistribute(gradient, previous, *rest)

    return replaced(((_FromTorchTensor, "apply", made), (NestedRedistribute, "apply", handed_on)))


def others_take_part() -> bool:
    """Whether modes, transforms, forward gradients or export have a part in what is done."""
    return bool(
        modes_active()
        or functions_overridden()
        or _transformed()
        or forward_ad._current_level >= 0
        or torch.compiler.is_exporting()
    )


def _meta(
    local: torch.Tensor, placed: PlacedSpec, layouts: Layouts, shape: Any, stride: Any
) -> TensorMeta | None:
    """Return what the whole tensor is like; None where that is not plain from the local one."""
    if shape and stride:
        return TensorMeta(shape, stride, local.dtype)
    if shape or stride:
        return None
    mesh, placements = placed.attributes["mesh"], placed.attributes["placements"]
    local_shape = local.shape
    layout = layouts.of(mesh, placements, len(local_shape))
    if layout is None or (local_shape and min(local_shape) < 2):
        return None
    order = order_of(local_shape, local.stride())
    if order is None:
        return None
    whole = torch.Size(map(mul, local_shape, layout.parts))
    return TensorMeta(whole, stride_of(whole, order), local.dtype)


def _shared(local: torch.Tensor) -> torch.Tensor:
    """Return a tensor of its own on the same values, as torch makes it: without gradients."""
    takes_gradients = torch.is_grad_enabled()
    if not takes_gradients:
        return local.view_as(local)
    torch._C._set_grad_enabled(False)
    try:
        return local.view_as(local)
    finally:
        torch._C._set_grad_enabled(True)


def _stays(
    gradient: DTensor, placed: PlacedSpec, previous: DTensorSpec, rest: tuple[Any, ...]
) -> bool:
    """Whether a gradient lies where it has to, in the type that it has to have.

    That is where the tensor lay before, but torch leaves it whole where that was partial.
    """
    spec, known, dtype = gradient._spec, placed.attributes, gradient._local_tensor.dtype
    _, *dtypes = rest
    return (
        spec.mesh is previous.mesh
        and all(map(_lies_as, spec.placements, previous.placements))
        and known["shard_order"] == spec.shard_order == previous.shard_order
        and known[_STRIDED] == vars(spec)[_STRIDED] == vars(previous)[_STRIDED]
        and all(each is dtype for each in dtypes)
        and spec.mesh._is_current_rank_part_of_mesh()
    )


def _lies_as(now: Placement, before: Placement) -> bool:
    return now == before or (type(now) is Replicate and type(before) is Partial)
