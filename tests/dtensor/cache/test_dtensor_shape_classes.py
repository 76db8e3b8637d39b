"""A shape class knows the right sizes, and predicts torch's results for them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from outcomes import results_under
from small_world import counted, mesh_of, placed, running
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from planners.dtensor.cache.shape_class import ShapeClass
from planners.dtensor.dispatch.base import Dispatch


def strides(dispatch: Dispatch, make: Callable[[DTensor, int], DTensor]) -> list[Any]:
    """Return the strides of an op's results on transposed tensors of more and more columns."""
    mesh = mesh_of(4)
    with running(dispatch):
        transposed = {n: placed(mesh, counted(n, 8), Shard(0)).t() for n in (2, 4, 6)}
        return [make(x, n).stride() for n, x in transposed.items()]


def of_redistributed(x: DTensor, columns: int) -> DTensor:
    """Return a result on a tensor that is transposed, though this rank's part is not."""
    whole = x.redistribute(x.device_mesh, [Replicate()])
    assert whole.stride() == (1, 8)
    assert whole.to_local().is_contiguous()
    return torch.relu(whole)


def of_two_orders(x: DTensor, columns: int) -> DTensor:
    """Return a result with another stride than fake tensors predict."""
    other = placed(x.device_mesh, counted(8, columns), Shard(1))
    return torch.special.xlog1py(x, other)


@pytest.mark.parametrize("make", [of_redistributed, of_two_orders])
def test_a_result_has_the_stride_that_torch_gives_it_at_every_size(make, dispatch):
    assert strides(dispatch, make) == strides(Dispatch(), make)


def test_a_spec_has_the_type_that_torch_foretells_at_every_size():
    """Of a bool to the power of a bool, torch foretells an int64, and a bool is made."""

    def types(dispatch: Dispatch) -> list[tuple[torch.dtype, torch.dtype]]:
        mesh = mesh_of(4)
        with running(dispatch):
            made = [placed(mesh, counted(n, 8).bool(), Shard(0)) ** True for n in (2, 4, 6)]
        return [(tensor.dtype, tensor._spec.tensor_meta.dtype) for tensor in made]

    assert types(ShapeClass()) == types(Dispatch())


@pytest.mark.parametrize("has_bias", [True, False])
def test_a_linear_layer_is_known_at_new_sizes(has_bias):
    mesh = mesh_of(4)
    weight = placed(mesh, counted(6, 8), Replicate())
    bias = placed(mesh, counted(6), Replicate()) if has_bias else None
    with running(ShapeClass()) as dispatch:
        for rows in (2, 3, 4, 5):
            x = placed(mesh, counted(rows, 8), Shard(0))
            made = torch.nn.functional.linear(x, weight, bias)
            assert made.stride() == (6, 1)
        assert dispatch.cache_info().misses == 2  # the product, and the weight's transposition


