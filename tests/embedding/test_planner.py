"""The drop-in planner: torchrec's on real models, and how it behaves where it cannot be."""

import copy
import inspect
import logging
import sys
from dataclasses import replace
from types import ModuleType

import pytest
import torch
import torch.distributed as dist
from compared import come_to
from hypothesis import given
from hypothesis import strategies as st
from random_models import random_model
from torch import nn
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.constants import DEFAULT_PERF_ESTIMATOR
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator.estimator import (
    EmbeddingPerfEstimator,
    EmbeddingPerfEstimatorFactory,
)
from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
    SortBy,
)
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    EmbeddingOffloadScaleupProposer,
    GreedyProposer,
    UniformProposer,
)
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    PlanLoader,
    PlannerError,
    ShardingOption,
    StorageReservation,
)
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from harness.contract import Progress, Recorder, WorkloadSpec
from harness.measuring.check import check
from harness.measuring.timing.clock import SystemClock
from harness.topologies.lookup import find_topology
from planners.embedding import FAMILY
from planners.embedding.drop_in.compiled_search import CompiledSearch
from planners.embedding.drop_in.planner import DistrustedSearch, Planner
from planners.embedding.observer import observe
from planners.embedding.problem import build
from planners.embedding.search.outcome import NotFound
from planners.embedding.search.same_plan.partition import PartitionRules
from planners.embedding.search.same_plan.search import SamePlan
from planners.embedding.search.space import devices_of, search_space
from planners.embedding.search.warm_up import warm_up
from planners.embedding.variants.copies import WhollyCopiedOption, WhollyCopiedOptionEnumerator

randoms = st.randoms(use_true_random=False)


def problem(workload: str = "synthetic[tables=5,seed=2]", gpus: int = 8):
    return build(WorkloadSpec.parse(workload), find_topology("dgx_a100_80gb", gpus))


def new_planner(built, planner=Planner, **arguments):
    return planner(
        **{
            "topology": built.topology,
            "constraints": built.constraints,
            "storage_reservation": built.storage_reservation(),
            "proposer": GreedyProposer(),
            "stats": [],
            "debug": False,
            **arguments,
        }
    )


def decided(planner: EmbeddingShardingPlanner, built):
    planner._stats = []
    return come_to(planner, built.module, built.sharders)


def assert_same(built, warned: bool = False, **factories) -> Planner:
    """Compare with torchrec; every argument is made anew for each planner."""
    compiled, upstream = (
        new_planner(built, planner, **{name: make() for name, make in factories.items()})
        for planner in (Planner, EmbeddingShardingPlanner)
    )
    assert decided(compiled, built) == decided(upstream, built)
    assert compiled._warned == warned
    return compiled


def test_it_takes_torchrecs_arguments_in_the_same_places():
    upstream = inspect.signature(EmbeddingShardingPlanner.__init__).parameters
    ours = inspect.signature(Planner.__init__).parameters
    for theirs, own in zip(upstream.values(), ours.values(), strict=False):
        assert (own.name, own.default, own.kind) == (theirs.name, theirs.default, theirs.kind)
    assert list(ours)[len(upstream) :] == [
        "mode", "search_seconds", "seed", "check", "any_release",
        "previous", "move_budget", "lost_ranks",
    ]  # fmt: skip


def test_an_unknown_mode_is_refused_in_one_sentence():
    with pytest.raises(
        ValueError, match=r"^The mode must be 'same-plan' or 'best-plan', not 'x'.$"
    ):
        new_planner(problem(), mode="x")


