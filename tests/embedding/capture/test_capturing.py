"""Capturing records the last plan, and works with a user's own planners and modules."""

from functools import partial

import pytest
from captured_models import bags, built, captured, plan_again, plan_live, script
from random_models import collection
from torch import distributed, nn
from torchrec.distributed.embedding_tower_sharding import EmbeddingTowerSharder
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.types import CacheParams, CacheStatistics
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.modules.embedding_tower import EmbeddingTower

from harness.model.errors import NotApplicable, UsageError
from harness.planning.capture import capture
from planners.embedding import FAMILY
from planners.embedding.drop_in.planner import Planner
from planners.embedding.plan_cache.cache import PlanCache
from planners.embedding.planning import document


def test_capturing_changes_nothing(path):
    """The captured plan is the plan without a capture, and torchrec's classes are as before."""
    methods = (
        (EmbeddingShardingPlanner, "plan"),
        (EmbeddingEnumerator, "enumerate"),
        (FixedPercentageStorageReservation, "reserve"),
    )
    before = [vars(kind)[name] for kind, name in methods]
    was = captured(script(), path)
    assert plan_live(script()) == was
    assert [vars(kind)[name] for kind, name in methods] == before


def test_shardbenchs_own_planner_is_captured_and_made_again_also_with_a_cache(path, tmp_path):
    """A hit enumerates no options; the replay enumerates them again, and finds the plan."""
    live = script()
    for use in ("", "hit"):
        planner = live.planner(
            partial(Planner, mode="best-plan", seed=3, cache=PlanCache(tmp_path / "plans"))
        )
        was = captured(live, path, planner)
        assert planner.from_cache == use
        problem = built(path)
        assert problem.live.planner.own == {"mode": "best-plan", "search_seconds": None, "seed": 3}
        assert plan_again(problem) == was


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


class OwnStatistics(CacheStatistics):
    """A user's own statistics of a cache."""

    expected_lookups = cacheability = 1.0

    def expected_miss_rate(self, clf):
        return 0.5


def tower():
    model = nn.Module()
    model.inner = EmbeddingTower(collection({"t": (9, 4)}), nn.Linear(1, 1))
    script(model).planner().plan(model, [EmbeddingTowerSharder()])


def own_statistics():
    live = script()
    cached = CacheParams(stats=OwnStatistics())
    live.constraints = {"table_0": ParameterConstraints(cache_params=cached)}
    plan_live(live)


def virtual_table():
    config = EmbeddingBagConfig(name="t", num_embeddings=9, embedding_dim=4, use_virtual_table=True)
    plan_live(script(EmbeddingBagCollection([config], device="meta")))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (lambda: None, "no EmbeddingShardingPlanner planned inside"),
        (lambda: plan_live(script(nn.Linear(2, 2))), "there was no table to place"),
        (tower, r"Module 'inner' is a torchrec\..*EmbeddingTower; only "),
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
