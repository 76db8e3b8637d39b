"""A captured planning problem gives the same plan as the live planner, and moves to machines."""

import logging
from random import Random

import numpy as np
import pytest
import torch
from captured_models import bags, built, captured, plan_again, plan_live, random_script, script
from hypothesis import HealthCheck, given, settings, strategies as st
from random_models import META, collection
from torch import distributed, nn
from torchrec.distributed import types
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import storage_reservations as reserving
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import GreedyProposer
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingOffloadStats,
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from harness.model.errors import NotApplicable, UsageError
from harness.planning.capture import capture
from planners.embedding import FAMILY
from planners.embedding.decision import validate
from planners.embedding.planning import PLANNING, document
from planners.embedding.quality import quality
from planners.embedding.remedies.remedies import remedies

pytestmark = pytest.mark.filterwarnings("ignore:HeuristicalStorageReservation is known")


class OwnProposer(GreedyProposer):
    """A user's own proposer."""


class OwnReservation(reserving.FixedPercentageStorageReservation):
    """A user's own reservation."""


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32), hash_names=st.booleans())
def test_it_is_planned_again_as_it_was(path, seed, hash_names):
    """The replay, in torchrec's code or compiled, finds the live planner's plan or its error."""
    live = random_script(Random(seed))
    was = captured(live, path, hash_names=hash_names)
    problem = built(path)
    assert hash_names or problem.constraints == live.constraints
    for variant in ("as-captured", "captured-compiled"):
        now = plan_again(problem, variant)
        assert (now.placed, now.error) == (was.placed, was.error)
        if was.fingerprint:
            assert problem.live.decision == now.fingerprint
            assert hash_names or now.fingerprint == was.fingerprint


def test_other_machines_may_be_asked_for(path):
    """There the problem has their memory and torchrec's usual planner, as without a live one."""
    captured(script(bags(rows=500_000)), path)
    assert PLANNING.baseline(built(path)) == ("The captured planner", "captured-compiled")
    moved = built(path, "dgx_h100", 16)
    assert moved.topology.world_size == 16
    hbm = moved.topology.devices[0].storage.hbm
    assert set(moved.usable_hbm) == {int(0.9 * hbm)}
    assert quality(moved, FAMILY.find("upstream").prepared(moved).run())["max_rank_ms"] > 0
    with pytest.raises(NotApplicable):
        plan_again(moved)
    usual = ("TorchRec", "default-compiled")
    assert PLANNING.baseline(moved) == usual
    captured(script(proposer=OwnProposer), path)
    assert PLANNING.baseline(built(path)) == usual


def test_all_settings_of_caches_are_made_again(path):
    """The statistics of a cache, its passes and the sizes of key-value stores are in the file."""
    live = script()
    stats = EmbeddingOffloadStats(0.25, 9, torch.tensor([5.0, 3.0, 2.0]), 7)
    constraints = ParameterConstraints(
        pooling_factors=[np.float64(2.5)],
        cache_params=types.CacheParams(
            reserved_memory=1.5,
            precision=DataType.FP16,
            prefetch_pipeline=True,
            stats=stats,
            multipass_prefetch_config=types.MultiPassPrefetchConfig(4, 16),
        ),
        key_value_params=types.KeyValueParams(l2_cache_size=3, max_l1_cache_size=None),
        device_group="cuda",
    )
    live.constraints = {"table_1": constraints}
    was = captured(live, path)
    problem = built(path)
    made = problem.constraints["table_1"]
    again = made.cache_params.stats
    assert (again.cacheability, again.expected_lookups, again.height) == (0.25, 9, 7)
    assert torch.equal(again.hist, stats.hist)
    made.cache_params.stats = stats
    assert made == constraints
    assert plan_again(problem) == was


def test_the_order_of_options_is_the_live_planners(path, monkeypatch):
    """TorchRec up to 1.8.0 enumerates in the order of a set, which differs between processes."""
    live = script(bags(tables=6))
    kinds = ["row_wise", "table_wise", "column_wise", "table_row_wise"]
    kernels = ["fused", "fused_uvm", "fused_uvm_caching"]
    live.constraints = {f"table_{n}": ParameterConstraints(kinds, kernels) for n in range(6)}
    usual = plan_live(live)
    with monkeypatch.context() as patch:
        for name in ("_filter_sharding_types", "_filter_compute_kernels"):
            filtered = getattr(EmbeddingEnumerator, name)
            patch.setattr(
                EmbeddingEnumerator, name, lambda *given, filtered=filtered: filtered(*given)[::-1]
            )
        was = captured(live, path)
    assert was != usual
    assert plan_again(built(path)) == was


def test_a_users_own_estimates_are_those_of_the_file(path):
    """Variants search with the estimates in the file, on the machines of the capture alone."""
    live = script()
    slow = Topology(4, "cuda", hbm_mem_bw=1e6, local_world_size=2, created_by_factory=True)
    estimators = [EmbeddingPerfEstimator(slow), EmbeddingStorageEstimator(live.topology)]
    live.arguments["enumerator"] = lambda: EmbeddingEnumerator(
        live.topology, 512, estimator=estimators
    )
    was = captured(live, path)
    problem = built(path)
    assert plan_again(problem) == was
    assert plan_again(problem, "compiled") == plan_again(problem, "upstream")
    with pytest.raises(UsageError, match="estimates are not those of the installed torchrec"):
        built(path, "dgx_h100", 16)


_BOTH = {"HBM reserved", "HBM per GPU"}