@given(
    random=randoms,
    proposer=st.sampled_from(
        [
            lambda: None,
            GreedyProposer,
            lambda: GreedyProposer(use_depth=False, threshold=4),
            DynamicProgrammingProposer,
        ]
    ),
    partitioner=st.sampled_from(
        [
            lambda: None,
            lambda: GreedyPerfPartitioner(SortBy.PERF, balance_modules=True),
            lambda: MemoryBalancedPartitioner(tolerance=0.3),
        ]
    ),
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
    module = EmbeddingBagCollection(
        device=torch.device("meta"),
        tables=[
            EmbeddingBagConfig(
                name=table.name, num_embeddings=1000, embedding_dim=64, feature_names=[table.name]
            )
            for table in tables
        ],
    )
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


class _OwnReservation(StorageReservation):
    """Reserves for rank 0 only, and remembers nothing."""

    _percentage = 0.5

    def reserve(self, topology, batch_size, module, sharders, constraints=None):
        reserved = copy.deepcopy(topology)
        reserved.devices[0].storage.hbm //= 2
        return reserved

    @property
    def last_reserved_topology(self):
        return None


def test_a_storage_reservation_of_the_users_own_is_heard():
    assert_same(problem(), storage_reservation=_OwnReservation)


def test_an_enumerator_of_the_users_own_keeps_its_options():
    built = problem()
    given_out = []

    class Enumerator(EmbeddingEnumerator):
        def enumerate(self, module, sharders):
            given_out.extend(super().enumerate(module, sharders))
            return given_out

    planner = new_planner(built, enumerator=Enumerator(built.topology, 512, built.constraints))
    found = decided(planner, built)
    assert type(planner._enumerator) is Enumerator
    assert {shard.rank for option in given_out for shard in option.shards} == {None}
    assert found == decided(new_planner(built, EmbeddingShardingPlanner), built)


def test_options_of_the_users_own_class_stay_what_they_are():
    def enumerator():
        return WhollyCopiedOptionEnumerator(built.topology, 512, built.constraints)

    built = problem("synthetic[tables=3,seed=2]")
    planner = assert_same(built, enumerator=enumerator)
    assert {type(option) for option in planner._best_plan} == {WhollyCopiedOption}


def test_callbacks_get_the_plan():
    seen = []
    planner = new_planner(problem(), callbacks=[lambda plan: seen.append(plan) or plan[:1]])
    outcome = decided(planner, problem())[0]
    assert len(seen[0]) == 5
    assert len(outcome[1]) == 1


class _Loader(PlanLoader):
    def __init__(self, plan):
        self._plan = plan

    def load(self):
        return self._plan and {option.storage_hash(): option for option in self._plan}

    def plan_context_hash(self):
        return None

    def get_plan_id(self):
        return "kept"


def test_a_loaded_plan_is_not_searched_for(monkeypatch):
    built = problem()
    planner = new_planner(built)
    plan = planner.plan(built.module, built.sharders)
    again = new_planner(built, plan_loader=_Loader(planner._best_plan))
    monkeypatch.setattr(CompiledSearch, "load", None)
    assert again.plan(built.module, built.sharders).plan == plan.plan
    assert again._num_proposals == 0


def test_without_a_loaded_plan_one_is_searched_for():
    assert_same(problem(), plan_loader=lambda: _Loader(None))


class _OwnProposer(GreedyProposer):
    pass


class _OwnPartitioner(GreedyPerfPartitioner):
    pass


class _OwnPerfModel(NoopPerfModel):
    def rate(self, plan):
        return 2 * super().rate(plan)


@pytest.mark.parametrize(
    ("said", "factories"),
    [
        ("_OwnProposer is not compiled", {"proposer": lambda: [UniformProposer(), _OwnProposer()]}),
        ("_OwnPartitioner is not compiled", {"partitioner": _OwnPartitioner}),
        ("_OwnPerfModel is not compiled", {"performance_model": _OwnPerfModel}),
    ],
)
def test_what_is_not_compiled_is_said_once_and_left_to_torchrec(said, factories, caplog):
    built = problem()
    if "performance_model" in factories:
        factories = {"performance_model": lambda: _OwnPerfModel(built.topology)}
    planner = assert_same(built, warned=True, **factories)
    decided(planner, built)
    module = "planners.embedding.drop_in.planner"
    said_here = [each for each in caplog.records if each.name == module]
    assert [each.getMessage() for each in said_here] == [
        f"The search is torchrec's own, since {said}."
    ]
    assert said_here[0].levelno == logging.WARNING
    assert type(planner._enumerator) is EmbeddingEnumerator


def test_another_size_of_perf_model_is_left_to_torchrec(caplog):
    larger = problem(gpus=16).topology
    assert_same(problem(), warned=True, performance_model=lambda: NoopPerfModel(larger))
    assert "the perf model is for another number of ranks" in caplog.text


def test_the_scale_up_proposer_finds_what_it_finds_with_torchrec():
    """It changes options and asks the enumerator about them, and so must get torchrec's own."""
    assert_same(problem(), warned=True, proposer=EmbeddingOffloadScaleupProposer)


def test_key_value_kernels_are_left_to_torchrec(caplog):
    built = problem("synthetic[tables=2,seed=2]")
    constraints = {
        table.name: ParameterConstraints(
            compute_kernels=["fused", "key_value"], sharding_types=["column_wise"], min_partition=16
        )
        for table in built.tables
    }
    built = replace(built, constraints=constraints)
    planner = assert_same(built, warned=True)
    assert "the placement of kernel key_value is not compiled" in caplog.text
    assert decided(planner, built)[0] == decided(planner, built)[0]


class _HalfByteEstimator(EmbeddingStorageEstimator):
    def estimate(self, sharding_options, sharder_data_map):
        super().estimate(sharding_options, sharder_data_map)
        for option in sharding_options:
            for shard in option.shards:
                shard.storage.hbm += 0.5


def test_half_bytes_are_left_to_torchrec(caplog):
    built = problem()

    def enumerator():
        perf = EmbeddingPerfEstimatorFactory.create(
            DEFAULT_PERF_ESTIMATOR, topology=built.topology, constraints=built.constraints
        )
        storage = _HalfByteEstimator(topology=built.topology, constraints=built.constraints)
        return EmbeddingEnumerator(built.topology, 512, built.constraints, [perf, storage])

    assert_same(built, warned=True, enumerator=enumerator)
    assert "an estimate is not in whole bytes" in caplog.text


def test_a_rating_that_torchrec_does_not_share_leaves_the_search_to_torchrec(monkeypatch):
    built = problem()
    rate = NoopPerfModel.rate
    monkeypatch.setattr(NoopPerfModel, "rate", lambda self, plan: rate(self, plan) * (1 + 2**-52))
    expected = decided(new_planner(built, EmbeddingShardingPlanner), built)
    planner = new_planner(built)
    with pytest.warns(DistrustedSearch, match=r"^The search is torchrec's own, since .* rates"):
        assert decided(planner, built) == expected
    assert decided(planner, built) == decided(planner, built), "it is said once"


def fake_certified(monkeypatch, outcome):
    warm_up()  # with the real one
    asked = []
    module = ModuleType("certified")
    module.best_plan = lambda space, devices, deadline, seed: (
        asked.append((deadline.seconds, seed)) or outcome
    )
    monkeypatch.setitem(sys.modules, "planners.embedding.search.best_plan.search", module)
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


def test_the_timeout_limits_the_search_for_the_best_plan_too(monkeypatch):
    asked = fake_certified(monkeypatch, NotFound(None, None, 0))
    built = problem()
    new_planner(built, mode="best-plan", timeout_seconds=3).plan(built.module, built.sharders)
    assert asked == [(3, 0)]


def test_where_the_certified_search_finds_nothing_the_plan_is_the_same(monkeypatch):
    fake_certified(monkeypatch, NotFound(None, None, 0))
    built = problem()
    assert decided(new_planner(built, mode="best-plan"), built) == decided(
        new_planner(built), built
    )


def test_it_plans_collectively(tmp_path):
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


@pytest.mark.parametrize("gpus", [8, 16])
@pytest.mark.parametrize("memory", ["roomy", "tight"])
def test_the_observer_counts_as_it_does_for_torchrec(memory, gpus):
    built = problem(f"synthetic[tables=6,seed=2,memory={memory}]", gpus)
    upstream, compiled = (
        check(FAMILY, FAMILY.find(name), built, SystemClock()) for name in ("upstream", "compiled")
    )
    assert compiled.fingerprint == upstream.fingerprint
    for counter in ("proposals", "partitions"):
        assert compiled.counters[counter] == upstream.counters[counter] > 0
    assert compiled.counters["plan_copies"] == 1
    assert compiled.phases["arrays"] > 0
    assert compiled.phases["search"] > 0
    assert compiled.phases["partition"] == 0
    assert 0 < compiled.counters["estimates"] < upstream.counters["estimates"]
    options = EmbeddingEnumerator(built.topology, 512, built.constraints).enumerate(
        built.module, built.sharders
    )
    assert upstream.counters["estimates"] == sum(len(option.shards) for option in options)


def test_the_observer_tells_how_far_the_enumeration_is(monkeypatch: pytest.MonkeyPatch):
    built = problem()
    recorder = Recorder()
    told = []
    estimate = EmbeddingStorageEstimator.estimate

    def estimate_and_look(self, sharding_options, *args, **kwargs):
        estimate(self, sharding_options, *args, **kwargs)
        told.append((recorder.progress(), len(sharding_options)))

    monkeypatch.setattr(EmbeddingStorageEstimator, "estimate", estimate_and_look)
    with observe(recorder), recorder.call():
        new_planner(built, EmbeddingShardingPlanner).plan(built.module, built.sharders)
    (progress, options), *_ = told
    assert progress == Progress(options, options, "options estimated", more_follows=True)
    assert recorder.progress().unit == "proposals"


def test_the_observer_counts_repeated_proposals_too():
    built = problem()
    counters = []
    for planner_type in (EmbeddingShardingPlanner, Planner):
        planner = new_planner(built, planner_type, proposer=None)
        recorder = Recorder()
        with observe(recorder), recorder.call():
            planner.plan(built.module, built.sharders)
            assert recorder.progress().done == recorder.counters["proposals"]
        counters.append([recorder.counters[name] for name in ("proposals", "partitions")])
    assert counters[0] == counters[1]
    assert counters[0][0] > counters[0][1]


def test_the_observer_counts_what_is_left_to_torchrec():
    built = problem()
    counters = []
    for planner_type in (EmbeddingShardingPlanner, Planner):
        planner = new_planner(built, planner_type, proposer=_OwnProposer())
        recorder = Recorder()
        with observe(recorder), recorder.call():
            planner.plan(built.module, built.sharders)
        counters.append([recorder.counters[name] for name in ("proposals", "partitions")])
    assert counters[0] == counters[1]
    assert counters[0][0] > 0


def test_the_observer_leaves_the_estimator_alone():
    before = EmbeddingPerfEstimator.estimate
    with observe(Recorder()):
        assert EmbeddingPerfEstimator.estimate is not before
    assert EmbeddingPerfEstimator.estimate is before
