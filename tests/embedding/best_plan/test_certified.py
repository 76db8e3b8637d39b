"""The certified search is no worse than torchrec's proposals, near the bound, and repeatable."""

import math

import numpy as np
import pytest
from certified import DEFAULT, JumpingClock, proposed, rating, standing_still
from compared import come_to, components
from hypothesis import assume, given, settings, strategies as st
from random_options import random_case
from small_problems import (
    devices,
    fit,
    held_by,
    least_rating,
    option,
    options_with_ranks,
    problems,
)
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import GreedyProposer, UniformProposer
from torchrec.distributed.planner.types import Storage

from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.proofs import ladder, proofs
from planners.embedding.best_plan.search import best_plan
from planners.embedding.drop_in.planner import Planner
from planners.embedding.same_plan.bin_proposer import BinProposer
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Placement, devices_of, search_space

# One plan has several ratings: torchrec adds in the order in which it was proposed.
LAST_BITS = 1e-12


def briefly(space, placed_on, seed=0):
    return best_plan(space, placed_on, Deadline(0.01, standing_still), seed)


def no_grid_without_a_host(problem):
    """Return whether a problem has a complete host, or no grid option, which would need one.

    Other problems are left to torchrec, which cannot place a grid option there either.
    """
    space, placed_on = problem
    return placed_on.hosts > 0 or not (space.placement == Placement.HOSTS).any()


small_problems = problems(overfull=True).filter(no_grid_without_a_host)


@given(small_problems, st.integers(0, 3))
def test_a_plan_is_legal_and_between_the_bound_and_what_is_proposed(problem, seed):
    space, placed_on = problem
    found = briefly(space, placed_on, seed)
    assert rating(found) <= rating(proposed(*problem)) * (1 + LAST_BITS)
    for proposer in (UniformProposer, GreedyProposer, BinProposer):
        assert rating(found) <= rating(proposed(*problem, proposer)) * (1 + LAST_BITS)
    assume(isinstance(found, Found))
    held = held_by(space, placed_on, found.options, found.ranks)
    assert fit(held, placed_on)
    assert found.rating == pytest.approx(held[:, 0].max(), rel=1e-12)
    assert ladder(candidates(*problem))[-1].milliseconds <= found.rating * (1 + 1e-9)


def test_a_proposed_plan_stands_where_the_search_comes_to_none_as_good():
    """With table 0 on rank 0 the even option looks better, so the best plan is a proposed one."""
    options = [
        option(0, "device", (0, 0, 3.0)),
        option(1, "uniform", (0, 0, 1.0), (0, 0, 0.0), (0, 0, 0.0), (0, 0, 3.0)),
        option(1, "uniform", *[(0, 0, 1.0)] * 4),
    ]
    problem = search_space(options), devices(*[(9, 0)] * 4)
    assert briefly(*problem).rating == proposed(*problem).rating == least_rating(*problem) == 3.0


@settings(max_examples=30)
@given(small_problems)
def test_on_large_problems_a_plan_is_found_wherever_one_is_proposed(problem):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planners.embedding.best_plan.search._MOST_PROPOSED", 0)
        found = briefly(*problem)
    assert rating(found) <= rating(proposed(*problem, UniformProposer)) * (1 + LAST_BITS)
    if isinstance(found, NotFound):
        for proposer in (*DEFAULT, BinProposer):
            assert isinstance(proposed(*problem, proposer), NotFound)


def test_what_is_proposed_is_tried_at_last_where_the_search_has_found_nothing(monkeypatch):
    monkeypatch.setattr("planners.embedding.best_plan.search._MOST_PROPOSED", 0)
    options = [option(0, "device", (1, 0, 1.0)), option(1, "uniform", (1, 0, 1.0), (1, 0, 1.0))]
    problem = search_space(options), devices((9, 0), (9, 0))
    assert isinstance(proposed(*problem, UniformProposer), NotFound)
    assert best_plan(*problem, Deadline(1, JumpingClock(2))).rating == 2.0


