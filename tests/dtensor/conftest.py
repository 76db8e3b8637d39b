"""Every module here has a world of fake ranks of its own, and leaves none behind."""

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from unittest import mock

import pytest
import torch.distributed as dist
from small_world import FEW_ROUNDS
from torch._subclasses import fake_tensor

from planners.dtensor.dispatch.torch_path import clear_torch_caches
from planners.dtensor.programs import build


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
    """Call each of the `ops` less often: the last call is as every one after the first."""
    with mock.patch.object(build, "ROUNDS", FEW_ROUNDS):
        yield
