"""A fixture with the meshes for searches of strategies."""

from collections.abc import Iterator

import pytest
import torch.distributed as dist
from strategies import SHAPES
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from planners.dtensor.programs.world import start_world


@pytest.fixture(scope="module")
def meshes() -> Iterator[dict[tuple[int, ...], DeviceMesh]]:
    """Return meshes by shape, in a world of 16 ranks; this process is the first rank."""
    if dist.is_initialized():
        dist.destroy_process_group()
    start_world(16)
    yield {shape: init_device_mesh("cpu", shape) for shape in SHAPES}
    dist.destroy_process_group()
