"""A captured planning problem gives the same plan as the live planner."""

import logging
from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch
from captured_models import (
    bags,
    built,
    captured,
    live_decision,
    plan_again,
    plan_live,
    random_script,
    script,
)
from hypothesis import HealthCheck, given, settings, strategies as st
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import GreedyProposer
from torchrec.distributed.planner.shard_estimators import EmbeddingOffloadStats
from torchrec.distributed.planner.storage_reservations import HeuristicalStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.distributed.types import (
    BoundsCheckMode,
    CacheAlgorithm,
    CacheParams,
    KeyValueParams,
    MultiPassPrefetchConfig,
)
from torchrec.modules.embedding_configs import DataType

from harness.model.errors import NotApplicable
from planners.embedding import FAMILY
from planners.embedding.planning import PLANNING
from planners.embedding.quality import quality

pytestmark = pytest.mark.filterwarnings("ignore:HeuristicalStorageReservation is known")


class OwnProposer(GreedyProposer):
    """A user's own proposer."""


SLOW = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SLOW
@given(seed=st.integers(0, 2**32), hash_names=st.booleans())
def test_it_is_planned_again_as_it_was(tmp_path, seed, hash_names):
    random = Random(seed)
    live = random_script(random)
    path = tmp_path / "problem.json.gz"
    was = captured(live, path, hash_names)
    now = plan_again(built(path))
    for same in (now, plan_again(built(path), "captured-compiled")):
        assert same.placed == was.placed
        assert same.error == was.error
    if was.fingerprint:
        assert live_decision(path) == now.fingerprint
    if not hash_names:
        assert now.fingerprint == was.fingerprint


def test_a_plan_is_compared_with_the_planner_of_the_job_if_it_can_plan_again(path):
    captured(script(), path)
    assert PLANNING.baseline(built(path)) == ("The captured planner", "captured-compiled")
    assert PLANNING.baseline(built(path, "dgx_h100", 8)) == ("TorchRec", "default-compiled")
    captured(script(proposer=OwnProposer), path)
    assert PLANNING.baseline(built(path)) == ("TorchRec", "default-compiled")


def test_capturing_changes_nothing(path):
    before = EmbeddingShardingPlanner.plan, EmbeddingEnumerator.enumerate
    was = captured(script(), path)
    assert plan_live(script()) == was
    assert (EmbeddingShardingPlanner.plan, EmbeddingEnumerator.enumerate) == before


def test_where_there_is_no_plan_there_is_none_again_for_the_same_reason(path):
    reserving = lambda: HeuristicalStorageReservation(0.1, 6.0, 10**6)  # noqa: E731
    was = captured(script(hbm=1000, storage_reservation=reserving), path)
    assert "negative available hbm storage" in was.error
    assert plan_again(built(path)).error == was.error
    live = script(hbm=1000)
    live.topology = Topology(2, "cuda", hbm_cap=1000, ddr_cap=1000, created_by_factory=True)
    was = captured(live, path)
    assert "insufficient storage" in was.error
    for variant in ("as-captured", "upstream", "compiled"):
        assert plan_again(built(path), variant).error == was.error
    assert live_decision(path) == "none, PlannerError"


def test_constraints_of_every_kind_are_made_again(path):
    live = script()
    stats = EmbeddingOffloadStats(0.25, 9, torch.tensor([5.0, 3.0, 2.0]), 7)
    held = ParameterConstraints(
        sharding_types=["table_wise"],
        compute_kernels=["fused", "fused_uvm_caching"],
        pooling_factors=[np.float64(2.5)],
        cache_params=CacheParams(
            algorithm=CacheAlgorithm.LRU,
            load_factor=0.3,
            reserved_memory=1.5,
            precision=DataType.FP16,
            prefetch_pipeline=True,
            stats=stats,
            multipass_prefetch_config=MultiPassPrefetchConfig(4, 16),
        ),
        bounds_check_mode=BoundsCheckMode.FATAL,
        output_dtype=DataType.BF16,
        key_value_params=KeyValueParams(l2_cache_size=3, max_l1_cache_size=None),
        device_group="cuda",
    )
    live.constraints = {"table_1": held}
    was = captured(live, path)
    problem = built(path)
    made = problem.constraints["table_1"]
    made_stats = made.cache_params.stats
    assert (made_stats.cacheability, made_stats.expected_lookups, made_stats.height) == (0.25, 9, 7)
    assert torch.equal(made_stats.hist, stats.hist)
    made.cache_params.stats = stats
    assert made == held
    assert plan_again(problem) == was


def test_the_order_of_options_is_the_live_planners(path, monkeypatch):
    """TorchRec up to 1.8.0 enumerates in the order of a set, which differs between processes."""
    live = script(bags(tables=6))
    types = ["row_wise", "table_wise", "column_wise", "table_row_wise"]
    kernels = ["fused", "fused_uvm", "fused_uvm_caching"]
    live.constraints = {f"table_{n}": ParameterConstraints(types, kernels) for n in range(6)}
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


def test_other_machines_may_be_asked_for(path):
    live = script(bags(rows=500_000))
    captured(live, path)
    moved = built(path, "dgx_h100", 16)
    assert moved.topology.world_size == 16
    assert moved.live is None
    hbm = moved.topology.devices[0].storage.hbm
    assert set(moved.usable_hbm) == {int(0.9 * hbm)}
    assert quality(moved, FAMILY.find("upstream").prepared(moved).run())["max_rank_ms"] > 0
    with pytest.raises(NotApplicable):
        plan_again(moved)


def test_planning_a_captured_problem_leaves_no_filter_on_the_root_logger(tmp_path, caplog):
    """TorchRec's message on replicated tables is dropped while planning, and only then."""
    path = tmp_path / "problem.json.gz"
    names = [f"table_{number}" for number in range(8)]
    replicated = ParameterConstraints(sharding_types=["data_parallel"])
    captured(replace(script(), constraints=dict.fromkeys(names, replicated)), path)
    assert "Sharding spec not found" in caplog.text
    caplog.clear()
    filters = [*logging.getLogger().filters]
    plan_again(built(path))
    assert logging.getLogger().filters == filters
    assert "Sharding spec not found" not in caplog.text
