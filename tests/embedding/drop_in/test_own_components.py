"""A user's own components are used; with a component that is not compiled, torchrec searches."""

import logging
from dataclasses import replace
from math import nan

import pytest
import torch
from hypothesis import given, settings, strategies as st
from planned import OwnProposer, assert_same, decided, new_planner, problem, randoms
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.planners import (
    EmbeddingShardingPlanner,
    validate_compute_kernels,
)
from torchrec.distributed.planner.proposers import (
    EmbeddingOffloadScaleupProposer,
    GreedyProposer,
    UniformProposer,
)
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    PlanLoader,
    PlannerError,
    ShardingOption,
)
from torchrec.distributed.types import CacheParams, CacheStatistics, KeyValueParams, ShardingType

from planners.embedding.best_plan.torchrec_rules import _is_accepted
from planners.embedding.drop_in.compiled_search import CompiledSearch
from planners.embedding.drop_in.planner import Planner
from planners.embedding.search.outcome import NotFound
from planners.embedding.variants.rungs import OptionsEnumerator, WhollyCopiedOption


class _Loader(PlanLoader):
    def __init__(self, plan):
        self.load = lambda: plan and {option.storage_hash(): option for option in plan}

    load = None
    plan_context_hash = get_plan_id = lambda self: None


class _OwnPartitioner(GreedyPerfPartitioner):
    pass


class _OwnPerfModel(NoopPerfModel):
    pass


class _HalfBytes(EmbeddingEnumerator):
    def enumerate(self, module, sharders):
        options = super().enumerate(module, sharders)
        options[0].shards[0].storage.hbm += 0.5
        return options


def test_an_enumerator_of_the_users_own_keeps_its_options():
    built = problem()
    given_out = []

    class Enumerator(EmbeddingEnumerator):
        def enumerate(self, module, sharders):
            given_out.extend(super().enumerate(module, sharders))
            return given_out

    assert_same(built, enumerator=lambda: Enumerator(built.topology, 512, built.constraints))
    assert {shard.rank for option in given_out for shard in option.shards} == {None}


def test_options_of_the_users_own_class_stay_what_they_are():
    def enumerator():
        made = OptionsEnumerator(built.topology, 512, built.constraints)
        made.option = WhollyCopiedOption
        return made

    built = problem("synthetic[tables=3,seed=2]")
    planner = assert_same(built, enumerator=enumerator)
    assert {type(option) for option in planner._best_plan} == {WhollyCopiedOption}


def test_callbacks_get_the_plan():
    planner = new_planner(problem(), callbacks=[lambda plan: plan[:1]])
    assert len(decided(planner, problem())[0][1]) == 1


def test_a_loaded_plan_is_not_searched_for(monkeypatch):
    """A loader without a plan leaves the search as it is."""
    built = problem()
    planner = assert_same(built, plan_loader=lambda: _Loader(None))
    plan = planner.plan(built.module, built.sharders).plan
    again = new_planner(built, plan_loader=_Loader(planner._best_plan))
    monkeypatch.setattr(CompiledSearch, "load", None)
    assert again.plan(built.module, built.sharders).plan == plan
    assert again._num_proposals == 0


LEFT_TO_TORCHREC = {
    "OwnProposer is not compiled": lambda built: {"proposer": [UniformProposer(), OwnProposer()]},
    # It changes options and asks the enumerator about them, and so must get torchrec's own.
    "EmbeddingOffloadScaleupProposer is not compiled": lambda built: {
        "proposer": EmbeddingOffloadScaleupProposer()
    },
    "_OwnPartitioner is not compiled": lambda built: {"partitioner": _OwnPartitioner()},
    "_OwnPerfModel is not compiled": lambda built: {
        "performance_model": _OwnPerfModel(built.topology)
    },
    "the perf model is for another number of ranks": lambda built: {
        "performance_model": NoopPerfModel(problem(gpus=16).topology)
    },
    "an estimate is not in whole bytes": lambda built: {
        "enumerator": _HalfBytes(built.topology, 512, built.constraints)
    },
    "the placement of kernel key_value by columns is not compiled": lambda built: {
        "constraints": {
            table.name: ParameterConstraints(
                compute_kernels=["fused", "key_value"],
                sharding_types=["column_wise"],
                min_partition=16,
            )
            for table in built.tables
        }
    },
}


@pytest.mark.parametrize("reason", LEFT_TO_TORCHREC)
def test_what_is_not_compiled_is_said_once_and_left_to_torchrec(reason, caplog):
    built, components = problem(), LEFT_TO_TORCHREC[reason]
    compiled, upstream = (
        new_planner(built, kind, **components(built))
        for kind in (Planner, EmbeddingShardingPlanner)
    )
    assert decided(compiled, built) == decided(upstream, built)
    decided(compiled, built)
    (said,) = (record for record in caplog.records if record.name == "shardbench")
    assert said.getMessage() == f"The search is torchrec's own, since {reason}."
    assert said.levelno == logging.WARNING


