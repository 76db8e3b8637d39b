"""A program of ops on the DTensors of a mesh, and its inputs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement


@dataclass(frozen=True, slots=True)
class OpProgram:
    """A program of ops on the DTensors of a mesh, and how to run and check it."""

    mesh: DeviceMesh
    step: Callable[[], Sequence[torch.Tensor]]  # one call; returns results in the order of `names`
    names: tuple[str, ...]
    size: int  # the number of ops, or of parameters or layers in training
    cold: bool = False  # every call starts with cold caches
    compares_values: bool = True  # all calls have the same values, in spite of fake collectives
    compares_moves: bool = True  # clipping may move partial norms, or add them up in another way
    is_dynamic: bool = False  # the first dimension varies, and decisions do not depend on it
    optimizer: torch.optim.Optimizer | None = None  # for variants that replace its step
    differentiates: bool = False  # each step runs a backward pass
    counts_kept: bool = False  # whether objects that outlive a step are counted

    @property
    def is_muon(self) -> bool:
        """Whether the optimizer is torch's Muon, whose matrices may have owners."""
        return type(self.optimizer) is torch.optim.Muon

    @property
    def may_fork(self) -> bool:
        """Whether a fork of this process can run the program.

        CUDA does not work in a fork. A build for CUDA also refuses a backward pass there once this
        process has run one, on any device.
        """
        has_cuda = torch.version.cuda is not None
        return self.mesh.device_type != "cuda" and not (self.differentiates and has_cuda)


def placed(
    mesh: DeviceMesh, local: torch.Tensor, placements: Sequence[Placement], **whole: Any
) -> DTensor:
    """Return the DTensor with this local tensor, on the mesh's device."""
    local = local.to(mesh.device_type)
    return DTensor.from_local(local, mesh, placements, run_check=False, **whole)


def small_integers(*shape: int) -> torch.Tensor:
    """Return small random integers as floats, so products and sums are exact on any CPU."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-3, 4, shape, generator=generator).float()
