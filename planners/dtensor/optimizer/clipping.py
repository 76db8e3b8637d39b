"""Clip the gradients of DTensors by local norms and one collective for each mesh dimension."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
import torch.distributed as dist
from msgspec import Struct
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.nn.utils import (
    clip_grad_norm_ as torch_clip_grad_norm_,
    clip_grads_with_norm_,
    get_total_norm,
)
from torch.utils._foreach_utils import _has_foreach_support

from planners.dtensor.dispatch.torch_path import is_watched
from planners.dtensor.optimizer import obstacles
from planners.dtensor.optimizer.local_rule import raised_as_by_torch, versions

Parts = Mapping[tuple[int, ...], list[torch.Tensor]]
"""Local gradients, by the mesh dimensions over which they are sharded."""

_SPEC, _LOCAL = map(attrgetter, ("_spec", "_local_tensor"))


class _Clipped(Struct):
    """What torch clips: an object with a gradient."""

    grad: torch.Tensor


class Clipping:
    """Clip gradients as torch does, and remember how they are split.

    Attributes:
        specs: the gradients' specs in the last call. A later mesh may equal theirs and have other
            process groups, so it is never used.
        parts: the gradients' places by the mesh dimensions over which they are sharded; None if
            some are not usable in parts.
    """

    def __init__(self) -> None:
        self.specs: list[DTensorSpec] = []
        self.parts: Mapping[tuple[int, ...], list[int]] | None = None

    def __call__(
        self,
        parameters: torch.Tensor | Iterable[torch.Tensor],
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> torch.Tensor:
        """Clip gradients in place to a total norm, and return their norm before.

        The norm may differ from torch's by rounding, because the parts are added in another order.
        Norms of other types than finite positive ones, and gradients that are not all on one mesh
        or cannot be used in parts, are left to torch.
        """
        listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        grads = [grad for parameter in listed if (grad := parameter.grad) is not None]
        local = None if is_watched() else self._local(grads)
        before = None if local is None else versions(local)
        if local is None or before is None or not 0 < float(norm_type) < float("inf"):
            return torch_clip_grad_norm_(
                listed or parameters, max_norm, norm_type, error_if_nonfinite, foreach
            )
        takes_lists = _has_foreach_support(grads, local[0].device) if foreach is None else foreach
        with torch.no_grad(), raised_as_by_torch(grads, local, before, takes_lists):
            mesh: DeviceMesh = grads[0]._spec.mesh
            assert self.parts is not None
            parts = {split: [local[row] for row in rows] for split, rows in self.parts.items()}
            total = _total_norm(parts, mesh, float(norm_type), foreach)
            if error_if_nonfinite:
                get_total_norm([total], norm_type, error_if_nonfinite)  # torch's own error
            clip_grads_with_norm_(list(map(_Clipped, local)), max_norm, total, foreach)
            return DTensor.from_local(total, mesh, [Replicate()] * mesh.ndim, run_check=False)

    def _local(self, grads: Sequence[Any]) -> list[torch.Tensor] | None:
        """Return the local gradients; None if they cannot be clipped in parts."""
        if set(map(type, grads)) != {DTensor}:
            return None
        specs = list(map(_SPEC, grads))
        mesh = specs[0].mesh
        if mesh.get_coordinate() is None or any(spec.mesh is not mesh for spec in specs):
            return None
        if specs != self.specs:
            self.specs, self.parts = specs, _parts(grads)
        local = list(map(_LOCAL, grads))
        return None if self.parts is None or set(map(type, local)) != {torch.Tensor} else local


def _parts(grads: Sequence[Any]) -> Mapping[tuple[int, ...], list[int]] | None:
    """Return the gradients' places by the mesh dimensions over which they are sharded, or None."""
    if any(map(obstacles.of_tensor, grads)):
        return None
    parts = defaultdict[tuple[int, ...], list[int]](list)
    for row, grad in enumerate(grads):
        placements = enumerate(grad._spec.placements)
        parts[tuple(number for number, of in placements if type(of) is not Replicate)].append(row)
    return parts


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
            terms = powers[rows]
            dist.all_reduce(terms, group=mesh.get_group(dimension))
            powers[rows] = terms
    return (powers.sum() ** (1.0 / norm_type)).to(norms.dtype)
