"""One call accelerates an existing program, and another call ends the acceleration."""

import gc
import weakref

import pytest
import torch
from outcomes import described
from small_world import counted, mesh_of, placed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp._fully_shard import _fsdp_param_group
from torch.distributed.tensor import Shard
from torch_state import is_changed, torch_now

from harness.contract import UsageError, supported_releases
from harness.contract.supported_releases import UnsupportedRelease
from planners.dtensor.accelerate import accelerate
from planners.dtensor.dispatch.torch_path import clear_torch_caches

pytestmark = pytest.mark.usefixtures("cold")


def test_results_are_as_without_it_and_new_sizes_are_hits(step):
    """A new size is decided anew by the two of six ops that have no shape class."""
    expected = [described(step(rows)) for rows in (2, 3, 2)]
    with accelerate() as accelerated:
        assert described(step(2)) == expected[0]
        first = accelerated.cache_info()
        assert (first.misses, first.entries) == (6, 6 + 4)
        assert [described(step(rows)) for rows in (3, 2)] == expected[1:]
        last = accelerated.cache_info()
        assert (last.misses - first.misses, last.hits - first.hits) == (2, 2 * 6 - 2)
        accelerated.clear()
        assert accelerated.cache_info()[:3] == (0, 0, 0)
        assert described(step(2)) == expected[0]


def test_torch_is_as_before_when_it_ends(step):
    """By `stop`, or by an error in the block, all of torch is restored and the counts stay."""
    step(2)
    before = torch_now()
    first = accelerate()
    step(2)
    assert is_changed(before)
    first.stop()
    assert not is_changed(before)
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
    assert not is_changed(before)


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
    assert accelerated.cache_info().hits > 0


def test_a_second_one_is_refused_and_the_first_one_goes_on(step):
    """DTensor is accelerated once at a time."""
    with accelerate() as accelerated:
        with pytest.raises(UsageError, match="accelerated already"):
            accelerate()
        step(2)
        step(2)
        assert accelerated.cache_info().hits > 0


@pytest.mark.parametrize(
    ("release", "wanted", "is_replaced"),
    [("2.13.0", True, True), ("2.13.0", False, False), ("2.15.0", True, False)],
)
def test_it_prints_what_it_replaces(monkeypatch, release, wanted, is_replaced):
    """FSDP2's hooks are replaced if wanted; a release with other hooks keeps them, after a word."""
    monkeypatch.setattr(supported_releases, "_said", set())
    monkeypatch.setattr(torch, "__version__", release)
    mark = _fsdp_param_group.record_function
    if wanted and not is_replaced:
        with pytest.warns(UnsupportedRelease, match="hooks"):
            accelerate(fsdp_hooks=wanted).stop()
    with accelerate(fsdp_hooks=wanted) as accelerated:
        assert f"is on: torch {release}" in str(accelerated)
        assert ("FSDP2's hooks" in str(accelerated)) is is_replaced
        assert (_fsdp_param_group.record_function is not mark) is is_replaced
    assert f"is off: torch {release}" in str(accelerated)


def test_another_release_of_torch_is_left_to_torch(step, monkeypatch):
    """On an untested release a warning is given and nothing changes, unless the user insists."""
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    before, expected = torch_now(), described(step(2))
    with pytest.warns(UnsupportedRelease, match=r"tested with torch 2\.13\.0, 2\.15\.0, not with"):
        accelerated = accelerate(check=1)
    assert not is_changed(before)
    assert described(step(2)) == expected
    assert accelerated.cache_info() == (0, 0, 0, 0, 0, 0)
    accelerated.stop()
    with accelerate(any_release=True) as insisted:
        step(2)
        step(2)
        assert insisted.cache_info().hits > 0
