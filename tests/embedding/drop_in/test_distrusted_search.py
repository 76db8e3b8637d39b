"""If the compiled search fails or finds a wrong plan, the planner warns once and torchrec plans."""

from dataclasses import replace

import numpy as np
import pytest
from planned import decided, new_planner, problem
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner

from planners.embedding.drop_in.compiled_search import CompiledSearch
from planners.embedding.drop_in.planner import DistrustedSearch
from planners.embedding.search.estimation import Estimation
from planners.embedding.search.options import Estimates
from planners.embedding.search.outcome import Found, NotFound
from planners.embedding.search.space import Placement


def assert_distrusted(built, reason: str, **arguments) -> None:
    """Assert that a planner warns once of a fault, and then always decides as torchrec does."""
    expected = decided(new_planner(built, EmbeddingShardingPlanner), built)
    planner = new_planner(built, **arguments)
    with pytest.warns(DistrustedSearch, match=f"search is torchrec's own, since {reason}") as said:
        assert decided(planner, built) == expected
    assert len(said) == 1
    assert decided(planner, built)[0] == expected[0], "and goes on so, in silence"


def falsify(monkeypatch, change) -> None:
    """Patch the compiled search to return `change(outcome, space)` instead of a found plan."""
    search = CompiledSearch.search

    def changed(self, space, devices):
        outcome = search(self, space, devices)
        return change(outcome, space) if isinstance(outcome, Found) else outcome

    monkeypatch.setattr(CompiledSearch, "search", changed)


def on_rank(rank):
    return lambda outcome, _: replace(outcome, ranks=np.full_like(outcome.ranks, rank))


def with_a_table_twice(outcome, space):
    again = outcome.options[:1]
    count = len(space.estimates_of(again[0]))
    options = np.append(outcome.options, again)
    return replace(outcome, options=options, ranks=np.append(outcome.ranks, outcome.ranks[:count]))


FALSE = {
    "another rating": lambda outcome, _: replace(outcome, rating=outcome.rating * (1 + 1e-15)),
    "one rank": on_rank(0),
    "no rank": on_rank(-1),
    "a rank too many": on_rank(8),
    "a table less": lambda outcome, _: replace(outcome, options=outcome.options[:-1]),
    "a table twice": with_a_table_twice,
}


@pytest.mark.parametrize("mode", ["same-plan", "best-plan"])
@pytest.mark.parametrize("change", FALSE.values(), ids=FALSE)
def test_a_wrong_plan_is_caught(monkeypatch, change, mode):
    falsify(monkeypatch, change)
    assert_distrusted(problem(), "[^.]", mode=mode, check=True)


def test_other_ranks_of_the_same_rating_are_caught_in_mode_same_plan(monkeypatch):
    """All shards of options placed by device are on the next rank."""

    def rolled(outcome, space):
        counts = np.diff(space.first_shard)[outcome.options]
        free = np.repeat(space.placement[outcome.options] == Placement.DEVICE, counts)
        return replace(outcome, ranks=np.where(free, (outcome.ranks + 1) % 8, outcome.ranks))

    falsify(monkeypatch, rolled)
    assert_distrusted(problem(), ".*(other ranks|rates|must be on rank)", check=True)


def test_wrong_estimates_are_caught(monkeypatch):
    get = Estimates.get

    def cheap(self, number):
        storage, perf = get(self, number)
        perf.fwd_compute = perf.fwd_compute * 0.5
        return storage, perf

    monkeypatch.setattr(Estimates, "get", cheap)
    monkeypatch.setattr(Estimation, "_differs", lambda self, *_: False)
    assert_distrusted(problem(), "torchrec estimates table .* differently", check=True)


def test_without_a_check_a_rating_that_torchrec_does_not_share_is_caught(monkeypatch):
    falsify(monkeypatch, FALSE["another rating"])
    assert_distrusted(problem(), "the compiled search rates its plan .* ms, torchrec")


def test_a_search_that_fails_is_named(monkeypatch):
    monkeypatch.setattr(CompiledSearch, "flatten", lambda self, options: 1 / 0)
    assert_distrusted(problem(), ".*ZeroDivisionError: division by zero")


def test_a_proposal_that_only_torchrec_places_is_caught(monkeypatch):
    falsify(monkeypatch, lambda plan, _: NotFound(plan.options, plan.options, 1))
    assert_distrusted(problem(), "torchrec places a proposal")
