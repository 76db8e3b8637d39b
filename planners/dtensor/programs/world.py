"""Simulate a cluster: one process plays rank 0 of a world with fake collectives.

DTensor decides and dispatches as in a real cluster. Only the results of collectives are fake.
"""

import contextlib
import logging
import math
from collections.abc import Iterator
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, _mesh_resources, init_device_mesh
from torch.distributed.tensor import _collective_utils, _redistribute
from torch.distributed.tensor._collective_utils import MeshTopoInfo
from torch.testing._internal.distributed.fake_pg import FakeStore

from harness.contract import UsageError

DEVICE = "cpu"


def make_mesh(shape: tuple[int, ...], names: tuple[str, ...], device: str = DEVICE) -> DeviceMesh:
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
