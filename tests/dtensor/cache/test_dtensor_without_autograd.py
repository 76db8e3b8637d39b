"""`DTensor.from_local` and the gradients of redistributions give torch's results."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any
from unittest import mock

import pytest
import torch
from outcomes import outcome
from small_world import mesh_of, placed, running
from torch.autograd import forward_ad
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, _redistribute
from torch.distributed.tensor._api import _FromTorchTensor
from torch.distributed.tensor.debug import CommDebugMode

from planners.dtensor.cache.interned import InternedDispatch
from planners.dtensor.dispatch.base import Dispatch

_PLACEMENTS = (Shard(0), Shard(1), Replicate(), Partial())


@pytest.fixture
def mesh() -> DeviceMesh:
    return mesh_of(2, 2)


def _described(made: Any, has_address: bool = True) -> Any:
    if not isinstance(made, DTensor):
        return made
    spec = vars(made._spec) | {"_hash": hash(made._spec), "mesh": id(made._spec.mesh)}
    local = made._local_tensor
    flags = made.requires_grad, made.is_leaf, made.grad_fn is None, local.requires_grad
    address = local.data_ptr() if has_address else None
    return spec, flags, local._is_view(), address, local.stride(), local.shape


def is_as_in_torch(*runs: Callable[[], Any]) -> list[Any]:
    """Compare three calls of each run with torch's results, and return torch's results."""
    found = []
    for dispatch in (Dispatch(), InternedDispatch()):
        with running(dispatch):
            found.append(
                [[outcome(lambda run=run: _described(run())) for _ in range(3)] for run in runs]
            )
    for number, (expected, made) in enumerate(zip(*found, strict=True)):
        assert made == expected, runs[number]
    return found[0]


def _locals() -> Iterator[torch.Tensor]:
    values = torch.arange(1024.0)
    for shape in ((4, 6), (4, 1), (1, 6), (0, 6), (1, 1), (4, 2, 6)):
        yield values[: torch.Size(shape).numel()].view(shape)
    yield values[:24].view(4, 6).t()
    yield values[:48].view(4, 12)[:, ::2]
    yield values[:6].expand(4, 6)
    yield values[:24].view(4, 6).to(torch.int64)


def test_from_local_has_torchs_results(mesh):
    cases = product(_locals(), *[_PLACEMENTS] * 2)
    is_as_in_torch(*(partial(placed, mesh, *case) for case in cases))


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_modes_of_autograd_make_no_difference(mesh, context):
    local, other = torch.ones(4, 6), torch.ones(4, 6, requires_grad=True)
    whole = {"shape": torch.Size((7, 6)), "stride": (6, 1)}

    def changed(local: torch.Tensor, **options: Any) -> Any:
        made = placed(mesh, local, Shard(0), Replicate(), **options)
        shared = made._local_tensor
        shared.add_(other.detach())
        return made, shared.requires_grad

    with context():
        of_all = product((local, other, torch.nn.Parameter(local)), ({}, whole))
        is_as_in_torch(
            *(partial(placed, mesh, given, *[Shard(0)] * 2, **options) for given, options in of_all)
        )
        is_as_in_torch(lambda: changed(local)[0])


def test_wrong_arguments_are_refused_as_by_torch(mesh):
    local = torch.ones(4, 6)
    for options in ({"shape": torch.Size((8, 6))}, {"stride": (6, 1)}):
        (results,) = is_as_in_torch(partial(placed, mesh, local, Shard(0), Shard(0), **options))
        assert results[0][0] is RuntimeError
    is_as_in_torch(lambda: placed(mesh, local, Shard(5), Replicate()))
    whole = {"shape": (8, 6), "stride": (6, 1)}
    for name in whole:  # a list has no hash
        options = {**whole, name: list(whole[name])}
        is_as_in_torch(
            partial(placed, mesh, local, Shard(0), Replicate(), **whole),
            partial(placed, mesh, local, Shard(0), Replicate(), **options),
        )


def test_forward_gradients_are_refused_as_by_torch(mesh):
    def dual() -> Any:
        with forward_ad.dual_level():
            tensor = forward_ad.make_dual(torch.ones(4, 6), torch.ones(4, 6))
            return placed(mesh, tensor, Shard(0), Replicate())

    is_as_in_torch(dual)


def _gradients(mesh: DeviceMesh, before: Any, after: Any, again: bool) -> list[Any]:
    local = torch.arange(24.0).view(4, 6).requires_grad_()
    tensor = placed(mesh, local, *before)
    moved = tensor.redistribute(mesh, after)
    (gradient,) = torch.autograd.grad((moved * moved).sum(), tensor, create_graph=again)
    found = [_described(gradient, has_address=False)]
    if again:
        (second,) = torch.autograd.grad(gradient.sum(), local)
        found.append((second.shape, second.stride()))
    return found


@pytest.mark.parametrize("again", [False, True])
def test_gradients_lie_as_in_torch(mesh, again):
    wanted = (Shard(0), Shard(1), Replicate())
    every = list(product(product(_PLACEMENTS, repeat=2), product(wanted, repeat=2)))
    cases = every[::7]  # with all that a mesh dimension may do
    is_as_in_torch(*(partial(_gradients, mesh, *case, again) for case in cases))


def _calls(method: str, owner: Any, run: Callable[[], Any]) -> list[int]:
    """Return how often each of three runs calls torch's function `owner.method`."""
    counts = []
    for _ in range(3):
        with mock.patch.object(owner, method, wraps=getattr(owner, method)) as called:
            run()
        counts.append(called.call_count)
    return counts


def test_autograd_has_no_part_where_no_gradient_is_taken(mesh):
    local = torch.ones(4, 6)
    with running(InternedDispatch()):
        calls = _calls("forward", _FromTorchTensor, lambda: placed(mesh, local, Shard(0), Shard(0)))
    assert calls == [1, 0, 0]


def test_a_gradient_that_stays_is_not_redistributed(mesh):
    def run() -> None:
        tensor = placed(mesh, torch.ones(4, 6), Shard(0), Partial()).requires_grad_()
        moved = tensor.redistribute(mesh, [Shard(0), Replicate()])
        (moved * moved).sum().backward()
        assert tensor.grad.placements == (Shard(0), Replicate())

    with running(InternedDispatch()):
        run()
        calls = _calls("_redistribute_backward", _redistribute, run)
        with CommDebugMode():  # which may want to see it
            seen = _calls("_redistribute_backward", _redistribute, run)
    assert (calls, seen) == ([0, 0, 0], [1, 1, 1])


def test_a_gradient_of_another_type_is_cast_as_in_torch(mesh):
    def run() -> Any:
        local = torch.ones(4, 6, dtype=torch.bfloat16, requires_grad=True)
        moved = placed(mesh, local, Shard(0), Shard(1)).redistribute(
            mesh, [Shard(0), Shard(1)], forward_dtype=torch.float32, backward_dtype=torch.float16
        )
        (gradient,) = torch.autograd.grad(moved.sum(), local)
        return moved.dtype, gradient.dtype, gradient.tolist()

    is_as_in_torch(run)