@pytest.mark.parametrize(
    ("reservation", "helps"),
    [
        (lambda: reserving.FixedPercentageStorageReservation(0.99), _BOTH),
        (lambda: reserving.HeuristicalStorageReservation(0.5, 6.0, 2**30), _BOTH),
        (lambda: OwnReservation(0.99), {"HBM reserved"}),  # known for the captured machines alone
    ],
)
def test_a_captured_problem_has_the_remedies_of_its_job(path, reservation, helps):
    """More memory helps only if the job's reservation can be computed for it."""
    fused = ParameterConstraints(compute_kernels=["fused"])
    live = script(bags(tables=4), storage_reservation=reservation)
    live.constraints = {f"table_{number}": fused for number in range(4)}
    assert captured(live, path).error
    outcome = remedies(built(path), 10.0)
    for remedy in outcome.remedies:
        validate(remedy.problem, remedy.decision)
        assert remedy.gap < 0.02
    names = {remedy.name for remedy in outcome.remedies}
    assert names & _BOTH == helps
    obstacle = "its storage reservation OwnReservation is neither torchrec's nor shardbench's"
    assert (obstacle in "\n".join(outcome.findings)) == ("HBM per GPU" not in helps)


def test_capturing_changes_nothing(path):
    """The captured plan is the plan without a capture, and torchrec's classes are as before."""
    methods = (
        (EmbeddingShardingPlanner, "plan"),
        (EmbeddingEnumerator, "enumerate"),
        (reserving.FixedPercentageStorageReservation, "reserve"),
    )
    before = [vars(kind)[name] for kind, name in methods]
    was = captured(script(), path)
    assert plan_live(script()) == was
    assert [vars(kind)[name] for kind, name in methods] == before


class Hierarchical(EmbeddingShardingPlanner):
    """A planner that plans each child of a model separately."""

    def plan(self, module, sharders):
        plans = [script(child).planner().plan(child, sharders).plan for child in module.children()]
        made = super().plan(next(module.children()), sharders)
        made.plan = {name: table for plan in plans for name, table in plan.items()}
        return made


def test_a_planner_that_plans_in_parts_is_captured_as_a_whole(path):
    """Only variants of torchrec plan its problem, since its own way is unknown."""
    model = nn.Module()
    model.one, model.other = bags("one", 3), bags("other", 4)
    live = script(model)
    captured(live, path, live.planner(Hierarchical))
    problem = built(path)
    assert len(problem.tables) == 7
    assert problem.live.decision == "not known"
    with pytest.raises(NotApplicable, match="Hierarchical, which plans in its own way"):
        plan_again(problem)
    assert plan_again(problem, "default").fingerprint == plan_live(live).fingerprint


def test_the_last_plan_counts(path):
    """Of several plans in a capture, the last is in the file."""
    with capture("embedding", path):
        plan_live(script(bags("first", 2)))
        plan_live(script(bags("last", 3)))
    assert [table.name for table in built(path).tables] == ["last_0", "last_1", "last_2"]


class OwnBags(EmbeddingBagCollection):
    """A user's own subclass of torchrec's module."""


class OwnSharder(EmbeddingBagCollectionSharder):
    """A sharder of a user's own modules."""

    module_type = OwnBags


class OwnStatistics(types.CacheStatistics):
    """A user's own statistics of a cache."""

    expected_lookups = cacheability = 1.0

    def expected_miss_rate(self, clf):
        return 0.5


def own_module():
    model = nn.Module()
    model.own = collection({"t": (9, 4)}, OwnBags)
    script(model).planner().plan(model, [OwnSharder()])


def own_statistics():
    live = script()
    cached = types.CacheParams(stats=OwnStatistics())
    live.constraints = {"table_0": ParameterConstraints(cache_params=cached)}
    plan_live(live)


def virtual_table():
    config = EmbeddingBagConfig(name="t", num_embeddings=9, embedding_dim=4, use_virtual_table=True)
    plan_live(script(EmbeddingBagCollection([config], device=META)))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (lambda: None, "no EmbeddingShardingPlanner planned inside"),
        (lambda: plan_live(script(nn.Linear(2, 2))), "there was no table to place"),
        (own_module, r"Module 'own' is a test_captured_problem.OwnBags; only "),
        (own_statistics, "statistics of class OwnStatistics; only torchrec's"),
        (virtual_table, "Table 't' is virtual, which is not supported"),
    ],
)
def test_what_cannot_be_captured_is_warned_of(path, body, said):
    """The script goes on without a file, and the warning names the part."""
    with pytest.warns(UserWarning, match=said), capture("embedding", path):
        body()
    assert not path.exists()


@pytest.mark.filterwarnings("error")
def test_a_process_of_a_job_that_does_not_plan_writes_nothing(path, monkeypatch):
    """Only the process that plans writes a file; the others do not warn."""
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_rank", lambda: 1)
    with capture("embedding", path):
        pass
    assert not path.exists()


def test_tables_of_one_name_are_planned_but_in_no_plan_file(path):
    """Tables in several modules may have one name, by which no job could load its plan."""
    model = nn.Module()
    model.one, model.other = bags(tables=2), bags(tables=3)
    live = script(model)
    was = captured(live, path)
    problem = built(path)
    assert plan_again(problem) == was
    plan = FAMILY.find("upstream").prepared(problem).run()
    with pytest.raises(UsageError, match="table_0 is in 2 modules"):
        document(problem, plan)


def test_a_replay_leaves_no_filter_on_the_root_logger(path, caplog):
    """TorchRec's message on replicated tables is dropped while planning, and only then."""
    live = script()
    replicated = ParameterConstraints(sharding_types=["data_parallel"])
    live.constraints = {f"table_{number}": replicated for number in range(8)}
    captured(live, path)
    assert "Sharding spec not found" in caplog.text
    caplog.clear()
    filters = [*logging.getLogger().filters]
    plan_again(built(path))
    assert logging.getLogger().filters == filters
    assert "Sharding spec not found" not in caplog.text
