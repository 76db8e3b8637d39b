"""Fixtures; every test module gets its own world of fake ranks, which ends with the module."""

import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from small_world import FEW_ROUNDS, counted, mesh_of, placed
from torch._subclasses import fake_tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from planners.dtensor.dispatch.torch_path import clear_torch_caches
from planners.dtensor.programs import build


def pytest_configure(config: pytest.Config) -> None:
    """Let `accelerate()` say on a release of torch that its hooks of FSDP2 are off."""
    config.addinivalue_line("filterwarnings", "ignore:.*hooks was tested")


@pytest.fixture(autouse=True, scope="module")
def world() -> Iterator[None]:
    # It writes a traceback for every op that torch refuses, which many of these tests ask for.
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    logger.disabled = True
    # At every miss it notes where it is, through all of pytest's frames, for a message of its own.
    unnoted = SimpleNamespace(extract_stack=list, format_list=list)
    with mock.patch.object(fake_tensor, "traceback", unnoted):
        yield
    logger.disabled = False
    if dist.is_initialized():
        dist.destroy_process_group()
    clear_torch_caches()


@pytest.fixture(scope="module")
def few_rounds() -> Iterator[None]:
    """Call each of the `ops` less often; all calls after the first are alike."""
    with mock.patch.object(build, "ROUNDS", FEW_ROUNDS):
        yield


@pytest.fixture
def mesh() -> DeviceMesh:
    return mesh_of(4)


@pytest.fixture
def cold() -> Iterator[None]:
    clear_torch_caches()
    yield
    clear_torch_caches()


@pytest.fixture
def step() -> Callable[[int], list[DTensor]]:
    """Return a step of six ops; its view and its redistributing op have no shape class."""
    mesh = mesh_of(2, 2)

    def step(rows: int) -> list[DTensor]:
        x = placed(mesh, counted(rows, 8), Shard(0), Shard(0))
        weight = placed(mesh, counted(8, 4), Replicate(), Replicate())
        hidden = torch.tanh(x @ weight)
        part = placed(mesh, counted(rows, 8), Partial(), Shard(0))
        return [hidden, hidden + 1.0, hidden.t(), hidden.view(-1, 2, 2), torch.relu(part)]

    return step