def test_the_best_plan_needs_no_compiled_proposer():
    built = problem()
    own = new_planner(built, mode="best-plan", proposer=[UniformProposer(), OwnProposer()])
    assert decided(own, built) == decided(new_planner(built, mode="best-plan"), built)
    assert own.bound_ms > 0


@pytest.mark.parametrize("proposer", [GreedyProposer, OwnProposer])
def test_without_a_best_plan_the_proposers_propose(proposer, monkeypatch, caplog):
    """If the search finds nothing and proves nothing, the plan is that of mode same-plan."""
    built = problem()
    monkeypatch.setattr(
        "planners.embedding.best_plan.search.best_plan", lambda *_: NotFound(None, None, 0)
    )
    own = new_planner(built, mode="best-plan", proposer=proposer())
    upstream = new_planner(built, EmbeddingShardingPlanner, proposer=proposer())
    assert decided(own, built) == decided(upstream, built)
    reason = "the search for the best plan finds none, and OwnProposer is not"
    assert (reason in caplog.text) == (proposer is OwnProposer)


class _MissRates(CacheStatistics):
    """A cache that misses less the larger it is."""

    expected_lookups = 200_000.0
    cacheability = 0.5

    def expected_miss_rate(self, clf):
        return 1 - clf


def test_larger_caches_that_rate_better_are_taken():
    built = problem("synthetic[tables=6,seed=2,memory=roomy]")
    constraints = {
        name: replace(
            given,
            compute_kernels=["fused_uvm_caching"],
            cache_params=CacheParams(load_factor=0.1, stats=_MissRates()),
        )
        for name, given in built.constraints.items()
    }
    upstream, own = (
        new_planner(
            built, kind, constraints=constraints, proposer=EmbeddingOffloadScaleupProposer(), **mode
        )
        for kind, mode in ((EmbeddingShardingPlanner, {}), (Planner, {"mode": "best-plan"}))
    )
    for planner in (upstream, own):
        planner.plan(built.module, built.sharders)
    assert own.max_rank_ms <= upstream._perf_model.rate(upstream._best_plan)
    factors = {option.cache_params.load_factor for option in own._best_plan}
    assert max(filter(None, factors)) > 0.1, "larger than the constraints say"
    assert own.gap is None or own.gap >= 0


@pytest.mark.parametrize("proposer", [GreedyProposer, EmbeddingOffloadScaleupProposer])
def test_a_proof_that_no_plan_fits_needs_no_proposer(proposer):
    built = problem()
    for device in built.topology.devices:
        device.storage.hbm = device.storage.ddr = 2**21
    reservation = FixedPercentageStorageReservation(0.0)
    planner = new_planner(
        built,
        mode="best-plan",
        proposer=proposer(),
        remedy_seconds=0,
        storage_reservation=reservation,
    )
    with pytest.raises(PlannerError, match="Unable to find a plan") as caught:
        planner.plan(built.module, built.sharders)
    assert caught.value.__notes__ == ["It is proven that no plan fits."]


@given(random=randoms)
@settings(max_examples=15, deadline=None)
def test_key_value_and_virtual_tables_are_planned_as_by_torchrec(random):
    """Plan, counts and error are torchrec's, and the best plan is not slower."""
    kernels = ["fused", "key_value"], ["dram_virtual_table"], ["ssd_virtual_table", "fused"]
    built = problem("synthetic[tables=4,seed=2]")
    constraints = {
        table.name: ParameterConstraints(
            compute_kernels=random.choice(kernels),
            sharding_types=random.choice([["table_wise", "row_wise"], ["table_row_wise"]]),
            key_value_params=KeyValueParams(max_l1_cache_size=random.choice([1, 64])),
            pooling_factors=[random.choice([1.0, 20.0])],
        )
        for table in built.tables
    }
    for device in built.topology.devices:
        device.storage.hbm = random.choice([2**28, 2**31])
        device.storage.ssd = 2**40
    built = replace(built, constraints=constraints)
    plain, best = new_planner(built, check=True), new_planner(built, mode="best-plan", check=True)
    upstream = decided(new_planner(built, EmbeddingShardingPlanner), built)
    assert decided(plain, built) == upstream
    decided(best, built)
    assert not plain._warned
    assert not best._warned
    if plain.max_rank_ms is not None:
        assert best.max_rank_ms <= plain.max_rank_ms


@given(
    kernel=st.sampled_from([*EmbeddingComputeKernel]).map(lambda kernel: kernel.value),
    kind=st.sampled_from([*ShardingType]).map(lambda kind: kind.value),
    factor=st.sampled_from([None, -1.0, 0.0, 0.2, 1.0, 2.0, nan]),
)
def test_the_best_plan_may_have_the_options_that_torchrec_accepts(kernel, kind, factor):
    """The rule is that of torchrec's `validate_compute_kernels`."""
    tensor, module = torch.empty(1, 1, device="meta"), ("bags", torch.nn.Module())
    cache = CacheParams(load_factor=factor)
    option = ShardingOption(
        "table", tensor, module, [1.0], 1, kind, "device", kernel, [], cache_params=cache
    )
    try:
        validate_compute_kernels([option])
    except PlannerError:
        assert not _is_accepted(option)
    else:
        assert _is_accepted(option)
