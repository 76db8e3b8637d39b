"""Every module here has a world of fake ranks of its own, and leaves none behind."""

import logging
from collections.abc import Iterator

import pytest
import torch.distributed as dist

from planners.dtensor.dispatch.torch_path import clear_torch_caches


@pytest.fixture(autouse=True, scope="module")
def world() -> Iterator[None]:
    # It writes a traceback for every op that torch refuses, which many of these tests ask for.
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    logger.disabled = True
    yield
    logger.disabled = False
    if dist.is_initialized():
        dist.destroy_process_group()
    clear_torch_caches()
