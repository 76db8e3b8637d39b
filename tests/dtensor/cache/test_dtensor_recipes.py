"""Any form of arguments, any type of numbers and changing specs give torch's results."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from outcomes import results_under
from small_world import counted, mesh_of, operands, placed, program, running
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from planners.dtensor.decision import Redistributions
from planners.dtensor.dispatch.base import Dispatch
from planners.dtensor.search.dispatches import Uncached

aten = torch.ops.aten


def test_views_share_the_storage_of_their_base_as_in_torch(dispatch, mesh):
    def storages(mesh: DeviceMesh) -> list[bool]:
        x, _ = operands(mesh)
        base = x.untyped_storage()._cdata
        views = (x.t(), x.view(-1, 2, 4), x.detach(), x.unsqueeze(0), x.clone(), x + 1, x.view(-1))
        return [view.untyped_storage()._cdata == base for view in views]

    seen = results_under(dispatch, mesh, storages)
    assert seen == results_under(Dispatch(), mesh, storages)
    assert seen[0][:6] == [True] * 4 + [False] * 2


# Arguments


FORMS: dict[str, Callable[[DTensor, DTensor], Any]] = {
    "in place": lambda x, y: [x.clone().add_(y), x.clone().mul_(2), x.clone().relu_()],
    "in place on a view": lambda x, y: [base := x.clone(), base.t().add_(1), base + 1],
    "out=": lambda x, y: torch.add(x, y, out=torch.empty_like(x)),
    "keyword arguments": lambda x, y: [
        torch.add(x, y, alpha=2),
        torch.add(x, y),
        torch.add(x, y, alpha=3),
        torch.sub(x, 1, alpha=2),
    ],
    "keyword arguments of a sum": lambda x, y: [
        x.sum(0, keepdim=True, dtype=torch.float64),
        x.sum(0),
        x.sum(0, keepdim=True),
        x.sum(1, keepdim=True),
        x.sum(1),
    ],
    "rounding": lambda x, y: [
        torch.div(x, y, rounding_mode="floor"),
        torch.div(x, y),
        torch.div(x, y, rounding_mode="trunc"),
    ],
    "several results": lambda x, y: [*x.max(1), *x.chunk(2, 1), *torch.var_mean(x, 1)],
    "lists of tensors": lambda x, y: [torch.cat([x, y], 1), torch.stack([x, y, x])],
    "inputs that are moved": lambda x, y: [
        x + placed(x.device_mesh, counted(8, 8), Replicate()),
        x @ y.t(),
        torch.addmm(placed(x.device_mesh, counted(8), Replicate()), x.t(), y),
        torch.cat([x, placed(x.device_mesh, counted(8, 2), Shard(1))], 1),
        torch.linalg.vector_norm(torch.stack([x.norm(), y.norm(), x.norm()])),
    ],
    "the same tensor twice": lambda x, y: [x + x, x * x, torch.where(x > 1, x, x)],
    "a number first": lambda x, y: [1 - x, 2 / x, 2**x, torch.where(x > 2, 1.0, x)],
    "a tensor of one number": lambda x, y: [
        x * torch.tensor(2.0),
        x * torch.tensor(2),
        torch.tensor(3.0) + x,
        x * torch.tensor(2.0, dtype=torch.float64),
    ],
    "a plain tensor of one element": lambda x, y: x * torch.full((1,), 2.0),  # warned of
    "a plain tensor of many elements": lambda x, y: x + torch.ones(8, 8),  # refused
    "whole numbers and a number of either type": lambda x, y: [
        op(x.long(), number)
        for op in (torch.pow, torch.clamp, torch.remainder)
        for number in (2, 2.0)
    ],
    "a type": lambda x, y: [x.to(torch.float64), x.half(), x.long(), x.to(torch.float64)],
    "a size in many ways": lambda x, y: [
        x.view(-1, 2, 4),
        x.view([8, 8]),
        x.view(torch.Size((8, 2, 4))),
        x.reshape(8, -1),
        x.unsqueeze(1).expand(-1, 3, -1),
    ],
    "an index": lambda x, y: [x[:, 2], x[:, 1:3], x[..., 0], x[:, None]],
    "defaults": lambda x, y: [
        torch.nn.functional.gelu(x),
        torch.nn.functional.gelu(x, approximate="tanh"),
        torch.nn.functional.leaky_relu(x - 30),
        torch.nn.functional.leaky_relu(x - 30, 0.5),
        torch.clamp(x, 3),
        torch.clamp(x, 3, 9),
        torch.clamp(x, max=9),
    ],
    "a copy": lambda x, y: [copy.deepcopy(x) + 1, x.clone() + 1, torch.empty_like(x).copy_(x)],
    "a reduction under way": lambda x, y: [
        waited := placed(x.device_mesh, x.to_local(), Partial()).redistribute(
            placements=[Replicate()], async_op=True
        ),
        torch.relu(waited),
        waited.t() + 1,
        waited @ waited.t(),
    ][1:],
    "random numbers": lambda x, y: [
        torch.manual_seed(0) and None,
        torch.multinomial(x, 3),
        aten.rrelu_with_noise(-x, torch.zeros_like(x), 0.1, 0.3, True),
        torch.rand(3),
    ],
    "sizes that do not match": lambda x, y: torch.mm(x, x[:, :3]),
    "sizes that cannot be broadcast": lambda x, y: x + y[:, :3],
    "a view of no such size": lambda x, y: x.view(7, 9),
    "a dimension that does not exist": lambda x, y: x.sum(5),
    "types that do not match": lambda x, y: torch.mm(x, y.long()),
    "an op without a strategy": lambda x, y: torch.linalg.svd(x),
    "two meshes": lambda x, y: x + placed(mesh_of(2, 2), counted(4, 4), Shard(0), Shard(1)),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_arguments_have_torchs_results(form, dispatch, mesh):
    def make(mesh: DeviceMesh) -> Any:
        x = placed(mesh, counted(2, 8), Shard(0))
        y = placed(mesh, counted(2, 8) - 3, Shard(0))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            made = FORMS[form](x, y)
        return [made, [str(warning.message) for warning in warned]]

    assert results_under(dispatch, mesh, make) == results_under(Dispatch(), mesh, make)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float16, torch.float32])
@pytest.mark.parametrize("numbers", [(1, 1.0, True), (True, 1, 1.0), (1.0, True, 1)])
def test_a_number_of_each_type_makes_the_type_that_it_makes_in_torch(
    numbers, dtype, dispatch, mesh
):
    def make(mesh: DeviceMesh) -> list[torch.Tensor]:
        x = placed(mesh, counted(2, 8, dtype=dtype), Shard(0))
        return [made for number in numbers for made in (x + number, x * number, x > number)]

    assert results_under(dispatch, mesh, make) == results_under(Dispatch(), mesh, make)


def test_an_op_whose_inputs_are_moved_is_a_hit(dispatch, mesh):
    x, _ = operands(mesh)
    norms = [x.norm(), placed(mesh, counted(8, 8), Replicate()).norm()]
    seen = Redistributions()
    with running(dispatch), seen.recorded():
        for times in range(3):
            before = dispatch.cache_info()
            x @ x.t()
            torch.stack(norms)
            assert len(seen.taken()) == 2
            new = dispatch.cache_info()
            assert (new.misses - before.misses, new.hits - before.hits) == (
                (0, 3) if times else (3, 0)
            )


# Specs


def test_a_spec_that_was_changed_in_place_is_not_taken_for_the_old_one(dispatch, mesh):
    def changed(mesh: DeviceMesh) -> list[torch.Tensor]:
        x, weight = operands(mesh)
        made = [torch.relu(x), x @ weight]
        other = copy.deepcopy(x)
        for tensor in (other, x):
            tensor._spec.placements = (Replicate(),)
            meta = tensor._spec.tensor_meta
            tensor._spec.tensor_meta = meta._replace(shape=torch.Size((2, 8)))
            made += [torch.relu(tensor), tensor @ weight]
        return made

    # Torch's own cache may take it for the old one, the second time, if their hashes meet.
    right, torchs = (results_under(other, mesh, changed) for other in (Uncached(), Dispatch()))
    for results in results_under(dispatch, mesh, changed):
        for one, *allowed in zip(results, right[0], *torchs, strict=True):
            assert one in allowed


def test_tensors_that_were_made_before_a_spec_was_changed_keep_theirs(dispatch, mesh):
    with running(dispatch):
        first, second = operands(mesh)[0], operands(mesh)[0]
        first._spec.placements = (Replicate(),)
        assert second.placements == (Shard(0),)
        assert operands(mesh)[0].placements == (Shard(0),)


def test_specs_with_the_same_hash_do_not_share_a_recipe(dispatch, mesh):
    def collided(mesh: DeviceMesh) -> list[torch.Tensor]:
        made = []
        for local, placement in (
            (counted(2, 8), Shard(0)),
            (counted(8, 2), Shard(1)),
            (counted(2, 8), Replicate()),
            (counted(2, 8), Partial()),
            (counted(2, 8).half(), Shard(0)),
        ):
            x = placed(mesh, local, placement)
            x._spec._hash = 7
            made += [torch.relu(x), x + 1, x + x, x.t(), x.view(x.shape), x.sum(0)]
        return made

    assert results_under(dispatch, mesh, collided) == results_under(Dispatch(), mesh, collided)


def test_equal_meshes_that_are_not_the_same_have_torchs_results(dispatch, mesh):
    def on_equal_meshes(mesh: DeviceMesh) -> list[Any]:
        made = []
        for _ in range(3):
            x, weight = operands(DeviceMesh("cpu", [0, 1, 2, 3]))
            made += [tensor._local_tensor for tensor in program(x, weight)]
            made += [tensor.placements for tensor in program(x, weight)]
        return made

    assert results_under(dispatch, mesh, on_equal_meshes) == results_under(
        Dispatch(), mesh, on_equal_meshes
    )
