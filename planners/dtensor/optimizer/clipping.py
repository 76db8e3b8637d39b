"""Clip the gradients of DTensors by local norms and one collective for each mesh dimension."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch.distributed import _functional_collectives as collectives
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.nn.utils import clip_grad_norm_ as torch_clip_grad_norm_
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from planners.dtensor.optimizer import obstacles

Parts = Mapping[tuple[int, ...], list[torch.Tensor]]
"""Local gradients, by the mesh dimensions over which they are sharded."""


class _Clipped(NamedTuple):
    """What torch clips: an object with a gradient."""

    grad: torch.Tensor


def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """Clip gradients in place to a total norm, and return their norm before, as torch does.

    The norm may differ from torch's by rounding, because the parts are added in another order.
    Norms of other types than finite positive ones, and gradients that are not all on one mesh or
    cannot be used in parts, are left to torch.
    """
    listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    grads = [grad for parameter in listed if (grad := parameter.grad) is not None]
    parts = None if obstacles.is_watched() else _parts(grads)
    if parts is None or not 0 < float(norm_type) < float("inf"):
        return torch_clip_grad_norm_(
            listed or parameters, max_norm, norm_type, error_if_nonfinite, foreach
        )
    with torch.no_grad():
        mesh: DeviceMesh = grads[0].device_mesh
        total = _total_norm(parts, mesh, float(norm_type), foreach)
        if error_if_nonfinite:
            get_total_norm([total], norm_type, error_if_nonfinite)  # torch's own error
        local = list(map(_Clipped, chain.from_iterable(parts.values())))
        clip_grads_with_norm_(local, max_norm, total, foreach)
        torch.autograd.graph.increment_version(grads)
        return DTensor.from_local(total, mesh, [Replicate()] * mesh.ndim, run_check=False)


def _parts(grads: Sequence[Any]) -> Parts | None:
    """Return the local gradients; None if some are not all on one mesh, or not usable in parts."""
    if set(map(type, grads)) != {DTensor}:
        return None
    alike = defaultdict[Any, list[Any]](list)
    for grad in grads:
        spec = grad._spec
        alike[id(spec.mesh), spec.placements, spec.tensor_meta.dtype].append(grad)
    if len({mesh for mesh, _, _ in alike}) > 1:
        return None
    if any(obstacles.of_tensor(some[0]) for some in alike.values()):
        return None
    parts = defaultdict[tuple[int, ...], list[torch.Tensor]](list)
    for (_, placements, _), some in alike.items():
        split = (number for number, of in enumerate(placements) if type(of) is not Replicate)
        parts[tuple(split)].extend(grad._local_tensor for grad in some)
    local = {type(part) for some in parts.values() for part in some}
    return parts if local == {torch.Tensor} else None


def _total_norm(
    parts: Parts, mesh: DeviceMesh, norm_type: float, foreach: bool | None
) -> torch.Tensor:
    """Return the norm over all ranks; a replicated gradient counts once."""
    norms = torch.stack(
        [get_total_norm(some, norm_type, foreach=foreach) for some in parts.values()]
    )
    powers = norms.to(torch.promote_types(norms.dtype, torch.float32)) ** norm_type
    for dimension in range(mesh.ndim):
        if rows := [row for row, split in enumerate(parts) if dimension in split]:
            powers[rows] = collectives.all_reduce(powers[rows], "sum", (mesh, dimension))
    return (powers.sum() ** (1.0 / norm_type)).to(norms.dtype)
