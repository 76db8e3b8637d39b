"""Random programs make the same under every dispatch, at sizes old and new; the main test here."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
import torch
import torch.distributed as dist
from random_programs import RandomProgram, random_program, random_runs, told_under
from small_world import counted, mesh_of, placed, running
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from planners.dtensor.dispatch.base import Dispatch
from planners.dtensor.dispatch.interned import Interned
from planners.dtensor.dispatch.shape_class import ShapeClass

pytestmark = pytest.mark.filterwarnings("ignore")


def differences(shape: tuple[int, ...], seeds: range) -> Iterator[str]:
    """Yield what the dispatches make differently from torch, program by program."""
    for seed in seeds:
        random = Random(seed)
        program = random_program(random, mesh_of(*shape))
        runs, takes_grad = random_runs(random), random.random() < 0.3
        expected = told_under(Dispatch(), program, runs, takes_grad)
        for dispatch in (Interned(), ShapeClass()):
            made = told_under(dispatch, program, runs, takes_grad)
            if made != expected:
                name = type(dispatch).__name__
                yield f"{name}, seed {seed}: {_first(program, expected, made)}"


def _first(program: RandomProgram, expected: list[Any], made: list[Any]) -> str:
    for number, (run, other_run) in enumerate(zip(expected, made, strict=True)):
        for step, (one, other) in enumerate(zip(run, other_run, strict=True)):
            if one != other:
                names = [each.name for each in program.steps[: step + 1 - len(program.inputs)]]
                return f"run {number}, {program.inputs}, {names}:\n{one}\n{other}"
    raise AssertionError


@pytest.mark.parametrize("shape", [(4,), (2, 2)], ids=str)
def test_random_programs_make_what_they_make_in_torch(shape):
    assert not list(differences(shape, range(12)))


@pytest.fixture
def last_rank() -> Iterator[None]:
    """Play the rank that uneven shards leave little or nothing to."""
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group(backend="fake", rank=3, world_size=4, store=FakeStore())
    yield
    dist.destroy_process_group()


def test_random_programs_make_what_they_make_in_torch_on_the_last_rank(last_rank):
    assert mesh_of(4).get_rank() == 3
    assert not list(differences((4,), range(100, 110)))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(4,), (2, 2), (3,), (2, 1, 2)], ids=str)
def test_many_random_programs_make_what_they_make_in_torch(shape):
    assert not list(differences(shape, range(1000, 2500)))


def strides(dispatch: Dispatch, make: Callable[[DTensor, int], DTensor]) -> list[Any]:
    """Return the strides of what an op makes of transposed tensors of more and more columns."""
    mesh = mesh_of(4)
    with running(dispatch):
        transposed = {n: placed(mesh, counted(n, 8), Shard(0)).t() for n in (2, 4, 6)}
        return [make(each, n).stride() for n, each in transposed.items()]


def of_redistributed(x: DTensor, columns: int) -> DTensor:
    """Make something of a tensor that is transposed, though what this rank has of it is not."""
    whole = x.redistribute(x.device_mesh, [Replicate()])
    assert whole.stride() == (1, 8)
    assert whole.to_local().is_contiguous()
    return torch.relu(whole)


def of_two_orders(x: DTensor, columns: int) -> DTensor:
    """Make something that fake tensors foretell a stride of which it does not have."""
    other = placed(x.device_mesh, counted(8, columns), Shard(1))
    return torch.special.xlog1py(x, other)


@pytest.mark.parametrize("make", [of_redistributed, of_two_orders])
def test_a_result_has_the_stride_that_torch_gives_it_at_every_size(make):
    assert strides(ShapeClass(), make) == strides(Dispatch(), make)


@pytest.mark.parametrize("make", [of_redistributed, of_two_orders])
def test_interned_gives_a_result_the_stride_that_torch_gives_it(make):
    assert strides(Interned(), make) == strides(Dispatch(), make)


@pytest.mark.xfail(
    strict=True, reason="ShapeClass._made writes the local type into the spec, not torch's"
)
def test_a_spec_has_the_type_that_torch_foretells_at_every_size():
    """Of a bool to the power of a bool, torch foretells an int64, and a bool is made."""

    def types(dispatch: Dispatch) -> list[tuple[torch.dtype, torch.dtype]]:
        mesh = mesh_of(4)
        with running(dispatch):
            made = [placed(mesh, counted(n, 8).bool(), Shard(0)) ** True for n in (2, 4, 6)]
        return [(each.dtype, each._spec.tensor_meta.dtype) for each in made]

    assert types(ShapeClass()) == types(Dispatch())
