"""Until the search is compiled, torchrec's own search finds the same plan."""

import itertools

import pytest
from compared import come_to
from hypothesis import HealthCheck, given, settings, strategies as st
from planned import assert_same, problem, randoms
from random_models import random_model
from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
    SortBy,
)
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import DynamicProgrammingProposer, GreedyProposer

from planners.embedding.drop_in import compiled_search
from planners.embedding.drop_in.compiled_search import CompiledSearch
from planners.embedding.drop_in.planner import Planner
from planners.embedding.search import warm_up

NEVER = 10**9
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


@pytest.fixture
def compiled(monkeypatch):
    """Return a function that pretends that compiling ends after so many proposals."""

    def after(proposals: int, small: int = 0) -> None:
        asked = itertools.count()
        monkeypatch.setattr(warm_up, "are_loaded", lambda modules: False)
        monkeypatch.setattr(warm_up, "advance", lambda modules: next(asked) >= proposals)
        monkeypatch.setattr(compiled_search, "SMALL", small)

    return after


@pytest.mark.parametrize("after", [None, 0, 7, NEVER])
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    random=randoms,
    proposer=st.sampled_from(PROPOSERS),
    partitioner=st.sampled_from(PARTITIONERS),
    timeout=st.sampled_from([None, 600]),
)
def test_the_plan_is_torchrecs_whenever_the_search_is_compiled(
    after, compiled, random, proposer, partitioner, timeout
):
    """None is for a loaded search; the plan passes the check, and a second one is the same."""
    if after is not None:
        compiled(after)
    model = random_model(random)
    ours, theirs = (
        planner(
            **model.components(),
            **more,
            proposer=proposer(),
            partitioner=partitioner(),
            timeout_seconds=timeout,
        )
        for planner, more in ((Planner, {"check": True}), (EmbeddingShardingPlanner, {}))
    )
    expected = come_to(theirs, model.module, model.sharders)
    assert come_to(ours, model.module, model.sharders) == expected
    # Where no device has HBM, torchrec's own search cuts it into bins.
    without_hbm = proposer is DynamicProgrammingProposer and model.topology.compute_device == "cpu"
    assert ours._warned == (without_hbm and expected[0][0] is not RuntimeError)
    assert ours._fault is None
    if not ours._warned:
        assert come_to(ours, model.module, model.sharders) == expected


@pytest.mark.parametrize(
    ("after", "small", "searches"),
    [(0, 0, [5]), (7, 0, [5]), (NEVER, 0, []), (0, compiled_search.SMALL, [])],
)
def test_the_compiled_search_takes_over_once_it_is_there(
    after, small, searches, compiled, monkeypatch
):
    """Small problems, here of five tables, do not wait for it."""
    tables, search = [], CompiledSearch.search

    def counted(self, space, devices):
        tables.append(space.tables)
        return search(self, space, devices)

    monkeypatch.setattr(CompiledSearch, "search", counted)
    compiled(after, small)
    assert_same(problem())
    assert tables == searches


def test_where_nothing_can_be_compiled_torchrecs_search_goes_on(compiled, monkeypatch, caplog):
    """One warning says why."""

    def fail(modules):
        raise warm_up.CannotCompile("no room")

    compiled(NEVER)
    monkeypatch.setattr(warm_up, "advance", fail)
    assert_same(problem(), warned=True)
    assert "no room" in caplog.text
