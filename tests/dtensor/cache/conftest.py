"""What most tests of the cached dispatch ask for."""

import pytest
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
