"""Caches have an upper bound on their size, count their entries, and serve all threads."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, Thread
from typing import Any
from unittest import mock

import pytest
import torch
from small_world import counted, mesh_of, placed, played
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding

from planners.dtensor.cache.interned import InternedDispatch, ShapeClass
from planners.dtensor.dispatch.torch_path import PROPAGATOR

aten = torch.ops.aten


@contextmanager
def running(kind: type[InternedDispatch], **limits: int) -> Iterator[InternedDispatch]:
    """Install a new dispatch with cold caches of torch."""
    dispatch = kind(**limits)
    with played(dispatch.installed):
        yield dispatch


def rows_of(mesh: DeviceMesh, rows: int, columns: int = 8) -> DTensor:
    return placed(mesh, torch.ones(rows, columns), Shard(0))


def test_recipes_and_classes_of_one_op_never_outgrow_their_limits(mesh):
    """The oldest recipes and shape classes of an op go, those of other ops stay."""
    with running(InternedDispatch, most_entries=4) as dispatch:
        for rows in (*range(1, 20), 19, 18, 17, 16):
            assert torch.equal(torch.relu(rows_of(mesh, rows)).to_local(), torch.ones(rows, 8))
        assert dispatch.cache_info()[:3] == (4, 19, 4)
        torch.neg(rows_of(mesh, 1))
        assert dispatch.cache_info()[:3] == (4, 20, 5)
    with running(ShapeClass, most_entries=4) as dispatch:
        for ndim in range(1, 9):
            for rows in (2, 3):  # the second one belongs to the class of the first
                torch.relu(placed(mesh, torch.ones([rows] + [2] * ndim), Shard(0)))
        assert dispatch.cache_info()[:3] == (8, 8, 4 + 4)


def in_torchs_cache() -> int:
    return torch._C._get_DTensor_sharding_propagator_cache_stats()[1]


def test_misses_never_outgrow_their_limit(mesh):
    """All caches, torch's too, are cleared after the most misses."""
    with running(InternedDispatch, most_misses=20) as dispatch:
        kept = []
        for rows in range(1, 101):
            torch.relu(rows_of(mesh, rows))
            kept.append((dispatch.cache_info().entries, in_torchs_cache()))
        assert dispatch.cache_info()[:2] == (0, 100)
    assert max(of_torch for _, of_torch in kept) == 20
    assert all(entries == of_torch for entries, of_torch in kept)


def test_no_cache_of_torch_is_cleared_while_torch_dispatches(mesh):
    """While Python decomposes an op without a strategy, C++ holds a pointer into its cache."""
    decide, kept = PROPAGATOR.propagate_op_sharding_non_cached, []

    def without_strategies(schema: OpSchema) -> OutputSharding:
        kept.append((schema.op, in_torchs_cache()))
        if schema.op is aten.flatten.using_ints:
            raise NotImplementedError
        return decide(schema)

    with (
        running(InternedDispatch, most_misses=0),
        mock.patch.object(PROPAGATOR, "propagate_op_sharding_non_cached", without_strategies),
        torch.inference_mode(),  # else autograd decomposes it
    ):
        for columns in (8, 4):
            torch.relu(rows_of(mesh, 2))
            torch.flatten(rows_of(mesh, 2, columns))
    entries = dict(kept[-2:])
    assert list(entries) == [aten.flatten.using_ints, aten.view.default]
    assert entries[aten.view.default] >= entries[aten.flatten.using_ints] > 0


def test_bytes_grow_with_entries_and_an_error_is_a_miss(mesh):
    """The bytes are those of the entries, and an op that fails is counted but not kept."""
    with running(ShapeClass) as dispatch:
        torch.relu(rows_of(mesh, 1))
        small = dispatch.cache_info().bytes
        assert small > 1000
        for rows in range(1, 60, 2):
            torch.relu(rows_of(mesh, rows, columns=5))
        assert dispatch.cache_info().bytes > 2 * small
        dispatch.clear()
        assert dispatch.cache_info().bytes < small
        for _ in range(2):
            with pytest.raises(RuntimeError):
                torch.mm(rows_of(mesh, 2), rows_of(mesh, 3))
        assert dispatch.cache_info()[:3] == (0, 2, 0)


# Threads

THREADS = 8


def test_many_threads_get_right_results_while_entries_are_evicted(mesh):
    """Threads that share a cache have torch's values and gradients, and may read its counts."""
    shared = torch.nn.Parameter(placed(mesh, counted(8, 4), Replicate()))
    begin = Barrier(THREADS)

    def work(thread: int, dispatch: InternedDispatch) -> int:
        begin.wait(timeout=60)
        right = 0
        for step in range(25):
            local = counted(1 + (step * (thread + 3)) % 7, 8) + thread
            x = placed(mesh, local, Shard(0)).requires_grad_()
            made: list[DTensor] = [torch.relu(x @ shared), x * 2.0 + x, x.t(), x.view(-1, 2, 4)]
            (gradient,) = torch.autograd.grad(made[0].sum(), x)
            expected = [local @ counted(8, 4), local * 2.0 + local, local.t(), local.view(-1, 2, 4)]
            sums = counted(8, 4).sum(1).expand(local.shape)
            right += torch.equal(gradient.to_local(), sums) and all(
                torch.equal(one.to_local(), other) and one.shape.numel() == 4 * other.numel()
                for one, other in zip(made, expected, strict=True)
            )
            if step % 8 == 0:
                dispatch.cache_info()
        return right

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with running(ShapeClass, most_entries=2) as dispatch, ThreadPoolExecutor(THREADS) as pool:
            right = list(pool.map(work, range(THREADS), [dispatch] * THREADS))
    finally:
        sys.setswitchinterval(interval)
    assert right == [25] * THREADS


@pytest.mark.parametrize("kind", [InternedDispatch, ShapeClass])
def test_an_equal_mesh_of_another_rank_gets_no_recipe_of_the_first_one(kind):
    """Torch keys the meshes of threaded ranks by thread id, and thread ids are reused."""
    first = mesh_of(4)
    last = DeviceMesh("cpu", [0, 1, 2, 3], mesh_dim_names=first.mesh_dim_names, _rank=3)
    assert last == first
    made: list[tuple[Any, ...]] = []

    def play(mesh: DeviceMesh) -> None:
        x = placed(mesh, counted(2, 8), Shard(0))
        results = [torch.relu(x), x + 1, x.view(-1, 2, 4)] * 2
        made.append(tuple(result._spec.mesh.get_coordinate() for result in results))

    with running(kind):
        for mesh in (first, last):
            thread = Thread(target=play, args=(mesh,))
            thread.start()
            thread.join()
    assert made == [((0,),) * 6, ((3,),) * 6]
