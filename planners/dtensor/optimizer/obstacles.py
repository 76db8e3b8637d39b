"""Say why an optimizer's rule cannot run on local tensors: for a group, or for one parameter."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor.placement_types import _StridedShard

from planners.dtensor.dispatch.torch_path import is_watched

_CARRY_VALUES = (Shard, _StridedShard, Replicate)
"""The placements of values. The parts of all others are terms, which torch adds up first."""

RULE = "not an elementwise rule of torch for DTensors"
MODE = "a mode or a compiler sees the ops"
OPTIONS = "differentiable, or an option is a DTensor"
FUSED = "torch has no fused step of this rule for DTensors"
MIXED = "in a list with tensors that are no DTensors"
PLAIN = "no DTensor"
PARTIAL = "partial"
OUTSIDE = "this rank is outside the mesh"
SUBCLASS = "the local tensor has a class of its own"
COMPLEX = "complex numbers"
GRADIENT = "the gradient has other placements"
STATE = "the state has other placements, or none yet"


def is_split_alike(spec: DTensorSpec, other: DTensorSpec) -> bool:
    """Return whether two tensors have the same shape, and the same parts on the same ranks."""
    return spec is other or (
        spec.mesh == other.mesh
        and spec.placements == other.placements
        and spec.shard_order == other.shard_order
        and spec.shape == other.shape
    )


def of_tensor(tensor: Any) -> str:
    """Return the obstacle to elementwise ops on the local tensor, or an empty string."""
    if type(tensor) is not DTensor:
        return PLAIN
    spec = tensor._spec
    if not all(type(placement) in _CARRY_VALUES for placement in spec.placements):
        return PARTIAL
    if spec.mesh.get_coordinate() is None:
        return OUTSIDE
    if type(tensor._local_tensor) is not torch.Tensor:
        return SUBCLASS
    return COMPLEX if tensor.dtype.is_complex else ""


def of_parameter(parameter: Any, grad: Any, state: Iterable[Any]) -> str:
    """Return the obstacle to a parameter's step on local tensors, or an empty string."""
    if found := of_tensor(parameter):
        return found
    if found := of_tensor(grad):
        return found if found != PLAIN else GRADIENT
    if not is_split_alike(parameter._spec, grad._spec):
        return GRADIENT
    for tensor in state:
        is_number = type(tensor) is torch.Tensor and tensor.dim() == 0
        if not is_number and (
            of_tensor(tensor) or not is_split_alike(parameter._spec, tensor._spec)
        ):
            return STATE
    return ""


def of_step(optimizer: torch.optim.Optimizer) -> str:
    """Return the obstacle to stepping on local tensors now, or an empty string."""
    if is_watched():
        return MODE
    scales = (getattr(optimizer, name, None) for name in ("grad_scale", "found_inf"))
    return OPTIONS if any(type(scale) is DTensor for scale in scales) else ""


def of_group(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> str:
    """Return the obstacle that all parameters of a group have, or an empty string."""
    if group.get("fused") and not isinstance(optimizer, torch.optim.Adam):
        return FUSED
    options = (value for name, value in group.items() if name != "params")
    numbers = chain.from_iterable(value if type(value) is tuple else (value,) for value in options)
    if group["differentiable"] or any(type(number) is DTensor for number in numbers):
        return OPTIONS
    return ""


def is_listed(group: Mapping[str, Any], parameter: torch.Tensor) -> bool:
    """Return whether each of torch's ops takes all parameters of a group as a list."""
    chosen = [group[name] for name in ("foreach", "fused") if group.get(name) is not None]
    return any(chosen) if chosen else parameter.device.type != "cpu"
