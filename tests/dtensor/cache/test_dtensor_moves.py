"""Redistributions in one step have torch's results, by the same collectives."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, strategies as st
from small_world import mesh_of, placed, running
from torch.autograd.profiler import profile
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._ops._math_ops import _NormPartial
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.multiprocessing import spawn

from planners.dtensor.cache.interned import InternedDispatch
from planners.dtensor.dispatch.base import Dispatch

_PARTIAL = Partial(), Partial("avg"), Partial("max"), _NormPartial(2)
_SIZES = (8,), (3,), (4, 8), (1, 4), (8, 1, 4), (2, 3, 8)


def _tensor(mesh: DeviceMesh, size: Sequence[int], placements: Sequence[Placement]) -> DTensor:
    local_size, _ = compute_local_shape_and_global_offset(size, mesh, placements, skip_offset=True)
    first = 1.0 + 100 * dist.get_rank()
    local = torch.arange(first, first + torch.Size(local_size).numel()).view(tuple(local_size))
    whole = {"shape": torch.Size(size), "stride": torch.empty(size).stride()}
    return placed(mesh, local, *placements, **whole)


def _outcome(tensor: DTensor, then: Sequence[Placement], async_op: bool) -> Iterator[Any]:
    """Yield the result of a redistribution, and its collectives.

    The result is read before the profile ends: a collective that ends later, in a thread of its
    own, writes into a freed profile and kills the process, under torch's own dispatch too.
    """
    with profile(use_kineto=False) as profiled:
        try:
            moved = tensor.redistribute(placements=then, async_op=async_op)
        except Exception as error:
            yield type(error), str(error)
            return
        local = moved._local_tensor
        found = moved._spec, type(local), local.shape, local.stride(), local.tolist()
    yield found
    names = [event.name for event in profiled.function_events]
    yield [name for name in names if name.startswith("_c10d_functional::") and "_wrap" not in name]


def _compare(mesh: DeviceMesh, of_mesh: Callable[[DeviceMesh], list[Any]]) -> None:
    """Compare outcomes under the interned dispatch, twice, with torch's."""
    with running(Dispatch()), torch.no_grad():
        expected = of_mesh(mesh)
    with running(InternedDispatch()), torch.no_grad():
        for _ in range(2):
            assert of_mesh(mesh) == expected


def _of_each_step(mesh: DeviceMesh, size: Sequence[int]) -> list[Any]:
    found = []
    for kind in _PARTIAL:
        kinds = [Replicate(), *map(Shard, range(len(size))), kind]
        for now, then in product(kinds, kinds):
            tensor = _tensor(mesh, size, [now])
            for async_op in (False, True):
                found.append((now, then, async_op, *_outcome(tensor, [then], async_op)))
    return found


@pytest.mark.parametrize("size", _SIZES, ids=str)
def test_each_step_is_as_torchs(size):
    _compare(mesh_of(4), partial(_of_each_step, size=size))


def _compare_on_a_real_rank(rank: int, folder: str) -> None:
    file = f"file://{folder}/ranks"
    dist.init_process_group("gloo", init_method=file, rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    for size in _SIZES:
        _compare(mesh, partial(_of_each_step, size=size))
    dist.destroy_process_group()


@pytest.mark.long
def test_each_step_has_torchs_results_on_two_real_ranks(tmp_path):
    spawn(_compare_on_a_real_rank, (str(tmp_path),), nprocs=2)


@st.composite
def redistributions(draw: st.DrawFn) -> tuple[Any, ...]:
    size = draw(st.lists(st.sampled_from((1, 3, 4, 8)), min_size=1, max_size=3))
    kinds = [Replicate(), draw(st.sampled_from(_PARTIAL)), *map(Shard, range(len(size)))]
    now, then = (draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=2)) for _ in "12")
    return draw(st.sampled_from([(2, 2), (4, 1)])), size, now, then, draw(st.booleans())


@given(redistributions())
def test_on_two_dimensions_they_are_as_torchs(drawn):
    shape, size, now, then, async_op = drawn
    _compare(mesh_of(*shape), lambda mesh: list(_outcome(_tensor(mesh, size, now), then, async_op)))
