"""A captured planning problem is planned again as it was, whatever was in it."""

import gzip
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from captured_models import (
    META,
    Script,
    built,
    captured,
    plan_again,
    plan_live,
    random_script,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import GreedyProposer, UniformProposer
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingOffloadStats,
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.storage_reservations import (
    FixedPercentageStorageReservation,
    HeuristicalStorageReservation,
)
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.distributed.types import (
    BoundsCheckMode,
    CacheAlgorithm,
    CacheParams,
    KeyValueParams,
    MultiPassPrefetchConfig,
)
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from harness.model.errors import NotApplicable, UsageError
from harness.model.ids import WorkloadSpec
from harness.planning.capture import capture
from planners.embedding import FAMILY
from planners.embedding.drop_in.planner import Planner
from planners.embedding.plan_files.loader import JsonPlanLoader
from planners.embedding.planning import document
from planners.embedding.quality import quality

pytestmark = pytest.mark.filterwarnings("ignore:HeuristicalStorageReservation is known")
SLOW = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def bags(prefix: str = "table", tables: int = 8, rows: int = 50_000) -> EmbeddingBagCollection:
    return EmbeddingBagCollection(
        device=META,
        tables=[
            EmbeddingBagConfig(
                name=f"{prefix}_{number}",
                num_embeddings=rows * (1 + number % 3),
                embedding_dim=64,
                feature_names=[f"{prefix}_feature_{number}"],
            )
            for number in range(tables)
        ],
    )


def script(module: nn.Module | None = None, hbm: int = 2**30, **arguments: object) -> Script:
    topology = Topology(4, "cuda", hbm_cap=hbm, local_world_size=2, created_by_factory=True)
    arguments.setdefault("storage_reservation", lambda: FixedPercentageStorageReservation(0.1))
    return Script(module or bags(), topology, {}, arguments)


def live_decision(path: Path) -> str:
    problem = built(path)
    assert problem.live is not None
    return problem.live.decision


@SLOW
@given(seed=st.integers(0, 2**32), hash_names=st.booleans())
def test_it_is_planned_again_as_it_was(tmp_path, seed, hash_names):
    random = Random(seed)
    live = random_script(random)
    path = tmp_path / "problem.json.gz"
    was = captured(live, path, hash_names)
    now = plan_again(built(path))
    assert now.placed == was.placed
    assert now.error == was.error
    if was.fingerprint:
        assert live_decision(path) == now.fingerprint
    if not hash_names:
        assert now.fingerprint == was.fingerprint


@pytest.mark.long
@settings(SLOW, max_examples=8)
@given(seed=st.integers(0, 2**32), hash_names=st.booleans())
def test_variants_decide_as_the_live_planner_with_their_settings(tmp_path, seed, hash_names):
    live = random_script(Random(seed), most_tables=4)
    path = tmp_path / "problem.json"
    captured(live, path, hash_names)
    problem = built(path)
    live.arguments = {
        name: make
        for name, make in live.arguments.items()
        if name in ("storage_reservation", "batch_size")
    }
    for variants, proposer in (
        (("upstream", "compiled"), GreedyProposer),
        (("default",), lambda: None),
        (("uniform",), UniformProposer),
    ):
        live.arguments["proposer"] = proposer
        was = plan_live(live)
        for variant in variants:
            now = plan_again(problem, variant)
            assert (now.placed, now.error) == (was.placed, was.error), variant


def test_capturing_changes_nothing(tmp_path):
    before = EmbeddingShardingPlanner.plan, EmbeddingEnumerator.enumerate
    was = captured(script(), tmp_path / "problem.json")
    assert plan_live(script()) == was
    assert (EmbeddingShardingPlanner.plan, EmbeddingEnumerator.enumerate) == before


def test_where_there_is_no_plan_there_is_none_again_for_the_same_reason(tmp_path):
    path = tmp_path / "problem.json"
    live = script(hbm=1000)
    live.topology = Topology(2, "cuda", hbm_cap=1000, ddr_cap=1000, created_by_factory=True)
    was = captured(live, path)
    assert "insufficient storage" in was.error
    for variant in ("as-captured", "upstream", "compiled"):
        assert plan_again(built(path), variant).error == was.error
    assert live_decision(path) == "none, PlannerError"


def test_a_reservation_that_leaves_nothing_is_refused_again(tmp_path):
    path = tmp_path / "problem.json"
    live = script(
        hbm=1000, storage_reservation=lambda: HeuristicalStorageReservation(0.1, 6.0, 10**6)
    )
    was = captured(live, path)
    assert "negative available hbm storage" in was.error
    assert plan_again(built(path)).error == was.error


def test_constraints_of_every_kind_are_made_again(tmp_path):
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
    was = captured(live, tmp_path / "problem.json")
    problem = built(tmp_path / "problem.json")
    made = problem.constraints["table_1"]
    made_stats = made.cache_params.stats
    assert (made_stats.cacheability, made_stats.expected_lookups, made_stats.height) == (0.25, 9, 7)
    assert torch.equal(made_stats.hist, stats.hist)
    made.cache_params.stats = stats
    assert made == held
    assert plan_again(problem) == was


HASH_SEEDS = """
import sys
sys.path[:0] = sys.argv[2:]
from test_captured_problem import *
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator


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
    found = {}
    for seed in ("1", "2"):
        path = tmp_path / f"problem_{seed}.json"
        done = subprocess.run(
            [sys.executable, "-c", HASH_SEEDS, str(path), str(Path(__file__).parent)],
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


@pytest.mark.parametrize("name", ["problem.json", "problem.json.gz"])
def test_hashed_names_are_nowhere_in_the_file(tmp_path, name):
    model = nn.Module()
    model.marker_outer = nn.ModuleDict({"marker_inner": bags("marker_table")})
    live = script(model)
    live.constraints = {
        "marker_table_1": ParameterConstraints(
            feature_names=["marker_feature"], device_group="marker_group"
        ),
        "marker_table_2": ParameterConstraints(["marker_type", "table_wise"]),
        "marker_unknown": ParameterConstraints(),
    }

    class MarkerProposer(GreedyProposer):
        pass

    class MarkerPlanner(EmbeddingShardingPlanner):
        def plan(self, *args, **kwargs):
            return super().plan(*args, **kwargs)

    live.arguments["proposer"] = lambda: [MarkerProposer(), GreedyProposer()]
    captured(live, tmp_path / name, hash_names=True, planner=live.planner(MarkerPlanner))
    written = (tmp_path / name).read_bytes()
    text = gzip.decompress(written) if name.endswith(".gz") else written
    assert b"marker" not in (written + text).lower()
    captured(live, tmp_path / "open.json")
    assert b"marker_table_1" in (tmp_path / "open.json").read_bytes()


def test_an_errors_text_is_not_in_a_file_with_hashed_names(tmp_path):
    live = script(bags("marker"))
    live.constraints = {"marker_1": ParameterConstraints(["grid_shard"], ["dense"])}
    path = tmp_path / "problem.json"
    with (
        pytest.raises(RuntimeError, match="marker_1"),
        capture("embedding", path, hash_names=True),
    ):
        live.planner().plan(live.module, live.sharders())
    assert b"marker" not in path.read_bytes()
    prepared = FAMILY.find("as-captured").prepared(built(path))
    with pytest.raises(RuntimeError, match="No available sharding type"):
        prepared.run()
    assert live_decision(path) == "none, RuntimeError"


def test_no_weights_are_in_a_file(tmp_path):
    model = EmbeddingBagCollection(
        tables=[
            EmbeddingBagConfig(name="t", num_embeddings=20, embedding_dim=4, feature_names=["f"])
        ],
        device=torch.device("cpu"),
    )
    with torch.no_grad():
        model.embedding_bags["t"].weight.fill_(0.123456)
    captured(script(model), tmp_path / "problem.json")
    text = (tmp_path / "problem.json").read_text()
    assert "0.1234" not in text
    assert len(text) < 100_000


def test_shardbenchs_own_planner_is_captured_once_and_made_again(tmp_path):
    path = tmp_path / "problem.json"
    live = script()
    planner = live.planner(lambda **given: Planner(**given, mode="best-plan", seed=3))
    was = captured(live, path, planner=planner)
    problem = built(path)
    assert problem.live.planner.own == {"mode": "best-plan", "search_seconds": None, "seed": 3}
    assert plan_again(problem) == was


class Hierarchical(EmbeddingShardingPlanner):
    """Plans each child of a model by itself."""

    def plan(self, module, sharders):
        plans = [
            EmbeddingShardingPlanner(
                topology=self._topology, stats=[], debug=False,
                storage_reservation=FixedPercentageStorageReservation(0.1),
            ).plan(child, sharders)
            for child in module.children()
        ]  # fmt: skip
        plans[0].plan.update(plans[1].plan)
        return plans[0]


def test_a_planner_that_plans_in_parts_is_captured_as_a_whole(tmp_path):
    model = nn.Module()
    model.one, model.other = bags("one", 3), bags("other", 4)
    live = script(model)
    path = tmp_path / "problem.json"
    with capture("embedding", path):
        live.planner(Hierarchical).plan(model, live.sharders())
    problem = built(path)
    assert len(problem.tables) == 7
    assert problem.live.decision == "not known"
    with pytest.raises(NotApplicable, match="Hierarchical, which plans in its own way"):
        plan_again(problem)
    assert plan_again(problem, "default").fingerprint == plan_live(live).fingerprint


class DearerRows(EmbeddingPerfEstimator):
    """Thinks that row-wise sharding takes ten times as long."""

    def estimate(self, sharding_options, sharder_data_map):
        super().estimate(sharding_options, sharder_data_map)
        for option in sharding_options:
            if option.sharding_type == "row_wise":
                for shard in option.shards:
                    shard.perf.fwd_compute *= 10


def test_ones_own_estimates_are_those_of_the_file(tmp_path):
    live = script()
    live.arguments["enumerator"] = lambda: EmbeddingEnumerator(
        live.topology,
        512,
        estimator=[DearerRows(live.topology), EmbeddingStorageEstimator(live.topology)],
    )
    path = tmp_path / "problem.json"
    was = captured(live, path)
    problem = built(path)
    assert problem.options.fed
    assert plan_again(problem) == was
    compiled, upstream = (plan_again(problem, name) for name in ("compiled", "upstream"))
    assert compiled == upstream
    with pytest.raises(UsageError, match="estimates are not those of the installed torchrec"):
        built(path, "dgx_h100", 16)


def test_one_that_torchrec_does_not_enumerate_is_refused_by_name(tmp_path):
    path = tmp_path / "problem.json"
    captured(script(), path)
    held = json.loads(path.read_text())
    held["options"][0]["compute_kernel"] = "fused_of_tomorrow"
    path.write_text(json.dumps(held))
    with pytest.raises(UsageError, match=r"'fused_of_tomorrow', .* of table 'table_0', which the"):
        built(path)
    captured(script(), path)
    held = json.loads(path.read_text())
    held["options"][0]["shards"][0][1] += 1
    path.write_text(json.dumps(held))
    with pytest.raises(UsageError, match="in other shards"):
        built(path)


def test_other_machines_may_be_asked_for(tmp_path):
    path = tmp_path / "problem.json"
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


def test_the_last_plan_counts(tmp_path):
    path = tmp_path / "problem.json"
    first, last = script(bags("first", 2)), script(bags("last", 3))
    with capture("embedding", path):
        plan_live(first)
        plan_live(last)
    assert [table.name for table in built(path).tables] == ["last_0", "last_1", "last_2"]


def test_a_body_that_raises_leaves_its_file(tmp_path):
    path = tmp_path / "problem.json"
    with pytest.raises(ZeroDivisionError), capture("embedding", path):  # noqa: PT012 - inside is the body
        plan_live(script())
        _ = 1 / 0
    assert len(built(path).tables) == 8


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (lambda: None, "no EmbeddingShardingPlanner planned inside"),
        (
            lambda: script().planner().plan(nn.Linear(2, 2), script().sharders()),
            "there was no table to place",
        ),
    ],
    ids=["no plan", "no table"],
)
def test_nothing_to_write_is_warned_of(tmp_path, body, said):
    path = tmp_path / "problem.json"
    with pytest.warns(UserWarning, match=said), capture("embedding", path):
        body()
    assert not path.exists()


class OwnBags(EmbeddingBagCollection):
    """Somebody's own kind of module."""


def test_a_module_of_ones_own_is_named(tmp_path):
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

    class OwnSharder(EmbeddingBagCollectionSharder):
        @property
        def module_type(self):
            return OwnBags

    model = nn.Module()
    model.own = OwnBags(
        device=META,
        tables=[
            EmbeddingBagConfig(name="t", num_embeddings=9, embedding_dim=4, feature_names=["f"])
        ],
    )
    live = script(model)
    with (
        pytest.warns(UserWarning, match=r"Module 'own' is a OwnBags; only .* can be captured"),
        capture("embedding", tmp_path / "problem.json"),
    ):
        live.planner().plan(model, [OwnSharder()])


def test_a_process_of_a_job_that_does_not_plan_writes_nothing(tmp_path, monkeypatch):
    import torchrec.distributed.planner.planners as planners

    live = script()
    monkeypatch.setattr(  # as on rank 1, which waits for what rank 0 broadcasts
        planners, "invoke_on_rank_and_broadcast_result", lambda *_: None
    )
    path = tmp_path / "problem.json"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with capture("embedding", path):
            live.planner().collective_plan(live.module, live.sharders(), object())
    assert not path.exists()
    monkeypatch.setattr(
        planners, "invoke_on_rank_and_broadcast_result", lambda pg, rank, plan, *given: plan(*given)
    )
    with capture("embedding", path):
        live.planner().collective_plan(live.module, live.sharders(), object())
    assert len(built(path).tables) == 8


def test_a_plan_of_the_replay_is_loaded_by_the_live_model(tmp_path):
    model = nn.Module()
    model.sparse = nn.Module()
    model.sparse.bags = bags("user", 3)
    model.sequences = EmbeddingCollection(
        device=META,
        tables=[
            EmbeddingConfig(name="item", num_embeddings=999, embedding_dim=32, feature_names=["i"])
        ],
    )
    live = script(model)
    captured(live, tmp_path / "problem.json")
    problem = built(tmp_path / "problem.json")
    plan = FAMILY.find("certified").prepared(problem).run()
    FAMILY.work.validate(problem, plan)
    (tmp_path / "plan.json").write_text(json.dumps(document(problem, plan)))
    planner = live.planner(
        lambda **given: EmbeddingShardingPlanner(
            **given, plan_loader=JsonPlanLoader(tmp_path / "plan.json", model, 4)
        )
    )
    loaded = plan_live(live, planner)
    ranks = {option.fqn: [shard.rank for shard in option.shards] for option in plan.options}
    assert {
        option.fqn: [shard.rank for shard in option.shards] for option in planner._best_plan
    } == ranks
    assert not loaded.error


def test_tables_of_one_name_are_planned_but_in_no_plan_file(tmp_path):
    model = nn.Module()
    model.one, model.other = bags(tables=2), bags(tables=3)
    live = script(model)
    was = captured(live, tmp_path / "problem.json")
    problem = built(tmp_path / "problem.json")
    assert plan_again(problem) == was
    plan = FAMILY.find("upstream").prepared(problem).run()
    with pytest.raises(UsageError, match="table_0 is in 2 modules"):
        document(problem, plan)


def test_a_captured_workload_takes_no_parameters(tmp_path):
    captured(script(), tmp_path / "problem.json")
    workload = WorkloadSpec(str(tmp_path / "problem.json"), {"tables": "3"})
    for ask in (FAMILY.label, FAMILY.brings):
        with pytest.raises(UsageError, match="takes no parameters"):
            ask(workload)
