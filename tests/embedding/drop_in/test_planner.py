"""The drop-in planner plans real models as torchrec does, and does not change its arguments."""

import sys
from dataclasses import replace
from math import inf, nan
from types import ModuleType

import pytest
import torch.distributed as dist
from compared import come_to
from hypothesis import given, strategies as st
from little_work import randoms
from planned import assert_same, decided, new_planner, problem
from random_models import collection, random_model
from torch import nn
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
    SortBy,
)
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    GreedyProposer,
    UniformProposer,
)
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import PlannerError, ShardingOption

from planners.embedding.drop_in.planner import Planner
from planners.embedding.same_plan.partition import PartitionRules
from planners.embedding.same_plan.search import SamePlan
from planners.embedding.search.outcome import NotFound
from planners.embedding.search.space import devices_of, search_space

PROPOSERS = (
    lambda: None,
    GreedyProposer,
    lambda: GreedyProposer(use_depth=False, threshold=4),
    DynamicProgrammingProposer,
)
PARTITIONERS = (
    lambda: None,
    lambda: GreedyPerfPartitioner(SortBy.PERF, balance_modules=True),
    lambda: MemoryBalancedPartitioner(tolerance=0.3),
)


@pytest.mark.parametrize(
    ("name", "value"), [("mode", "x"), *(("search_seconds", s) for s in (0, -1.0, nan, inf))]
)
def test_a_bad_argument_is_refused_by_name_and_value(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be .* not {value!r}\.$"):
        new_planner(problem(), **{name: value})


@given(
    random=randoms,
    proposer=st.sampled_from(PROPOSERS),
    partitioner=st.sampled_from(PARTITIONERS),
)
def test_real_models_are_planned_as_by_torchrec(random, proposer, partitioner):
    model = random_model(random)
    compiled, upstream = (
        planner(**model.components(), proposer=proposer(), partitioner=partitioner())
        for planner in (Planner, EmbeddingShardingPlanner)
    )
    expected = come_to(upstream, model.module, model.sharders)
    assert come_to(compiled, model.module, model.sharders) == expected
    without_hbm = proposer is DynamicProgrammingProposer and model.topology.compute_device == "cpu"
    assert compiled._warned == (without_hbm and expected[0][0] is not RuntimeError)


@pytest.mark.parametrize("memory", ["roomy", "tight", "mixed"])
def test_made_up_tables_are_planned_as_by_torchrec(memory):
    assert_same(problem(f"synthetic[tables=12,seed=4,memory={memory}]", gpus=16))


def test_equal_tables_tie_everywhere():
    built = problem("synthetic[tables=8,seed=2]")
    tables = tuple(replace(built.tables[0], name=f"table_{number}") for number in range(8))
    module = collection({table.name: (1000, 64) for table in tables})
    built = replace(built, tables=tables, module=module, constraints={})
    assert_same(built)
    assert_same(built, proposer=lambda: None)


def test_a_device_can_be_filled_to_the_last_byte():
    built = problem("synthetic[tables=3,seed=2]", gpus=2)
    planner = new_planner(built)
    planner.plan(built.module, built.sharders)
    used = [0, 0]
    for option in planner._best_plan:
        for shard in option.shards:
            used[shard.rank] += shard.storage.hbm

    def with_less(lacking: int) -> Planner:
        for device, amount in zip(built.topology.devices, used, strict=True):
            device.storage.hbm = amount - lacking
        return assert_same(built, storage_reservation=lambda: FixedPercentageStorageReservation(0))

    assert with_less(0)._best_plan[0].compute_kernel == planner._best_plan[0].compute_kernel
    assert with_less(0)._num_plans > with_less(1)._num_plans


def test_a_planner_plans_again_and_something_else():
    built, other = problem("synthetic[tables=4,seed=2]"), problem("synthetic[tables=3,seed=9]")
    for proposer in (GreedyProposer, DynamicProgrammingProposer):
        planner = new_planner(built, proposer=proposer(), constraints=None)
        first = decided(planner, built)
        assert decided(planner, built) == first
        upstream = new_planner(other, EmbeddingShardingPlanner, proposer=proposer())
        upstream._constraints = upstream._enumerator._constraints = None
        assert decided(planner, other)[:2] == decided(upstream, other)[:2]


def test_a_module_without_tables_has_an_empty_plan():
    planner = new_planner(problem())
    assert planner.plan(nn.Linear(1, 1), [EmbeddingBagCollectionSharder()]).plan == {}
    assert (planner._num_proposals, planner._num_plans) == (0, 0)


@pytest.mark.parametrize("hbm_share", [1, 0])
def test_the_users_components_are_back_afterwards(hbm_share):
    built = problem()
    for device in built.topology.devices:
        device.storage.hbm *= hbm_share
    proposers, partitioner = [GreedyProposer(), UniformProposer()], GreedyPerfPartitioner()
    reservation = built.storage_reservation()
    planner = new_planner(
        built, proposer=proposers, partitioner=partitioner, storage_reservation=reservation
    )
    outcome = decided(planner, built)[0]
    assert (outcome[0] is PlannerError) == (not hbm_share)
    assert planner._proposers is proposers
    assert planner._partitioner is partitioner
    assert "reserve" not in vars(reservation)
    stored = planner._enumerator.last_stored_search_space
    assert {shard.rank for option in stored for shard in option.shards} == {None}


def test_the_plan_shares_nothing_with_the_search_space():
    built = problem()
    planner = new_planner(built)
    planner.plan(built.module, built.sharders)
    stored = planner._enumerator.last_stored_search_space
    parts = {
        id(part)
        for option in stored
        for shard in option.shards
        for part in (option, shard, shard.size, shard.offset, shard.storage, shard.perf)
    }
    for option in planner._best_plan:
        assert type(option) is ShardingOption
        assert option.tensor is next(o.tensor for o in stored if o.fqn == option.fqn)
        for shard in option.shards:
            own = (option, shard, shard.size, shard.offset, shard.storage, shard.perf)
            assert not parts & {id(part) for part in own}


def fake_certified(monkeypatch, outcome):
    asked = []
    module = ModuleType("certified")
    module.MOST_FOR_ALL_PROPOSALS = 0
    module.best_plan = lambda space, devices, deadline, seed: (
        asked.append((deadline.seconds, seed)) or outcome
    )
    monkeypatch.setitem(sys.modules, "planners.embedding.best_plan.search", module)
    return asked


def test_the_best_plan_is_that_of_the_certified_search(monkeypatch):
    built = problem()
    first = new_planner(built)
    _, counts, _ = decided(first, built)
    space = search_space(first._enumerator.last_stored_search_space)
    worse = SamePlan([UniformProposer()], PartitionRules())(space, devices_of(built.topology))
    asked = fake_certified(monkeypatch, worse)
    planner = new_planner(built, mode="best-plan", search_seconds=2.5, seed=7)
    planner.plan(built.module, built.sharders)
    assert asked == [(2.5, 7)]
    assert planner._perf_model.rate(planner._best_plan) == worse.rating
    assert (planner._num_proposals, planner._num_plans) == (worse.proposals, worse.partitions)
    assert counts != (worse.proposals, worse.partitions)


def test_where_the_certified_search_finds_nothing_in_the_timeout_the_plan_is_the_same(monkeypatch):
    asked = fake_certified(monkeypatch, NotFound(None, None, 0))
    built = problem()
    best, same = (
        new_planner(built, mode=mode, timeout_seconds=3) for mode in ("best-plan", "same-plan")
    )
    assert decided(best, built) == decided(same, built)
    assert asked == [(3, 0)]


def test_it_plans_collectively():
    built = problem()
    expected = new_planner(built).plan(built.module, built.sharders)
    if dist.is_initialized():  # a fake one, which another test's planner left
        dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        plan = new_planner(built).collective_plan(built.module, built.sharders)
    finally:
        dist.destroy_process_group()
    assert plan.plan == expected.plan
