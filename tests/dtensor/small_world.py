"""Helpers for most tests of the family: a world of few ranks, small tensors, problems."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement

from harness.measuring.jobs import Checked, check
from harness.measuring.timing.turns import SystemClock
from harness.model.ids import ProblemId
from harness.topologies.lookup import find_topology
from planners.dtensor import FAMILY
from planners.dtensor.dispatch.torch_path import clear_torch_caches
from planners.dtensor.problem import DTensorProblem
from planners.dtensor.programs.world import make_mesh, playing_one_rank

E = TypeVar("E")

FEW_ROUNDS = 3
"""The calls of each of the `ops` under the fixture of this name."""

FOR_MUON = ("gather-each", "owned")

STEPPING = (*FOR_MUON, "local-step", "accelerated", "plain-step")
"""The variants that replace the step of an optimizer, and need one."""

EVERYWHERE = [name for name in FAMILY.variants if name not in STEPPING]

_NAMES = ("outer", "middle", "inner")


def mesh_of(*shape: int) -> DeviceMesh:
    return make_mesh(shape, _NAMES[: len(shape)])


def placed(
    mesh: DeviceMesh, local: torch.Tensor, *placements: Placement, **options: Any
) -> DTensor:
    """Return a DTensor with `local` as this rank's part."""
    return DTensor.from_local(local, mesh, placements, run_check=False, **options)


def counted(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor of this shape with the elements 1, 2, 3, ..."""
    size = torch.Size(shape).numel()
    return torch.arange(1, size + 1).view(shape).to(dtype)


@contextmanager
def played(enter: Callable[[], AbstractContextManager[E]] = nullcontext) -> Iterator[E]:
    """Enter a context with cold caches of torch, on one rank of a host with two ranks."""
    clear_torch_caches()
    try:
        with playing_one_rank(2), enter() as entered:
            yield entered
    finally:
        clear_torch_caches()


def problem_of(text: str) -> DTensorProblem:
    """Build a problem from its id, e.g. `mlp/dgx_a100_80gb:8`."""
    problem = ProblemId.parse(text)
    return FAMILY.work.build(problem.workload, find_topology(problem.topology, problem.gpus))


def checked(variant: str, problem: DTensorProblem) -> Checked:
    """Run the harness's check of a variant, and return its result."""
    return check(FAMILY, FAMILY.find(variant), problem, SystemClock())
