"""Special calls are left to torch or executed as by torch, on a cache hit and on a miss."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from outcomes import Make, described, results_under
from small_world import counted, mesh_of, operands, placed, program, running
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, _sharding_prop
from torch.distributed.tensor._utils import ExplicitRedistributionContext
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.placement_types import _StridedShard
from torch.overrides import TorchFunctionMode
from torch.utils._debug_mode import DebugMode

from planners.dtensor.cache.interned import InternedDispatch
from planners.dtensor.dispatch.base import Dispatch

SCENES: dict[str, tuple[Make, tuple[int, ...]]] = {}


def scene(*shape: int) -> Callable[[Make], Make]:
    """Return a decorator that adds a function to `SCENES`, to run on a mesh of this shape.

    The tests compare each scene's result under every dispatch with torch's.
    """

    def added(make: Make) -> Make:
        SCENES[make.__name__] = make, shape
        return make

    return added


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_is_as_in_torch(name, dispatch):
    make, shape = SCENES[name]
    mesh = mesh_of(*shape)
    found = results_under(dispatch, mesh, make)
    assert found == results_under(Dispatch(), mesh, make)
    assert tuple not in map(type, found)  # an error


# Active modes


@scene(4)
def fakes(mesh: DeviceMesh) -> list[Any]:
    with FakeTensorMode():
        local = [torch.empty(2, 8), torch.empty(8, 4)]
        made = program(placed(mesh, local[0], Shard(0)), placed(mesh, local[1], Replicate()))
    assert all(isinstance(tensor._local_tensor, FakeTensor) for tensor in made)
    return [(tensor.placements, tensor.shape, tensor.stride()) for tensor in made]


@scene(4)
def debug_mode(mesh: DeviceMesh) -> str:
    x, weight = operands(mesh)
    program(x, weight)
    with DebugMode() as mode:
        program(x, weight)
    return mode.debug_string()


@scene(4)
def comm_debug_mode(mesh: DeviceMesh) -> dict[str, int]:
    x, weight = operands(mesh)
    with CommDebugMode() as mode:
        for made in program(x, weight):
            made.redistribute(mesh, [Replicate()])
    return {str(op): count for op, count in mode.get_comm_counts().items()}


@scene(4)
def function_mode(mesh: DeviceMesh) -> list[str]:
    names: list[str] = []

    class Noting(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            names.append(function.__name__)
            return function(*args, **(kwargs or {}))

    x, weight = operands(mesh)
    with Noting():
        program(x, weight)
        placed(mesh, counted(2, 4), Shard(0)).redistribute(mesh, [Replicate()])
        x.redistribute(mesh, [Replicate()])
    return names


@scene(4)
def default_device(mesh: DeviceMesh) -> list[torch.Tensor]:
    x, weight = operands(mesh)
    with torch.device("meta"):
        return program(x, weight)


@scene(4)
def gradient_modes(mesh: DeviceMesh) -> list[torch.Tensor]:
    made = []
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        x, weight = operands(mesh)
        x.requires_grad_()
        with mode():
            made += program(x, weight)
        made += program(x, weight)
    return made


@scene(2, 2)
def forbidden_and_implicit_redistribution(mesh: DeviceMesh) -> list[Any]:
    x = placed(mesh, counted(2, 8), Shard(0), Shard(0))
    column = placed(mesh, counted(4, 4), Replicate(), Shard(0))
    made: list[Any] = [(x @ column).placements]
    for context in (ExplicitRedistributionContext, implicit_replication):
        for operation in (lambda: x @ column, lambda: x + torch.ones(8, 8), lambda: x @ column):
            try:
                with context():
                    made.append(operation().placements)
            except RuntimeError as error:
                made.append(str(error)[:14])  # the rest names the op as torch came to it
    return made


# Where tensors are


@scene(4)
def rank_outside_of_the_mesh(mesh: DeviceMesh) -> list[torch.Tensor]:
    rest, empty = DeviceMesh("cpu", [1, 2, 3]), torch.empty(0)
    x = placed(rest, empty, Shard(0), shape=torch.Size((6, 8)), stride=(8, 1))
    weight = placed(rest, empty, Replicate(), shape=torch.Size((8, 4)), stride=(4, 1))
    return [made for _ in range(2) for made in program(x, weight)[:3]]


@scene(2, 2)
def strided_shards(mesh: DeviceMesh) -> list[torch.Tensor]:
    plain = placed(mesh, counted(2, 8), Shard(0), Shard(0))
    split = placed(mesh, counted(2, 8), _StridedShard(0, split_factor=2), Shard(0))
    weight = placed(mesh, counted(8, 4), Replicate(), Replicate())
    return [made for x in (plain, split, plain) for made in (x @ weight, x + 1, x * x, x.t())]


@scene(4)
def sizes_of_equal_value_and_other_type(mesh: DeviceMesh) -> list[Any]:
    local, made = torch.ones(2, 4), []
    for _ in range(3):  # one is seen, one is kept, one comes from the table
        given = placed(mesh, local, Shard(0), shape=(8, 4), stride=(4, 1))
        made += [given, placed(mesh, local, Shard(0))]
    return [type(tensor._spec.shape) for tensor in made]


@scene(4)
def placements_of_equal_value_and_other_type(mesh: DeviceMesh) -> list[str]:
    x = placed(mesh, counted(2, 4), Shard(0))
    made = [torch.linalg.vector_norm(x, order) for order in 3 * [2, 2.0]]
    return [str(tensor.placements) for tensor in made]


def test_scenes_show_their_subjects(mesh):
    assert debug_mode(mesh).count("all_reduce") == 1
    assert sum(comm_debug_mode(mesh).values()) > 3
    assert sizes_of_equal_value_and_other_type(mesh) == 3 * [tuple, torch.Size]
    assert len(set(placements_of_equal_value_and_other_type(mesh))) == 2
    assert {made.to_local().numel() for made in rank_outside_of_the_mesh(mesh)} == {0}


def test_a_fake_tensor_is_not_remembered(dispatch, mesh):
    with running(Dispatch()):
        expected = described(program(*operands(mesh)))
    with running(dispatch):
        fakes(mesh)
        assert dispatch.cache_info().entries == 0
        assert described(program(*operands(mesh))) == expected
        known = dispatch.cache_info()
        fakes(mesh)
        assert dispatch.cache_info()[:3] == known[:3]


def test_a_dispatch_within_another_one_leaves_that_one(dispatch, mesh):
    x, _ = operands(mesh)
    with running(dispatch):
        with InternedDispatch().installed():
            torch.relu(x)
        torch.relu(x)
        torch.relu(x)
        assert dispatch.cache_info().hits > 0


# Decisions left to torch


def _strided(mesh: DeviceMesh) -> Callable[[], Any]:
    x = placed(mesh, counted(2, 8), _StridedShard(0, split_factor=2), Shard(0))
    weight = placed(mesh, counted(8, 4), Replicate(), Replicate())
    return lambda: torch.relu(x @ weight)


def _masked(mesh: DeviceMesh) -> Callable[[], Any]:
    table = placed(mesh, counted(8, 4), Replicate(), Shard(0))
    rows = placed(mesh, torch.arange(4), Replicate(), Replicate())
    embedded = torch.nn.functional.embedding(rows, table)
    return lambda: embedded.view(2, 2, 4)


def _debugged_again(mesh: DeviceMesh) -> Callable[[], Any]:
    x = placed(mesh, counted(2, 8), Shard(0), Shard(0))

    def run() -> Any:
        with DebugMode():
            return x + x

    return run


@pytest.mark.parametrize("prepare", [_strided, _masked, _debugged_again])
def test_a_decision_left_to_torch_is_made_once_as_in_torch(prepare, dispatch):
    select = _sharding_prop._select_min_cost_strategy
    for under in (Dispatch(), dispatch):
        with running(under):
            run = prepare(mesh_of(2, 2))
            run()
            with mock.patch.object(
                _sharding_prop, "_select_min_cost_strategy", side_effect=select
            ) as selected:
                run()
                run()
        assert selected.call_count == 0
