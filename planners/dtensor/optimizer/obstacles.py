"""Say why an optimizer's rule cannot run on local tensors: for a group, or for one parameter."""

from collections.abc import Mapping, Sequence
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
TOGETHER = "in one group with a parameter that torch must step"
INFERENCE = "an inference tensor"
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
    if tensor.is_inference() or tensor._local_tensor.is_inference():
        return INFERENCE
    return COMPLEX if tensor.dtype.is_complex else ""


def of_parameters(columns: Sequence[Sequence[Any]], *, listed: bool) -> list[str]:
    """Return the obstacle of each parameter of a group, or an empty string.

    If torch must make a state, or refuses a list because of one parameter, it steps the group.
    """
    rows = list(zip(*filter(None, columns), strict=True))
    found = [of_parameter(*row) for row in rows]
    if STATE in found or (listed and any(found)):
        return [obstacle or TOGETHER for obstacle in found]
    return [of or of_gradient(*row[:2]) for of, row in zip(found, rows, strict=True)]


def of_parameter(parameter: Any, grad: Any, *state: Any) -> str:
    """Return the obstacle of a parameter or of its state, or an empty string."""
    if any(tensor is None for tensor in state):
        return STATE
    if obstacle := of_tensor(parameter):
        return obstacle
    if type(grad) is not DTensor:
        return GRADIENT
    for tensor in state:
        is_number = type(tensor) is torch.Tensor and tensor.dim() == 0
        if not is_number and (
            of_tensor(tensor) or not is_split_alike(parameter._spec, tensor._spec)
        ):
            return STATE
    return ""


def of_gradient(parameter: Any, grad: Any) -> str:
    """Return the obstacle of a gradient, which torch can move, or an empty string."""
    return of_tensor(grad) or ("" if is_split_alike(parameter._spec, grad._spec) else GRADIENT)


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
    if chosen:
        return any(chosen)
    lr = group["lr"]
    takes_lists = not isinstance(lr, torch.Tensor) or bool(group.get("capturable"))
    return takes_lists and parameter.device.type != "cpu"