def rows_of_whole(mesh: DeviceMesh, rows: int) -> DTensor:
    """Return a tensor with this total of rows, in shards that may be uneven."""
    local = counted(-(-rows // mesh.size()), 8)
    return placed(mesh, local, Shard(0), shape=torch.Size((rows, 8)), stride=(8, 1))


@pytest.mark.parametrize(
    ("other", "is_known"),
    [
        (lambda mesh: placed(mesh, counted(3, 8), Shard(0)), True),
        (lambda mesh: placed(mesh, counted(3, 5), Shard(0)), True),
        (lambda mesh: placed(mesh, counted(1, 8), Shard(0)), False),
        (lambda mesh: placed(mesh, counted(2, 1), Shard(0)), False),
        (lambda mesh: placed(mesh, counted(0, 8), Shard(0)), False),
        (lambda mesh: placed(mesh, counted(2, 8, 2), Shard(0)), False),
        # Uneven shards are known where each rank has room for two rows.
        (lambda mesh: rows_of_whole(mesh, 9), True),
        (lambda mesh: rows_of_whole(mesh, 11), True),
        (lambda mesh: rows_of_whole(mesh, 4), False),
        (lambda mesh: rows_of_whole(mesh, 3), False),
        # Another class: by placements, type, order in memory, and gaps.
        (lambda mesh: placed(mesh, counted(3, 8), Replicate()), False),
        (lambda mesh: placed(mesh, counted(3, 8).half(), Shard(0)), False),
        (lambda mesh: placed(mesh, counted(8, 3).t(), Shard(0)), False),
        (lambda mesh: placed(mesh, counted(3, 16)[:, ::2], Shard(0)), False),
    ],
)
def test_sizes_that_cannot_matter_are_known_and_all_others_left_to_torch(other, is_known):
    mesh = mesh_of(4)
    with running(ShapeClass()) as dispatch:
        torch.relu(placed(mesh, counted(2, 8), Shard(0)))
        x = other(mesh)
        assert torch.relu(x).shape == x.shape
        assert dispatch.cache_info().misses == (1 if is_known else 2)


@pytest.mark.parametrize("others", [(6, 1), (1, 8), (8,), (6, 8)], ids=str)
def test_a_dimension_of_one_element_is_known_at_other_sizes_of_the_rest(others):
    mesh = mesh_of(4)
    with running(ShapeClass()) as dispatch:
        for rows in (2, 3, 4):
            x = placed(mesh, counted(4 * rows, 8), Replicate())
            size = [4 * rows if length == 6 else length for length in others]
            made = x + placed(mesh, counted(*size), Replicate())
            assert torch.equal(made.to_local(), counted(4 * rows, 8) + counted(*size))
        assert dispatch.cache_info().misses == 1


@pytest.mark.parametrize(
    "turn",
    [torch.t, lambda x: x.transpose(0, -1), lambda x: x.permute(1, 0)],
    ids=["t", "transpose", "permute"],
)
def test_a_tensor_is_turned_at_new_sizes_and_shares_its_storage(turn):
    mesh = mesh_of(4)
    with running(ShapeClass()) as dispatch:
        for rows in (2, 3, 4):
            x = placed(mesh, counted(rows, 8), Shard(0))
            turned = turn(x)
            assert turned.untyped_storage()._cdata == x.untyped_storage()._cdata
            assert (turned.shape, turned.stride()) == ((8, 4 * rows), (1, 8))
            assert turned.placements == (Shard(1),)
        assert dispatch.cache_info().misses == 1


def test_a_view_turned_otherwise_is_another_class():
    mesh = mesh_of(4)
    with running(ShapeClass()) as dispatch:
        for rows in (2, 3):
            x = placed(mesh, counted(rows, 8, 6), Shard(0))
            shapes = [x.transpose(*dims).shape for dims in ((0, 1), (1, 2), (0, 2))]
            assert shapes == [(8, 4 * rows, 6), (4 * rows, 6, 8), (6, 8, 4 * rows)]
        assert dispatch.cache_info().misses == 3


@pytest.mark.parametrize("shape", [(16, 9), (17, 8)], ids=str)
def test_sizes_that_do_not_fit_are_refused_in_torchs_words(shape):
    """On this rank the rows of 17 are as many as those of 20."""

    def added(mesh: DeviceMesh) -> list[DTensor]:
        x = placed(mesh, counted(5, 8), Shard(0))
        local = counted(-(-shape[0] // 4), shape[1])
        stride = (shape[1], 1)
        y = placed(mesh, local, Shard(0), shape=torch.Size(shape), stride=stride)
        return [x + x, x + y]

    mesh = mesh_of(4)
    assert results_under(ShapeClass(), mesh, added) == results_under(Dispatch(), mesh, added)


def test_an_op_that_redistributes_is_decided_at_each_size():
    mesh = mesh_of(4)
    with running(ShapeClass()) as dispatch:
        for rows in (2, 3, 4):
            x = placed(mesh, counted(rows, 8), Shard(0))
            y = placed(mesh, counted(4 * rows, 2), Shard(1))
            x + y
        assert dispatch.cache_info()[:2] == (0, 3)
