"""What is not plain is left to torch or done as torch does it, hit or miss."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from small_world import counted, mesh_of, placed, running
from told import operands, outcome, program, told
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, _sharding_prop
from torch.distributed.tensor._utils import ExplicitRedistributionContext
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.parallel import loss_parallel
from torch.distributed.tensor.placement_types import _StridedShard
from torch.overrides import TorchFunctionMode
from torch.utils._debug_mode import DebugMode

from planners.dtensor.cache.interned import InternedDispatch
from planners.dtensor.dispatch.base import Dispatch
from planners.dtensor.dispatch.torch_path import DISPATCHER

aten = torch.ops.aten


# Active modes


def test_a_fake_tensor_is_made_of_fake_tensors_and_is_not_remembered(dispatch, mesh):
    def on_fakes(mesh: DeviceMesh) -> list[Any]:
        with FakeTensorMode():
            local = [torch.empty(2, 8), torch.empty(8, 4)]
            made = program(placed(mesh, local[0], Shard(0)), placed(mesh, local[1], Replicate()))
        assert all(isinstance(each._local_tensor, FakeTensor) for each in made)
        return [(each.placements, each.shape, each.stride()) for each in made]

    expected = told(Dispatch(), mesh, lambda mesh: program(*operands(mesh)))
    with running(dispatch):
        on_fakes(mesh)
        assert dispatch.cache_info().entries == 0
        assert [outcome(lambda mesh: program(*operands(mesh)), mesh)] == expected[:1]
        known = dispatch.cache_info()
        on_fakes(mesh)
        assert dispatch.cache_info()[:3] == known[:3]
    assert told(dispatch, mesh, on_fakes) == told(Dispatch(), mesh, on_fakes)


def _debugged(mesh: DeviceMesh) -> str:
    x, weight = operands(mesh)
    program(x, weight)
    with DebugMode() as mode:
        program(x, weight)
    return mode.debug_string()


def test_debug_mode_notes_what_it_notes_of_torch(dispatch, mesh):
    noted = told(Dispatch(), mesh, _debugged)
    assert told(dispatch, mesh, _debugged) == noted
    assert noted[0].count("all_reduce") == 1


def test_comm_debug_mode_counts_the_collectives_that_torch_has(dispatch, mesh):
    def communicated(mesh: DeviceMesh) -> dict[str, int]:
        x, weight = operands(mesh)
        with CommDebugMode() as mode:
            for made in program(x, weight):
                made.redistribute(mesh, [Replicate()])
        return {str(op): count for op, count in mode.get_comm_counts().items()}

    seen = told(dispatch, mesh, communicated)
    assert seen == told(Dispatch(), mesh, communicated)
    assert sum(seen[0].values()) > 3


def _loss(mesh: DeviceMesh) -> list[torch.Tensor]:
    logits = placed(mesh, counted(4, 8) / 10, Shard(1)).detach().requires_grad_()
    rows = placed(mesh, torch.arange(4), Replicate())
    loss = torch.nn.functional.cross_entropy(logits, rows)
    loss.backward()
    return [loss, logits.grad]


@contextmanager
def _debugged_around() -> Iterator[None]:
    with DebugMode(), loss_parallel():
        yield


@pytest.mark.parametrize(
    "context",
    [
        loss_parallel,
        _debugged_around,
    ],
)
def test_handlers_that_others_install_meanwhile_are_called_as_in_torch(context, dispatch, mesh):
    def lost(mesh: DeviceMesh) -> list[torch.Tensor]:
        with context():
            parallel = _loss(mesh)
        return [*parallel, *_loss(mesh)]

    before = dict(DISPATCHER._custom_op_handlers)
    assert told(dispatch, mesh, lost) == told(Dispatch(), mesh, lost)
    assert before == DISPATCHER._custom_op_handlers


def test_a_dispatch_within_those_handlers_leaves_them(dispatch, mesh):
    with loss_parallel():
        assert told(dispatch, mesh, _loss) == told(Dispatch(), mesh, _loss)


def test_a_dispatch_within_another_one_leaves_that_one(dispatch, mesh):
    x, _ = operands(mesh)
    with running(dispatch):
        with InternedDispatch().installed():
            torch.relu(x)
        torch.relu(x)
        torch.relu(x)
        assert dispatch.cache_info().hits > 0


@pytest.mark.parametrize("context", [ExplicitRedistributionContext, implicit_replication])
def test_what_allows_and_forbids_redistribution_does_so_on_a_hit_too(context, dispatch):
    def mixed(mesh: DeviceMesh) -> list[Any]:
        x = placed(mesh, counted(2, 8), Shard(0), Shard(0))
        column = placed(mesh, counted(4, 4), Replicate(), Shard(0))
        made: list[Any] = [(x @ column).placements]
        for operation in (lambda: x @ column, lambda: x + torch.ones(8, 8), lambda: x @ column):
            try:
                with context():
                    made.append(operation().placements)
            except RuntimeError as error:
                made.append(str(error)[:14])
        return made

    mesh = mesh_of(2, 2)
    assert told(dispatch, mesh, mixed) == told(Dispatch(), mesh, mixed)


def test_a_function_mode_sees_no_op_more_than_under_torch(dispatch, mesh):
    class Seen(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_function__(self, function, types, args=(), kwargs=None):
            self.names.append(str(function).partition(" at 0x")[0])
            return function(*args, **(kwargs or {}))

    def seen(mesh: DeviceMesh) -> list[str]:
        x, weight = operands(mesh)
        with Seen() as mode:
            program(x, weight)
        return mode.names

    assert told(dispatch, mesh, seen) == told(Dispatch(), mesh, seen)


def test_a_default_device_changes_nothing(dispatch, mesh):
    def on_a_device(mesh: DeviceMesh) -> list[torch.Tensor]:
        x, weight = operands(mesh)
        with torch.device("meta"):
            return program(x, weight)

    assert told(dispatch, mesh, on_a_device) == told(Dispatch(), mesh, on_a_device)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_gradient_modes_are_as_in_torch(dispatch, mesh, mode):
    def under(mesh: DeviceMesh) -> list[torch.Tensor]:
        x, weight = operands(mesh)
        x.requires_grad_()
        with mode():
            inside = program(x, weight)
        return [*inside, *program(x, weight)]

    assert told(dispatch, mesh, under) == told(Dispatch(), mesh, under)


def test_compiled_code_is_as_in_torch_also_with_symbolic_sizes(dispatch, mesh):
    def compiled(mesh: DeviceMesh) -> list[torch.Tensor]:
        torch._dynamo.reset()
        function = torch.compile(program, backend="eager", dynamic=True)
        return [each for rows in (2, 3, 5) for each in function(*operands(mesh, rows))]

    seen = told(dispatch, mesh, compiled, times=1)
    torch._dynamo.reset()
    assert seen == told(Dispatch(), mesh, lambda mesh: [
        each for rows in (2, 3, 5) for each in program(*operands(mesh, rows))
    ], times=1)  # fmt: skip


# Where tensors are


def test_a_rank_outside_of_the_mesh_computes_nothing(dispatch, mesh):
    def outside(mesh: DeviceMesh) -> list[torch.Tensor]:
        rest, empty = DeviceMesh("cpu", [1, 2, 3]), torch.empty(0)
        x = placed(rest, empty, Shard(0), shape=torch.Size((6, 8)), stride=(8, 1))
        weight = placed(rest, empty, Replicate(), shape=torch.Size((8, 4)), stride=(4, 1))
        return [each for _ in range(2) for each in program(x, weight)[:3]]

    assert told(dispatch, mesh, outside) == told(Dispatch(), mesh, outside)
    with running(dispatch):
        assert all(each.to_local().numel() == 0 for each in outside(mesh))


def test_strided_shards_are_left_to_torch(dispatch):
    mesh = mesh_of(2, 2)

    def strided(mesh: DeviceMesh) -> list[torch.Tensor]:
        plain = placed(mesh, counted(2, 8), Shard(0), Shard(0))
        split = placed(mesh, counted(2, 8), _StridedShard(0, split_factor=2), Shard(0))
        weight = placed(mesh, counted(8, 4), Replicate(), Replicate())
        return [each for x in (plain, split, plain) for each in (x @ weight, x + 1, x * x, x.t())]

    assert told(dispatch, mesh, strided) == told(Dispatch(), mesh, strided)


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
def test_what_is_left_to_torch_is_decided_once_as_in_torch(prepare, dispatch):
    def made_again(dispatch: Dispatch) -> int:
        """Return how many decisions are made after the first time."""
        made = 0
        select = _sharding_prop._select_min_cost_strategy

        def counted(*args: Any) -> Any:
            nonlocal made
            made += 1
            return select(*args)

        with running(dispatch):
            run = prepare(mesh_of(2, 2))
            run()
            with mock.patch.object(_sharding_prop, "_select_min_cost_strategy", counted):
                run()
                run()
        return made

    assert made_again(Dispatch()) == 0
    assert made_again(dispatch) == 0


def test_a_spec_has_the_sizes_it_is_made_with_not_equal_ones_of_another_type(dispatch, mesh):
    def types(mesh: DeviceMesh) -> list[Any]:
        local, made = torch.ones(2, 4), []
        for _ in range(3):  # one is seen, one is kept, one is taken from what is kept
            sizes = {"shape": (8, 4), "stride": (4, 1)}
            given = DTensor.from_local(local, mesh, [Shard(0)], run_check=False, **sizes)
            made += [given, DTensor.from_local(local, mesh, [Shard(0)], run_check=False)]
        return [type(each._spec.shape) for each in made]

    with running(dispatch):
        found = types(mesh)
    assert found == types(mesh) == 3 * [tuple, torch.Size]


def test_placements_are_those_given_not_equal_ones_of_another_type(dispatch, mesh):
    def norms(mesh: DeviceMesh) -> list[str]:
        x = placed(mesh, counted(2, 4), Shard(0))
        made = [torch.linalg.vector_norm(x, order) for order in 3 * [2, 2.0]]
        return [str(each.placements) for each in made]

    with running(dispatch):
        found = norms(mesh)
    assert found == norms(mesh)
    assert len(set(found)) == 2


def test_a_function_mode_sees_what_it_sees_on_plain_torch(dispatch, mesh):
    def seen(mesh: DeviceMesh) -> list[str]:
        names: list[str] = []

        class Noting(TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                names.append(function.__name__)
                return function(*args, **(kwargs or {}))

        x = placed(mesh, counted(2, 4), Shard(0))
        for _ in range(3):
            with Noting():
                placed(mesh, counted(2, 4), Shard(0)).redistribute(mesh, [Replicate()])
                x.redistribute(mesh, [Replicate()])
        return names

    with running(dispatch):
        found = seen(mesh)
    assert found == seen(mesh)
