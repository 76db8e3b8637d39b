"""Pairs of equal optimizers on DTensors: one steps as torch does, the other is accelerated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.optim import Optimizer

from planners.dtensor.optimizer.accelerate import accelerate_optimizer


@dataclass(frozen=True)
class Weight:
    """A parameter: its global shape and placements; without placements it is no DTensor."""

    shape: tuple[int, ...]
    placements: tuple[Placement, ...] | None
    dtype: torch.dtype = torch.float32
    used: tuple[bool, ...] = (True,)  # whether it has a gradient, step by step, repeated

    def tensor(self, mesh: DeviceMesh) -> torch.Tensor:
        """Return random values with this shape and these placements."""
        if self.placements is None:
            return torch.randn(self.shape).to(self.dtype)
        whole = torch.Size(self.shape)
        local, _ = compute_local_shape_and_global_offset(whole, mesh, self.placements)
        stride = torch.empty(whole, device="meta").stride()
        part = torch.randn(tuple(local)).to(self.dtype)
        return DTensor.from_local(
            part, mesh, self.placements, run_check=False, shape=whole, stride=stride
        )


@dataclass
class Training:
    """Weights with an optimizer, and a step with new gradients."""

    mesh: DeviceMesh
    weights: Sequence[Weight]
    make: Callable[..., Optimizer]
    taken: int = 0
    parameters: list[torch.nn.Parameter] = field(default_factory=list)

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.parameters = [torch.nn.Parameter(each.tensor(self.mesh)) for each in self.weights]
        self.optimizer = self.make(self.parameters)

    def grads(self) -> None:
        """Set new gradients, the same in all trainings after as many steps."""
        torch.manual_seed(self.taken + 1)
        for weight, parameter in zip(self.weights, self.parameters, strict=True):
            has_grad = weight.used[self.taken % len(weight.used)]
            grad = weight.tensor(self.mesh)
            parameter.grad = grad if has_grad else None
        self.taken += 1

    def step(self, *closure: Callable[[], float]) -> Any:
        """Take one step with new gradients."""
        self.grads()
        return self.optimizer.step(*closure)

    def states(self) -> list[dict[str, Any]]:
        """Return the states of the parameters that have one."""
        return [self.optimizer.state.get(each, {}) for each in self.parameters]

    def result(self) -> list[Any]:
        """Return parameters, gradients and states, to the last bit and version."""
        return [
            [exact(each) for each in self.parameters],
            [exact(each.grad) for each in self.parameters],
            [{name: exact(value) for name, value in state.items()} for state in self.states()],
            len(self.optimizer.state),
        ]


def exact(value: Any, has_versions: bool = True) -> Any:
    """Return a tensor's class, placements, types, bits, and how often it was changed in place."""
    if not isinstance(value, torch.Tensor):
        return value
    local = value._local_tensor if isinstance(value, DTensor) else value
    placed = str(value.placements) if isinstance(value, DTensor) else ""
    bits = local.detach().contiguous().flatten().view(torch.uint8).tolist()
    versions = [
        None if tensor.is_inference() or not has_versions else tensor._version
        for tensor in (value, local)
    ]
    return type(value), placed, value.dtype, value.shape, value.stride(), bits, versions


def pair(
    mesh: DeviceMesh, weights: Sequence[Weight], make: Callable[..., Optimizer]
) -> tuple[Training, Training, accelerate_optimizer]:
    """Return a training by torch, an equal one that is accelerated, and its acceleration."""
    torchs, ours = (Training(mesh, weights, make) for _ in range(2))
    return torchs, ours, accelerate_optimizer(ours.optimizer)
