"""One call accelerates an existing program, and another call ends the acceleration."""

import gc
import weakref

import pytest
import torch
from outcomes import ACCELERATED, described
from small_world import counted, mesh_of, placed, played
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch_state import changed, torch_now

from harness.contract import UsageError
from harness.contract.supported_releases import UnsupportedRelease
from planners.dtensor.accelerate import accelerate
from planners.dtensor.dispatch.torch_path import clear_torch_caches

pytestmark = pytest.mark.usefixtures("cold")


def test_results_are_as_without_it_and_new_sizes_are_hits(step):
    """A new size is decided anew by the two of six ops that have no shape class."""
    expected = [described(step(rows)) for rows in (2, 3, 2)]
    with accelerate() as accelerated:
        assert "is on: torch" in str(accelerated)
        assert described(step(2)) == expected[0]
        first = accelerated.cache_info()
        assert (first.misses, first.entries) == (6, 6 + 4)
        assert [described(step(rows)) for rows in (3, 2)] == expected[1:]
        last = accelerated.cache_info()
        assert (last.misses - first.misses, last.hits - first.hits) == (2, 2 * 6 - 2)
        accelerated.clear()
        assert accelerated.cache_info()[:3] == (0, 0, 0)
        assert described(step(2)) == expected[0]
    assert "is off: torch" in str(accelerated)


def test_torch_is_as_before_when_it_ends(step):
    """By `stop`, or by an error in the block, all of torch is restored and the counts stay."""
    step(2)
    before = torch_now()
    first = accelerate()
    step(2)
    assert changed(before)
    with pytest.raises(UsageError, match="accelerated already"):
        accelerate()
    first.stop()
    assert not changed(before)
    counted_so_far = first.cache_info()
    step(2)
    assert first.cache_info() == counted_so_far
    assert counted_so_far.misses > 0
    with accelerate() as second:
        first.stop()  # again, which leaves the second one alone
        step(2)
        step(2)
        assert second.cache_info().hits > 0
    with pytest.raises(KeyError), accelerate():
        raise KeyError("mine")
    assert not changed(before)


def test_a_mesh_is_released_when_it_stops():
    """An acceleration that has stopped keeps no mesh alive."""

    def used() -> weakref.ref[DeviceMesh]:
        mesh = mesh_of(4)
        x = placed(mesh, counted(2, 4), Shard(0)).requires_grad_()
        for _ in range(3):
            (x @ x.t()).relu().sum().backward()
        return weakref.ref(mesh)

    used()  # torch keeps the first mesh that it redistributes on
    accelerated = accelerate()
    mesh = used()
    accelerated.stop()
    clear_torch_caches()
    gc.collect()
    assert mesh() is None


def test_another_release_of_torch_is_left_to_torch(step, monkeypatch):
    """On an untested release a warning is given and nothing changes, unless the user insists."""
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    before, expected = torch_now(), described(step(2))
    with pytest.warns(UnsupportedRelease, match=r"tested with torch 2\.13\.0, 2\.15\.0, not with"):
        accelerated = accelerate(check=1)
    assert not changed(before)
    assert described(step(2)) == expected
    assert accelerated.cache_info() == (0, 0, 0, 0, 0, 0)
    accelerated.stop()
    with accelerate(any_release=True) as insisted:
        step(2)
        step(2)
        assert insisted.cache_info().hits > 0


# What is a hit


def rows(mesh: DeviceMesh, *shape: int) -> DTensor:
    return placed(mesh, counted(*shape), Shard(0))


def test_an_op_is_decided_once_whatever_numbers_it_has(mesh):
    """Ops that move their inputs, and ops with another number in each call, miss once."""
    x, y = rows(mesh, 2, 8), rows(mesh, 2, 8)
    with played(ACCELERATED["accelerated"]) as accelerated, torch.no_grad():
        for number in range(30):
            x @ x.t()
            torch.stack([x, placed(mesh, counted(8, 8), Replicate())])
            x.mul_(1 + number / 8)
            x.add_(y, alpha=number / 4)
            x.addcmul_(y, y, value=number / 2)
            torch._foreach_add_([x, y], number / 8)
            torch._foreach_div_([x, y], [number + 1.0, 2.0])
            torch._foreach_mul_([x, y], torch.tensor(number / 4))
        assert accelerated.cache_info()[:2] == (9 * 29, 9)


@pytest.mark.parametrize("types", [(tuple, torch.Size), (torch.Size, tuple)])
@pytest.mark.parametrize("field", ["shape", "stride"])
def test_equal_sizes_keep_their_types(mesh, field, types):
    """A hit passes no tuple on to a tensor with a torch.Size, nor the other way round."""
    with played(ACCELERATED["accelerated"]) as accelerated:
        for kind in types:
            sizes = {"shape": (8, 8), "stride": (8, 1)}
            sizes[field] = kind(sizes[field])
            x = placed(mesh, counted(2, 8), Shard(0), **sizes)
            for _ in range(3):
                torch.relu(x)
                assert type(getattr(x._spec.tensor_meta, field)) is kind
        assert accelerated.cache_info().hits > 0


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
        (lambda mesh: placed(mesh, counted(3, 8), Replicate()), False),
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
