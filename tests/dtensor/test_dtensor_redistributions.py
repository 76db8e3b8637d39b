"""Redistributions have torch's results under `accelerate()`, by the same collectives."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from gloo import on_ranks
from hypothesis import given, settings, strategies as st
from small_world import mesh_of, placed, played
from torch.autograd.profiler import profile
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._ops._math_ops import _NormPartial
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from planners.dtensor.accelerate import accelerate

PARTIAL = Partial(), Partial("avg"), Partial("max"), _NormPartial(2)
SIZES = (8,), (3,), (4, 8), (0, 8), (1, 4), (8, 1, 4), (2, 3, 8)

Case = tuple[Sequence[int], Sequence[Placement], Sequence[Placement], bool]
"""A global size, placements before and after, and whether it is asynchronous."""


def tensor(mesh: DeviceMesh, size: Sequence[int], placements: Sequence[Placement]) -> DTensor:
    local_size, _ = compute_local_shape_and_global_offset(size, mesh, placements, skip_offset=True)
    first = 1.0 + 100 * dist.get_rank()
    local = torch.arange(first, first + torch.Size(local_size).numel()).view(tuple(local_size))
    whole = {"shape": torch.Size(size), "stride": torch.empty(size).stride()}
    return placed(mesh, local, *placements, **whole)


def outcome(mesh: DeviceMesh, case: Case) -> Iterator[Any]:
    """Yield the result of a redistribution, and its collectives.

    The result is read before the profile ends: a collective that ends later, in a thread of its
    own, writes into a freed profile and kills the process, under torch's own dispatch too.
    """
    size, now, then, async_op = case
    with profile(use_kineto=False) as profiled:
        try:
            moved = tensor(mesh, size, now).redistribute(placements=then, async_op=async_op)
        except Exception as error:
            yield type(error), str(error)
            return
        local = moved._local_tensor
        found = moved._spec, type(local), local.shape, local.stride(), local.tolist()
    yield found
    names = [event.name for event in profiled.function_events]
    yield [name for name in names if name.startswith("_c10d_functional::") and "_wrap" not in name]


def compare(mesh: DeviceMesh, cases: Sequence[Case]) -> None:
    """Compare outcomes when accelerated, twice, with torch's."""
    with played(nullcontext), torch.no_grad():
        expected = [list(outcome(mesh, case)) for case in cases]
    with played(accelerate), torch.no_grad():
        for _ in range(2):
            assert [list(outcome(mesh, case)) for case in cases] == expected


@st.composite
def cases(draw: st.DrawFn, ndim: int) -> Case:
    size = draw(st.sampled_from(SIZES))
    kinds = [Replicate(), draw(st.sampled_from(PARTIAL)), *map(Shard, range(len(size)))]
    placements = st.tuples(*[st.sampled_from(kinds)] * ndim)
    return size, draw(placements), draw(placements), draw(st.booleans())


@pytest.mark.parametrize("shape", [(4,), (2, 2), (4, 1)], ids=str)
@settings(max_examples=20)
@given(data=st.data())
def test_they_are_torchs(shape, data):
    """Any redistribution on one or two mesh dimensions has torch's result and collectives."""
    drawn = data.draw(st.lists(cases(len(shape)), min_size=5, max_size=5))
    compare(mesh_of(*shape), drawn)


def compare_on_a_real_rank(rank: int, folder: Path) -> None:
    mesh = init_device_mesh("cpu", (2,))
    for size in SIZES:
        kinds = [Replicate(), *PARTIAL, *map(Shard, range(len(size)))]
        pairs = product(kinds, kinds, (False, True))
        compare(mesh, [(size, [now], [then], async_op) for now, then, async_op in pairs])


@pytest.mark.long
def test_they_have_torchs_values_on_two_real_ranks():
    """With real collectives, the values of each redistribution are torch's too."""
    on_ranks(compare_on_a_real_rank, 2)
