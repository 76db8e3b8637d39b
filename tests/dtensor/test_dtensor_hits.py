"""Under `accelerate()`, an op is decided once where its decision cannot be another one."""

from unittest import mock

import pytest
import torch
from outcomes import ACCELERATED, described
from small_world import counted, mesh_of, placed, played
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, _sharding_prop
from torch.distributed.tensor.placement_types import _StridedShard

from planners.dtensor.accelerate import accelerate
from planners.dtensor.decision import recorded_in


def rows(mesh: DeviceMesh, *shape: int) -> DTensor:
    return placed(mesh, counted(*shape), Shard(0))


def whole(mesh: DeviceMesh, *shape: int) -> DTensor:
    return placed(mesh, counted(*shape), Replicate())


def test_decisions_from_before_become_recipes_after_one_dispatch_by_torch(mesh):
    """Ops that torch has decided before the acceleration are misses once, and hits from then on."""
    x = rows(mesh, 2, 8)
    expected = described([torch.tanh(x), x.view(-1, 2, 4), x.sum(0)])
    with accelerate() as accelerated:
        for _ in range(3):
            assert described([torch.tanh(x), x.view(-1, 2, 4), x.sum(0)]) == expected
        info = accelerated.cache_info()
    assert (info.misses, info.hits) == (3, 6)


def test_an_op_whose_inputs_are_moved_is_a_hit(mesh):
    """Ops that move their inputs are decided once, and move them in each call."""
    x, seen = rows(mesh, 2, 8), []
    norms = [x.norm(), whole(mesh, 8, 8).norm()]
    with played(ACCELERATED["accelerated"]) as accelerated, recorded_in(seen):
        for times in range(3):
            before = accelerated.cache_info()
            x @ x.t()
            torch.stack(norms)
            assert len(seen) == 2 * (times + 1)
            new = accelerated.cache_info()
            counts = new.misses - before.misses, new.hits - before.hits
            assert counts == ((0, 3) if times else (3, 0))


def test_numbers_are_no_part_of_a_key(mesh):
    """Ops with other numbers in each step are decided once."""
    x, y = rows(mesh, 2, 8), rows(mesh, 2, 8)
    with played(ACCELERATED["accelerated"]) as accelerated, torch.no_grad():
        for number in range(30):
            x.mul_(1 + number / 8)
            x.add_(y, alpha=number / 4)
            x.addcmul_(y, y, value=number / 2)
            torch._foreach_add_([x, y], number / 8)
            torch._foreach_div_([x, y], [number + 1.0, 2.0])
            torch._foreach_mul_([x, y], torch.tensor(number / 4))
        assert accelerated.cache_info()[:3] == (6 * 29, 6, 6)


def test_a_decision_left_to_torch_is_made_once_as_in_torch():
    """Ops that torch decides even when accelerated stay in torch's cache."""
    mesh = mesh_of(2, 2)
    x = placed(mesh, counted(2, 8), _StridedShard(0, split_factor=2), Shard(0))
    weight = placed(mesh, counted(8, 4), Replicate(), Replicate())
    select = _sharding_prop._select_min_cost_strategy
    with played(ACCELERATED["accelerated"]):
        torch.relu(x @ weight)
        with mock.patch.object(
            _sharding_prop, "_select_min_cost_strategy", side_effect=select
        ) as selected:
            torch.relu(x @ weight)
    assert selected.call_count == 0


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
        (lambda mesh: uneven_rows(mesh, 4), False),
        # Another class: by placements, type, order in memory, and gaps.
        (lambda mesh: whole(mesh, 3, 8), False),
        (lambda mesh: placed(mesh, counted(3, 8).half(), Shard(0)), False),
        (lambda mesh: placed(mesh, counted(8, 3).t(), Shard(0)), False),
        (lambda mesh: placed(mesh, counted(3, 16)[:, ::2], Shard(0)), False),
    ],
)
def test_sizes_that_cannot_matter_are_known_and_all_others_left_to_torch(other, is_known, mesh):
    """An op at a new size is a hit where sizes cannot change its decision."""
    with played(ACCELERATED["accelerated"]) as accelerated:
        torch.relu(rows(mesh, 2, 8))
        x = other(mesh)
        assert torch.relu(x).shape == x.shape
        assert accelerated.cache_info().misses == (1 if is_known else 2)


def uneven_rows(mesh: DeviceMesh, total: int) -> DTensor:
    local = counted(-(-total // mesh.size()), 8)
    return placed(mesh, local, Shard(0), shape=torch.Size((total, 8)), stride=(8, 1))
