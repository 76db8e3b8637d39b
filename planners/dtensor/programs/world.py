"""A program, and the world that it runs in: one process plays rank 0 of a cluster.

Collectives are fake. DTensor decides and dispatches as in a real cluster; only the results of
collectives are made up.
"""

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, _mesh_resources, init_device_mesh
from torch.distributed.tensor import DTensor, Placement, _collective_utils, _redistribute
from torch.distributed.tensor._collective_utils import MeshTopoInfo
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.testing._internal.distributed.fake_pg import FakeStore

from harness.contract import UsageError


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


def sharded(mesh: DeviceMesh, shape: Sequence[int], placements: Sequence[Placement]) -> DTensor:
    """Return a DTensor of this global shape, with small integers as this rank's part."""
    whole = torch.Size(shape)
    local, _ = compute_local_shape_and_global_offset(whole, mesh, placements, skip_offset=True)
    stride = torch.empty(whole, device="meta").stride()
    return placed(mesh, small_integers(*local), placements, shape=whole, stride=stride)


def small_integers(*shape: int) -> torch.Tensor:
    """Return small random integers as floats, so products and sums are exact on any CPU."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-3, 4, shape, generator=generator).float()


def make_mesh(shape: tuple[int, ...], names: tuple[str, ...], device: str = "cpu") -> DeviceMesh:
    """Return a mesh over all ranks of a world of its size; other worlds' meshes become invalid.

    Raises UsageError if the device is a GPU and torch finds none.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("device=cuda needs a GPU: torch finds no CUDA device on this machine.")
    start_world(math.prod(shape))
    return init_device_mesh(device, shape, mesh_dim_names=names)


def start_world(ranks: int) -> None:
    """Play rank 0 in a world of `ranks` ranks; meshes of worlds of other sizes become invalid."""
    if dist.is_initialized() and dist.get_world_size() != ranks:
        dist.destroy_process_group()
    if not dist.is_initialized():
        dist.init_process_group(backend="fake", rank=0, world_size=ranks, store=FakeStore())


@contextlib.contextmanager
def playing_one_rank(ranks_per_host: int) -> Iterator[None]:
    """Inside the context, let torch behave as on a cluster with `ranks_per_host` ranks per host.

    By default torch's cost model treats each CPU as a host. The context also silences messages
    about collectives that CPUs lack, and limits torch to one thread, so that small ops are quick.
    """
    MeshTopoInfo.build_from_mesh.cache_clear()
    levels = {logger: logger.level for logger in (_collective_utils.logger, _redistribute.logger)}
    for logger in levels:
        logger.setLevel(logging.ERROR)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with mock.patch.object(
            type(_mesh_resources),
            "num_devices_per_host",
            staticmethod(lambda device_type: ranks_per_host),
        ):
            yield
    finally:
        torch.set_num_threads(threads)
        for logger, level in levels.items():
            logger.setLevel(level)
        MeshTopoInfo.build_from_mesh.cache_clear()