def without_ssd(case):
    """Return a case without SSD, because problems with SSD are left to torchrec's proposals."""
    for each in case.options:
        for shard in each.shards:
            shard.storage = Storage(shard.storage.hbm, shard.storage.ddr, 0)
    return case


@given(st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_a_planner_finds_no_worse_a_plan_or_none_for_the_same_reason(random, towers, with_ssd):
    case = random_case(random, most_tables=4, towers=towers)
    if not with_ssd:
        without_ssd(case)
    theirs = EmbeddingShardingPlanner(**components(case))
    expected = come_to(theirs)
    ours = Planner(mode="best-plan", search_seconds=0.01, **components(case))
    ours._clock = standing_still
    actual = come_to(ours)
    if ours._best_plan is None:
        assert actual == expected
        return
    model = NoopPerfModel(case.topology)
    if theirs._best_plan is not None:
        limit = model.rate(theirs._best_plan) * (1 + LAST_BITS)
        assert model.rate(ours._best_plan) <= limit
    held = np.zeros((case.topology.world_size, 5))
    for shard in (shard for each in ours._best_plan for shard in each.shards):
        storage = shard.storage
        held[shard.rank] += (0, storage.hbm, storage.ddr, storage.ssd, 1)
    assert fit(held, devices_of(case.topology))


def test_what_fits_in_sum_alone_is_proven_to_have_no_plan():
    """The memory of two ranks is enough for three tables in sum, but no rank fits two tables."""
    space = search_space([option(table, "device", (6, 0, 1.0)) for table in range(3)])
    problem = space, devices((9, 9), (9, 9))
    assert least_rating(*problem) == math.inf
    assert next(proofs(candidates(*problem))).milliseconds < math.inf
    found = briefly(*problem)
    assert isinstance(found, NotFound)
    assert found.last.tolist() == found.smallest.tolist() == [0, 1, 2]
    assert found.bound == ladder(candidates(*problem))[-1].milliseconds == math.inf


def test_without_an_option_for_a_table_nothing_is_proposed():
    space = search_space([option(0, "device", (1, 0, 1.0)), option(1, "device", (99, 0, 1.0))])
    assert best_plan(space, devices((9, 9), (9, 9))) == NotFound(None, None, 0, math.inf)


def test_ssd_is_not_filled_more_than_it_holds():
    options = [
        option(table, "device", shard)
        for table in range(4)
        for shard in ((0, 0, 1.0), (4, 0, 10.0 + table))
    ]
    for each in options[::2]:
        each.shards[0].storage = Storage(0, 0, 6)
    space, placed_on = search_space(options), devices((10, 8), (10, 8))
    placed_on.storage[:, 2] = 10
    found = briefly(space, placed_on)
    assert found.rating == least_rating(space, placed_on) == 12.0
    assert fit(held_by(space, placed_on, found.options, found.ranks), placed_on)


@pytest.mark.parametrize("most_proposed", [0, 10_000])
def test_tables_that_depend_on_each_other_are_placed_as_proposed(most_proposed, monkeypatch):
    monkeypatch.setattr("planners.embedding.best_plan.search._MOST_PROPOSED", most_proposed)
    options = [
        option(table, kind, *[(table + 1, 0, 1.0 + (table + number) % 3)] * 2, dependency=tower)
        for table, tower in enumerate(["one", "one", "other", "other", None])
        for number, kind in enumerate(("host_columns", "host_rows", "device"))
        if kind != "device" or not tower
    ]
    space, placed_on = search_space(options), devices(*[(30, 0)] * 4, host_ranks=2)
    found = briefly(space, placed_on)
    best = proposed(space, placed_on, *DEFAULT, BinProposer)
    assert found.rating == best.rating < proposed(space, placed_on, UniformProposer).rating
    hosts = {
        int(space.table[number]): {rank // 2 for rank in ranks}
        for number, ranks in options_with_ranks(space, found.options, found.ranks)
    }
    assert hosts[0] == hosts[1]
    assert hosts[2] == hosts[3]
