"""What is made under a dispatch, told so that it can be compared, and what it is made of."""

from collections.abc import Callable
from typing import Any

import torch
from random_programs import described
from small_world import counted, placed, running
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from planners.dtensor.dispatch.base import Dispatch

Made = Callable[[DeviceMesh], Any]


def told(dispatch: Dispatch, mesh: DeviceMesh, make: Made, times: int = 3) -> list[Any]:
    """Return all that can be seen of what is made, time after time under one installation."""
    with running(dispatch):
        return [outcome(make, mesh) for _ in range(times)]


def outcome(make: Made, mesh: DeviceMesh) -> Any:
    try:
        return described(make(mesh), True)
    except Exception as error:
        return type(error), str(error)


def program(x: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
    hidden = torch.relu(x @ weight)
    total = (hidden + 1.0).sum(0)
    return [hidden, total, total * total, hidden.view(-1, 2, 2), hidden.t()]


def operands(mesh: DeviceMesh, rows: int = 2) -> tuple[DTensor, DTensor]:
    return placed(mesh, counted(rows, 8), Shard(0)), placed(mesh, counted(8, 4), Replicate())
