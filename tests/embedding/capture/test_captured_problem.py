"""A captured planning problem gives the same plan as the live planner."""

import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
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
from random_models import collection
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import GreedyProposer, UniformProposer
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

from harness.measuring.request import Request
from harness.model.errors import NotApplicable
from harness.model.ids import WorkloadSpec
from harness.planning.plan import Baseline, baseline, plan
from harness.topologies.lookup import placed_on
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


@pytest.mark.long
@settings(SLOW, max_examples=8)
@given(seed=st.integers(0, 2**32), hash_names=st.booleans())
def test_variants_decide_as_the_live_planner_with_their_settings(path, seed, hash_names):
    live = random_script(Random(seed), most_tables=4)
    captured(live, path, hash_names)
    problem = built(path)
    live.arguments = {
        name: make
        for name, make in live.arguments.items()
        if name in ("storage_reservation", "batch_size")
    }
    for variants, proposer in (
        (("upstream", "compiled"), GreedyProposer),
        (("default", "default-compiled"), lambda: None),
        (("uniform",), UniformProposer),
    ):
        live.arguments["proposer"] = proposer
        was = plan_live(live)
        for variant in variants:
            now = plan_again(problem, variant)
            assert (now.placed, now.error) == (was.placed, was.error), variant


@pytest.mark.parametrize(
    ("machines", "planner", "variant"),
    [
        ((None, None), "The captured planner", "as-captured"),
        (("dgx_h100", 8), "TorchRec", "default"),
    ],
)
def test_a_plan_is_compared_with_the_plan_that_the_job_had(path, machines, planner, variant):
    """The live planner's plan is compared with, or torchrec's default one on other machines."""
    tables = {f"t{number}": (400_000 * (number + 1), 64) for number in range(6)}
    captured(script(collection(tables)), path)
    workload = WorkloadSpec(str(path))
    request = Request(FAMILY, workload, placed_on(FAMILY, workload, *machines), ("uniform",))
    rated = {
        name: quality(request.build(), FAMILY.find(name).prepared(request.build()).run())
        for name in (variant, "upstream")
    }
    value, greedy = (rated[name]["max_rank_ms"] for name in rated)
    assert value < greedy
    assert baseline(request, plan(request)) == Baseline(planner, pytest.approx(value))


def test_without_a_live_planner_to_repeat_the_default_proposers_are_compared(path):
    """A planner of one's own cannot plan again, so torchrec's default proposers stand in."""
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


HASH_SEEDS = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from captured_models import bags, captured, script
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import ParameterConstraints


def in_the_order_of_a_set(filtered):
    # as torchrec did up to 1.8.0
    return lambda *arguments: list(set(filtered(*arguments)))


for name in ("_filter_sharding_types", "_filter_compute_kernels"):
    method = getattr(EmbeddingEnumerator, name)
    setattr(EmbeddingEnumerator, name, in_the_order_of_a_set(method))
live = script(bags(tables=6))
types = ["row_wise", "table_wise", "column_wise", "table_row_wise"]
live.constraints = {
    f"table_{number}": ParameterConstraints(types, ["fused", "fused_uvm", "fused_uvm_caching"])
    for number in range(6)
}
print(captured(live, Path(sys.argv[1])).fingerprint)
"""


@pytest.mark.long
def test_the_order_of_options_is_the_live_planners_whatever_its_hash_seed(tmp_path):
    here, found = Path(__file__).parent, {}
    for seed in ("1", "2"):
        path = tmp_path / f"problem_{seed}.json"
        done = subprocess.run(
            [sys.executable, "-c", HASH_SEEDS, str(path), str(here), str(here.parent)],
            capture_output=True, text=True, check=False, timeout=120,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found[seed] = done.stdout.split()[-1]
        assert plan_again(built(path)).fingerprint == found[seed]
    orders = {
        json.dumps(json.loads((tmp_path / f"problem_{seed}.json").read_text())["options"])
        for seed in found
    }
    assert len(orders) > 1


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
