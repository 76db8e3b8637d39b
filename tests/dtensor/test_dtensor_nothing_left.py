"""A variant restores torch's state when it ends, also after an error."""

import pytest
import torch
from small_world import EVERYWHERE, checked, counted, mesh_of, placed, problem_of
from torch.distributed.tensor import Shard
from torch_state import is_changed, settings_now, torch_now

from planners.dtensor import FAMILY

pytestmark = pytest.mark.usefixtures("few_rounds")


def hits_of_torch() -> int:
    """Count the hits of torch's own cache in three equal ops."""
    mesh = mesh_of(8)
    rows = placed(mesh, counted(2, 3), Shard(0))
    before, _ = torch._C._get_DTensor_sharding_propagator_cache_stats()
    for _ in range(3):
        torch.sigmoid(rows)
    after, _ = torch._C._get_DTensor_sharding_propagator_cache_stats()
    return after - before


@pytest.fixture(scope="module")
def problem():
    made = problem_of("ops/dgx_a100_80gb:8")
    checked("upstream", made)  # torch imports some modules late
    return made


@pytest.mark.parametrize("name", EVERYWHERE)
def test_torch_is_as_before_when_a_variant_is_left_also_by_an_error(name, problem):
    before, settings = torch_now(), settings_now()
    prepared = FAMILY.find(name).prepared(problem)
    with prepared.installed():
        prepared.run()
        assert is_changed(before)
        assert settings_now() != settings
    with pytest.raises(KeyError), prepared.installed():
        raise KeyError("mine")
    with pytest.raises(RuntimeError), prepared.installed():
        torch.mm(*[placed(problem.program.mesh, counted(2, 3), Shard(0))] * 2)
    assert not is_changed(before)
    assert settings_now() == settings
    assert hits_of_torch() == 2


def test_torch_is_as_before_when_a_variant_has_been_observed(problem):
    before, settings = torch_now(), settings_now()
    for name in EVERYWHERE:
        checked(name, problem)
    assert not is_changed(before)
    assert settings_now() == settings


def test_torch_knows_nothing_of_before_when_a_variant_begins(problem):
    hits_of_torch()
    with FAMILY.find("upstream").prepared(problem).installed():
        _, entries = torch._C._get_DTensor_sharding_propagator_cache_stats()
        assert entries == len(problem.program.names)
    assert torch._C._get_DTensor_sharding_propagator_cache_stats() == (0, 0)
