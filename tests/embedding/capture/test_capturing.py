"""Capturing records the last plan, and works with a user's own planners and modules."""

import json
import warnings

import pytest
from captured_models import bags, built, captured, plan_again, plan_live, script
from random_models import collection
from torch import nn
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from harness.model.errors import NotApplicable, UsageError
from harness.model.ids import WorkloadSpec
from harness.planning.capture import capture
from planners.embedding import FAMILY
from planners.embedding.drop_in.planner import Planner
from planners.embedding.plan_cache.cache import PlanCache
from planners.embedding.planning import document

pytestmark = pytest.mark.filterwarnings("ignore:HeuristicalStorageReservation is known")


def test_shardbenchs_own_planner_is_captured_once_and_made_again(path):
    live = script()
    planner = live.planner(lambda **given: Planner(**given, mode="best-plan", seed=3))
    was = captured(live, path, planner=planner)
    problem = built(path)
    assert problem.live.planner.own == {"mode": "best-plan", "search_seconds": None, "seed": 3}
    assert plan_again(problem) == was


class Hierarchical(EmbeddingShardingPlanner):
    """A planner that plans each child of a model separately."""

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


def test_a_planner_that_plans_in_parts_is_captured_as_a_whole(path):
    model = nn.Module()
    model.one, model.other = bags("one", 3), bags("other", 4)
    live = script(model)
    with capture("embedding", path):
        live.planner(Hierarchical).plan(model, live.sharders())
    problem = built(path)
    assert len(problem.tables) == 7
    assert problem.live.decision == "not known"
    with pytest.raises(NotApplicable, match="Hierarchical, which plans in its own way"):
        plan_again(problem)
    assert plan_again(problem, "default").fingerprint == plan_live(live).fingerprint


class DearerRows(EmbeddingPerfEstimator):
    """An estimator that multiplies the compute time of row-wise options by ten."""

    def estimate(self, sharding_options, sharder_data_map):
        super().estimate(sharding_options, sharder_data_map)
        for option in sharding_options:
            if option.sharding_type == "row_wise":
                for shard in option.shards:
                    shard.perf.fwd_compute *= 10


def test_ones_own_estimates_are_those_of_the_file(path):
    live = script()
    live.arguments["enumerator"] = lambda: EmbeddingEnumerator(
        live.topology,
        512,
        estimator=[DearerRows(live.topology), EmbeddingStorageEstimator(live.topology)],
    )
    was = captured(live, path)
    problem = built(path)
    assert problem.options.fed
    assert plan_again(problem) == was
    compiled, upstream = (plan_again(problem, name) for name in ("compiled", "upstream"))
    assert compiled == upstream
    with pytest.raises(UsageError, match="estimates are not those of the installed torchrec"):
        built(path, "dgx_h100", 16)


def test_one_that_torchrec_does_not_enumerate_is_refused_by_name(path):
    captured(script(), path)
    content = json.loads(path.read_text())
    content["options"][0]["shards"][0][1] += 1
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError, match="in other shards"):
        built(path)
    content["options"][0]["compute_kernel"] = "fused_of_tomorrow"
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError, match=r"'fused_of_tomorrow', .* of table 'table_0', which the"):
        built(path)


def test_the_last_plan_counts(path):
    first, last = script(bags("first", 2)), script(bags("last", 3))
    with capture("embedding", path):
        plan_live(first)
        plan_live(last)
    assert [table.name for table in built(path).tables] == ["last_0", "last_1", "last_2"]


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
def test_nothing_to_write_is_warned_of(path, body, said):
    with pytest.warns(UserWarning, match=said), capture("embedding", path):
        body()
    assert not path.exists()


class OwnBags(EmbeddingBagCollection):
    """A user's own subclass of torchrec's module."""


def test_a_module_of_ones_own_is_named(path):
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

    class OwnSharder(EmbeddingBagCollectionSharder):
        @property
        def module_type(self):
            return OwnBags

    model = nn.Module()
    model.own = collection({"t": (9, 4)}, OwnBags)
    live = script(model)
    with (
        pytest.warns(UserWarning, match=r"Module 'own' is a test_capturing.OwnBags; only "),
        capture("embedding", path),
    ):
        live.planner().plan(model, [OwnSharder()])


def test_a_process_of_a_job_that_does_not_plan_writes_nothing(path, monkeypatch):
    import torchrec.distributed.planner.planners as planners

    live = script()
    monkeypatch.setattr(  # as on rank 1, which waits for what rank 0 broadcasts
        planners, "invoke_on_rank_and_broadcast_result", lambda *_: None
    )
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


def test_a_plan_from_a_cache_is_captured(path, tmp_path):
    """A hit enumerates no options; the replay enumerates them again, and finds the plan."""
    live = script()
    for use in ("", "hit"):
        planner = live.planner(
            lambda **given: Planner(**given, cache=PlanCache(tmp_path / "plans"))
        )
        was = captured(live, path, planner=planner)
        assert planner.from_cache == use
        assert plan_again(built(path)) == was


def test_tables_of_one_name_are_planned_but_in_no_plan_file(path):
    model = nn.Module()
    model.one, model.other = bags(tables=2), bags(tables=3)
    live = script(model)
    was = captured(live, path)
    problem = built(path)
    assert plan_again(problem) == was
    plan = FAMILY.find("upstream").prepared(problem).run()
    with pytest.raises(UsageError, match="table_0 is in 2 modules"):
        document(problem, plan)


def test_a_captured_workload_takes_no_parameters(path):
    captured(script(), path)
    workload = WorkloadSpec(str(path), {"tables": "3"})
    for ask in (FAMILY.label, FAMILY.brings):
        with pytest.raises(UsageError, match="takes no parameters"):
            ask(workload)
