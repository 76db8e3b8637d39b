"""What most tests of the cached dispatch ask for."""

from collections.abc import Iterator

import pytest
import torch
from changed_torch import as_they_were
from small_world import mesh_of
from torch.distributed.device_mesh import DeviceMesh

from planners.dtensor.cache.interned import InternedDispatch
from planners.dtensor.cache.shape_class import ShapeClass


@pytest.fixture(params=[InternedDispatch, ShapeClass])
def dispatch(request) -> InternedDispatch:
    return request.param()


@pytest.fixture
def mesh() -> DeviceMesh:
    return mesh_of(4)


@pytest.fixture
def strategies_as_they_were() -> Iterator[None]:
    with as_they_were():
        yield
    torch._dynamo.reset()
