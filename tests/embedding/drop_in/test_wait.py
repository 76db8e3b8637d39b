"""Until the search is compiled, torchrec's own search finds the same plan."""

import itertools
from collections.abc import Iterator

import pytest
from compared import come_to
from hypothesis import HealthCheck, given, settings, strategies as st
from planned import assert_same, new_planner, problem
from random_models import random_model
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import DynamicProgrammingProposer, GreedyProposer

from planners.embedding.drop_in import compiled_search
from planners.embedding.drop_in.compiled_search import CompiledSearch
from planners.embedding.drop_in.planner import Planner
from planners.embedding.search import warm_up

NEVER = 10**9


@pytest.fixture
def searches(monkeypatch) -> Iterator[list[int]]:
    """Pretend that no kernel is loaded; return a list that gets each search's number of tables."""
    asked: list[int] = []
    search = CompiledSearch.search

    def counted(self, space, devices):
        asked.append(space.tables)
        return search(self, space, devices)

    monkeypatch.setattr(CompiledSearch, "search", counted)
    monkeypatch.setattr(warm_up, "are_loaded", lambda modules: False)
    return asked


def compiled_after(proposals: int, monkeypatch) -> None:
    """Make the compilation finish after this number of proposals."""
    asked = itertools.count()
    monkeypatch.setattr(warm_up, "advance", lambda modules: next(asked) >= proposals)
    monkeypatch.setattr(compiled_search, "SMALL", 0)


@pytest.mark.parametrize("after", [0, 1, 7, NEVER])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    random=st.randoms(use_true_random=False),
    proposer=st.sampled_from(
        [lambda: None, lambda: GreedyProposer(threshold=4), DynamicProgrammingProposer]
    ),
    timeout=st.sampled_from([None, 600]),
)
def test_the_plan_is_torchrecs_whenever_the_search_is_compiled(
    after, searches, monkeypatch, random, proposer, timeout
):
    compiled_after(after, monkeypatch)
    model = random_model(random)
    ours, theirs = (
        planner(**model.components(), proposer=proposer(), timeout_seconds=timeout)
        for planner in (Planner, EmbeddingShardingPlanner)
    )
    expected = come_to(theirs, model.module, model.sharders)
    assert come_to(ours, model.module, model.sharders) == expected
    assert ours._fault is None


@pytest.mark.parametrize(("after", "searched"), [(0, [5]), (7, [5]), (NEVER, [])])
def test_the_compiled_search_takes_over_once_it_is_there(after, searched, searches, monkeypatch):
    compiled_after(after, monkeypatch)
    assert_same(problem())
    assert searches == searched


@pytest.mark.parametrize("loaded", [False, True])
def test_a_small_problem_is_searched_by_what_is_loaded(loaded, searches, monkeypatch):
    """It compiles nothing."""
    monkeypatch.setattr(warm_up, "are_loaded", lambda modules: loaded)
    if not loaded:
        monkeypatch.setattr(warm_up, "advance", None)
    assert_same(problem())
    assert searches == [5] * loaded


def test_where_nothing_can_be_compiled_torchrecs_search_goes_on(searches, monkeypatch, caplog):
    def fail(modules):
        raise warm_up.CannotCompile("no room")

    compiled_after(NEVER, monkeypatch)
    monkeypatch.setattr(warm_up, "advance", fail)
    assert_same(problem(), warned=True)
    assert searches == []
    assert "no room" in caplog.text


def test_a_proposer_is_heard_as_if_it_were_new(searches, monkeypatch):
    compiled_after(NEVER, monkeypatch)
    built = problem()
    planner = new_planner(built)
    plans = [planner.plan(built.module, built.sharders).plan for _ in range(2)]
    assert plans[0] == plans[1]
