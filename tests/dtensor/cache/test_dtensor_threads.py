"""A dispatch serves all threads of a process while entries are added and evicted."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Barrier, Event, Thread
from typing import Any

import pytest
import torch
from small_world import counted, mesh_of, placed, running
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from planners.dtensor.cache.interned import InternedDispatch
from planners.dtensor.cache.shape_class import ShapeClass
from planners.dtensor.dispatch.base import BoundedTable
from planners.dtensor.dispatch.handlers import handling
from planners.dtensor.dispatch.torch_path import Handler

THREADS = 8
KINDS: list[Callable[[], InternedDispatch]] = [
    lambda: InternedDispatch(most_recipes=3),
    InternedDispatch,
    lambda: ShapeClass(most_classes=2),
    ShapeClass,
]


@pytest.mark.parametrize("kind", KINDS)
def test_many_threads_get_right_results_while_entries_are_evicted(kind):
    mesh = mesh_of(4)
    weight = counted(8, 4)
    shared = placed(mesh, weight, Replicate())
    begin = Barrier(THREADS)

    def work(thread: int) -> int:
        begin.wait(timeout=60)
        right = 0
        for step in range(25):
            rows, columns = 1 + (step * (thread + 3)) % 7, 8
            local = counted(rows, columns) + thread
            x = placed(mesh, local, Shard(0))
            made: list[DTensor] = [torch.relu(x @ shared), x * 2.0 + x, x.t(), x.view(-1, 2, 4)]
            expected = [local @ weight, local * 2.0 + local, local.t(), local.view(-1, 2, 4)]
            right += all(
                torch.equal(one.to_local(), other) and one.shape.numel() == 4 * other.numel()
                for one, other in zip(made, expected, strict=True)
            )
        return right

    with running(kind()), ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [25] * THREADS


def test_backward_runs_in_any_thread(dispatch, mesh):
    local = counted(2, 8)

    def gradient(number: int) -> torch.Tensor:
        up = torch.nn.Parameter(placed(mesh, counted(8, 4) / 100, Shard(1)))
        down = torch.nn.Parameter(placed(mesh, counted(4, 8) / 100, Shard(0)))
        x = placed(mesh, local + number, Replicate())
        (torch.tanh(x @ up) @ down).pow(2).sum().backward()
        assert up.grad.placements == (Shard(1),)
        return up.grad.to_local()

    expected = [gradient(number) for number in range(4)]
    with running(dispatch), ThreadPoolExecutor(4) as pool:
        for found, right in zip(pool.map(gradient, range(4)), expected, strict=True):
            torch.testing.assert_close(found, right, rtol=0, atol=0)


def test_the_cache_may_be_read_while_another_thread_adds_to_it():
    mesh = mesh_of(4)
    is_read = Event()
    interval = sys.getswitchinterval()

    def add(table: BoundedTable[Any, Any]) -> None:
        (recipe,) = table.entries.values()
        for number in count():
            table.add(number, recipe)
            if is_read.is_set():
                break

    sys.setswitchinterval(1e-6)
    try:
        with (
            running(InternedDispatch(most_recipes=300)) as dispatch,
            ThreadPoolExecutor(1) as pool,
        ):
            torch.relu(placed(mesh, torch.ones(1, 1), Shard(0)))
            adding = pool.submit(add, dispatch._tables[torch.ops.aten.relu.default])
            try:
                entries = [dispatch.cache_info().entries for _ in range(30)]
            finally:
                is_read.set()
                adding.result()
    finally:
        sys.setswitchinterval(interval)
    assert max(entries) <= 300
    assert entries[-1] >= 299  # one has been dropped, and another is about to take its place


def test_an_equal_mesh_of_another_rank_gets_no_recipe_of_the_first_one(dispatch):
    """Torch keys the meshes of threaded ranks by thread id, and thread ids are reused."""
    first = mesh_of(4)
    last = DeviceMesh("cpu", [0, 1, 2, 3], mesh_dim_names=first.mesh_dim_names, _rank=3)
    assert last == first
    made: list[tuple[Any, ...]] = []

    def play(mesh: DeviceMesh) -> None:
        x = placed(mesh, counted(2, 8), Shard(0))
        results = [torch.relu(x), x + 1, x.view(-1, 2, 4)] * 2
        made.append(tuple(result._spec.mesh.get_coordinate() for result in results))

    with running(dispatch):
        for mesh in (first, last):
            thread = Thread(target=play, args=(mesh,))
            thread.start()
            thread.join()
    assert made == [((0,),) * 6, ((3,),) * 6]


def test_an_op_that_is_handed_back_while_its_handler_is_made_is_torchs():
    def make(op: OpOverload) -> Handler:
        give_back(op)
        return lambda op, args, kwargs: "not torch's"

    x = placed(mesh_of(4), counted(2, 4), Shard(0))
    with handling([torch.ops.aten.relu.default], make) as give_back:
        for _ in range(2):
            assert isinstance(torch.relu(x), DTensor)
