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
    expected = [described(step(rows)) for rows in (2, 3, 2)]
    with accelerate() as accelerated:
        assert described(step(2)) == expected[0]
        first = accelerated.cache_info()
        assert (first.misses, first.entries) == (6, 6 + 4)
        assert [described(step(rows)) for rows in (3, 2)] == expected[1:]
        last = accelerated.cache_info()
    assert last.misses - first.misses == 2  # the ops without classes, at their new size
    assert last.hits - first.hits == 2 * 6 - 2


def test_torch_is_as_before_when_it_ends(step):
    step(2)
    before = torch_now()
    accelerated = accelerate()
    step(2)
    assert is_changed(before)
    accelerated.stop()
    assert not is_changed(before)
    counted_so_far = accelerated.cache_info()
    step(2)
    assert accelerated.cache_info() == counted_so_far
    assert counted_so_far.misses > 0


def test_stopping_twice_is_stopping_once(step):
    first = accelerate()
    first.stop()
    with accelerate() as second:
        first.stop()
        step(2)
        step(2)
        assert second.cache_info().hits > 0


def test_a_mesh_is_released_when_it_stops():
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


def test_it_ends_with_its_block_also_after_an_error():
    before = torch_now()
    with pytest.raises(KeyError), accelerate():
        raise KeyError("mine")
    assert not is_changed(before)
    accelerate().stop()


def test_a_second_one_is_refused_and_the_first_one_goes_on(step):
    with accelerate() as accelerated:
        with pytest.raises(UsageError, match="accelerated already"):
            accelerate()
        step(2)
        step(2)
        assert accelerated.cache_info().hits > 0


def test_it_forgets_on_demand(step):
    with accelerate() as accelerated:
        step(2)
        accelerated.clear()
        assert accelerated.cache_info()[:3] == (0, 0, 0)
        step(2)
        assert accelerated.cache_info().misses > 0


def test_it_prints_what_it_replaces(monkeypatch):
    """The text names the state, the release of torch, and the parts that are replaced."""
    accelerated = accelerate(fsdp_hooks=False)
    on = str(accelerated)
    accelerated.stop()
    off = str(accelerated)
    assert all(str(torch.__version__) in text for text in (on, off))
    assert "is on" in on
    assert "FSDP2" not in on
    assert "is off" in off
    monkeypatch.setattr(torch, "__version__", "2.13.0")
    with accelerate() as accelerated:
        assert "FSDP2's hooks" in str(accelerated)


def test_hooks_of_fsdp_are_left_alone_if_they_are_not_wanted():
    """With `fsdp_hooks=False` nothing of FSDP2 is replaced."""
    mark = _fsdp_param_group.record_function
    with accelerate(fsdp_hooks=False):
        assert _fsdp_param_group.record_function is mark


def test_hooks_that_an_untested_release_keeps_are_said_once(monkeypatch):
    """On a release with other hooks, a warning says so, and the rest is accelerated."""
    monkeypatch.setattr(supported_releases, "_said", set())
    monkeypatch.setattr(torch, "__version__", "2.15.0")
    with pytest.warns(UnsupportedRelease, match="hooks"):
        accelerated = accelerate()
    assert "is on" in str(accelerated)
    assert "FSDP2" not in str(accelerated)
    accelerated.stop()
    accelerate().stop()


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
