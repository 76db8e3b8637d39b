"""A shape class accepts the right sizes, and predicts torch's results for them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from outcomes import described, results_under
from small_world import counted, mesh_of, placed, running
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn import functional

from planners.dtensor.cache.shape_class import ShapeClass
from planners.dtensor.dispatch.base import Dispatch


def rows(mesh: DeviceMesh, *shape: int) -> DTensor:
    return placed(mesh, counted(*shape), Shard(0))


def whole(mesh: DeviceMesh, *shape: int) -> DTensor:
    return placed(mesh, counted(*shape), Replicate())


def turned(turn: Callable[[DTensor], DTensor]) -> Callable[[DeviceMesh, int], Any]:
    def make(mesh: DeviceMesh, n: int) -> Any:
        x = rows(mesh, n, 8)
        made = turn(x)
        return made, made.untyped_storage()._cdata == x.untyped_storage()._cdata

    return make


def of_redistributed(mesh: DeviceMesh, n: int) -> Any:
    """Return a result's stride for a transposed DTensor with a contiguous local tensor."""
    x = rows(mesh, n, 8).t().redistribute(mesh, [Replicate()])
    assert x.stride() == (1, 8)
    assert x.to_local().is_contiguous()
    return torch.relu(x).stride()


def of_two_orders(mesh: DeviceMesh, n: int) -> DTensor:
    """Return a result with a stride that fake tensors do not predict."""
    return torch.special.xlog1py(rows(mesh, n, 8).t(), placed(mesh, counted(8, n), Shard(1)))


# Programs at size n, and their misses under ShapeClass at three sizes.
PROGRAMS: dict[str, tuple[Callable[[DeviceMesh, int], Any], int]] = {
    "linear": (lambda mesh, n: functional.linear(rows(mesh, n, 8), whole(mesh, 6, 8)), 2),
    "linear with a bias": (
        lambda mesh, n: functional.linear(rows(mesh, n, 8), whole(mesh, 6, 8), whole(mesh, 6)),
        2,
    ),
    "plus a column": (lambda mesh, n: whole(mesh, n, 8) + whole(mesh, n, 1), 1),
    "plus a row": (lambda mesh, n: whole(mesh, n, 8) + whole(mesh, 1, 8), 1),
    "plus a vector": (lambda mesh, n: whole(mesh, n, 8) + whole(mesh, 8), 1),
    "plus a matrix": (lambda mesh, n: whole(mesh, n, 8) + whole(mesh, n, 8), 1),
    "t": (turned(torch.t), 1),
    "transpose": (turned(lambda x: x.transpose(0, -1)), 1),
    "permute": (turned(lambda x: x.permute(1, 0)), 1),
    "transpositions, each a class of its own": (
        lambda mesh, n: [rows(mesh, n, 8, 6).transpose(*dims) for dims in ((0, 1), (1, 2), (0, 2))],
        3,
    ),
    "a redistribution": (
        lambda mesh, n: (rows(mesh, n, 8) + placed(mesh, counted(4 * n, 2), Shard(1))).placements,
        3,
    ),
    "a redistributed transposition": (of_redistributed, 2),
    "two orders in memory": (of_two_orders, 4),
    # Torch predicts an int64 for a bool to the power of a bool, and makes a bool.
    "a bool to a bool": (lambda mesh, n: rows(mesh, n, 8).bool() ** True, 4),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_torchs_results_at_new_sizes_by_few_decisions(name, dispatch):
    make, misses = PROGRAMS[name]
    mesh = mesh_of(4)
    found = []
    for under in (Dispatch(), dispatch):
        with running(under):
            found.append([described(make(mesh, n)) for n in (2, 3, 4)])
            missed = under.cache_info().misses
    assert found[0] == found[1]
    if type(dispatch) is ShapeClass:
        assert missed == misses


def uneven_rows(mesh: DeviceMesh, total: int) -> DTensor:
    """Return a tensor with this number of rows, in shards that may be uneven."""
    local = counted(-(-total // mesh.size()), 8)
    return placed(mesh, local, Shard(0), shape=torch.Size((total, 8)), stride=(8, 1))


@pytest.mark.parametrize(
    ("other", "is_known"),
    [
        (lambda mesh: rows(mesh, 3, 8), True),
        (lambda mesh: rows(mesh, 3, 5), True),
        (lambda mesh: rows(mesh, 1, 8), False),
        (lambda mesh: rows(mesh, 2, 1), False),
        (lambda mesh: rows(mesh, 0, 8), False),
        (lambda mesh: rows(mesh, 2, 8, 2), False),
        # Uneven shards are known where each rank has room for two rows.
        (lambda mesh: uneven_rows(mesh, 9), True),
        (lambda mesh: uneven_rows(mesh, 11), True),
        (lambda mesh: uneven_rows(mesh, 4), False),
        (lambda mesh: uneven_rows(mesh, 3), False),
        # Another class: by placements, type, order in memory, and gaps.
        (lambda mesh: whole(mesh, 3, 8), False),
        (lambda mesh: placed(mesh, counted(3, 8).half(), Shard(0)), False),
        (lambda mesh: placed(mesh, counted(8, 3).t(), Shard(0)), False),
        (lambda mesh: placed(mesh, counted(3, 16)[:, ::2], Shard(0)), False),
    ],
)
def test_sizes_that_cannot_matter_are_known_and_all_others_left_to_torch(other, is_known):
    mesh = mesh_of(4)
    with running(ShapeClass()) as dispatch:
        torch.relu(rows(mesh, 2, 8))
        x = other(mesh)
        assert torch.relu(x).shape == x.shape
        assert dispatch.cache_info().misses == (1 if is_known else 2)


@pytest.mark.parametrize("shape", [(16, 9), (17, 8)], ids=str)
def test_sizes_that_do_not_fit_are_refused_in_torchs_words(shape):
    """On this rank, 17 rows and 20 rows give local parts of equal size."""

    def added(mesh: DeviceMesh) -> list[DTensor]:
        x = placed(mesh, counted(5, 8), Shard(0))
        local = counted(-(-shape[0] // 4), shape[1])
        stride = (shape[1], 1)
        y = placed(mesh, local, Shard(0), shape=torch.Size(shape), stride=stride)
        return [x + x, x + y]

    mesh = mesh_of(4)
    assert results_under(ShapeClass(), mesh, added) == results_under(Dispatch(), mesh, added)
