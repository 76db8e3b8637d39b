"""The search for the best plan: legal, no worse than torchrec, near the bound, and repeatable."""

from functools import cache, partial

import numpy as np
import pytest
from built_problem import problem
from certified import DEFAULT, JumpingClock, proposed, rating, standing_still
from compared import come_to, components
from hypothesis import assume, given, settings, strategies as st
from random_options import random_case
from small_problems import fit, held_by, problems
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner, validate_compute_kernels
from torchrec.distributed.planner.proposers import GreedyProposer, UniformProposer
from torchrec.distributed.planner.types import Storage

from harness.contract import InfeasibleDecision
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.proofs import ladder
from planners.embedding.best_plan.search import best_plan
from planners.embedding.decision import prepare, validate
from planners.embedding.drop_in.planner import Planner
from planners.embedding.quality import arrays
from planners.embedding.same_plan.bin_proposer import BinProposer
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Placement, devices_of

# One plan has several ratings: torchrec adds in the order in which it was proposed.
LAST_BITS = 1e-12

UNSOLVED = "synthetic[tables=60,seed=1,memory=tight]"  # too large to be solved
LITTLE = "synthetic[tables=6,seed=2,memory=tight]"

real = cache(lambda workload: arrays(problem(workload)))


def briefly(space, placed_on, seed=0):
    return best_plan(space, placed_on, Deadline(0.01, standing_still), seed)


def no_grid_without_a_host(drawn):
    """Return whether a problem has a complete host, or no grid option, which would need one.

    Other problems are left to torchrec, which cannot place a grid option there either.
    """
    space, placed_on = drawn
    return placed_on.hosts > 0 or not (space.placement == Placement.HOSTS).any()


small_problems = problems(overfull=True).filter(no_grid_without_a_host)


@given(small_problems, st.integers(0, 3))
def test_a_plan_is_legal_and_between_the_bound_and_what_is_proposed(drawn, seed):
    found = briefly(*drawn, seed)
    for proposers in ((), (UniformProposer,), (GreedyProposer,), (BinProposer,)):
        assert rating(found) <= rating(proposed(*drawn, *proposers)) * (1 + LAST_BITS)
    assume(isinstance(found, Found))
    held = held_by(*drawn, found.options, found.ranks)
    assert fit(held, drawn[1])
    assert found.rating == pytest.approx(held[:, 0].max(), rel=1e-12)
    assert ladder(candidates(*drawn))[-1].milliseconds <= found.rating * (1 + 1e-9)


@settings(max_examples=30)
@given(small_problems)
def test_on_large_problems_a_plan_is_found_wherever_one_is_proposed(drawn):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planners.embedding.best_plan.search._MOST_PROPOSED", 0)
        found = briefly(*drawn)
    assert rating(found) <= rating(proposed(*drawn, UniformProposer)) * (1 + LAST_BITS)
    if isinstance(found, NotFound):
        for proposer in (*DEFAULT, BinProposer):
            assert isinstance(proposed(*drawn, proposer), NotFound)


@given(st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_a_planner_finds_no_worse_a_plan_or_none_for_the_same_reason(random, towers, with_ssd):
    """Tables that depend on each other, and those on SSD, are left to torchrec's proposals."""
    case = random_case(random, most_tables=4, towers=towers)
    if not with_ssd:
        for shard in (shard for option in case.options for shard in option.shards):
            shard.storage = Storage(shard.storage.hbm, shard.storage.ddr, 0)
    theirs = EmbeddingShardingPlanner(**components(case))
    expected = come_to(theirs)
    ours = Planner(mode="best-plan", search_seconds=0.01, **components(case))
    ours._clock = standing_still
    actual = come_to(ours)
    if ours._best_plan is None:
        assert actual == expected
        return
    rate = NoopPerfModel(case.topology).rate
    if theirs._best_plan is not None:
        assert rate(ours._best_plan) <= rate(theirs._best_plan) * (1 + LAST_BITS)
    held = np.zeros((case.topology.world_size, 5))
    for shard in (shard for option in ours._best_plan for shard in option.shards):
        storage = shard.storage
        held[shard.rank] += (0, storage.hbm, storage.ddr, storage.ssd, 1)
    assert fit(held, devices_of(case.topology))


def test_a_plan_is_near_the_bound():
    space, placed_on = real("synthetic[tables=60,seed=1,memory=roomy]")
    bound = ladder(candidates(space, placed_on))[-1].milliseconds
    assert best_plan(space, placed_on).rating <= 1.01 * bound


@pytest.fixture
def little_work(monkeypatch):
    """Limit the work of searches, but not their linear programmes, which are limited by time."""
    room = "planners.embedding.best_plan"
    monkeypatch.setattr(f"{room}.search.WORK_PER_SECOND", 1e4)
    monkeypatch.setattr(f"{room}.patterns._WORK_PER_SECOND", 3e3)


@pytest.mark.usefixtures("little_work")
def test_the_same_seed_finds_the_same_plan():
    one, again, other = (
        best_plan(*real(UNSOLVED), Deadline(200, standing_still), seed) for seed in (1, 1, 2)
    )
    assert one.rating == again.rating
    assert one.options.tolist() == again.options.tolist()
    assert one.ranks.tolist() == again.ranks.tolist()
    assert one.ranks.tolist() != other.ranks.tolist()


@pytest.mark.usefixtures("little_work")
def test_the_clock_ends_the_search_with_the_best_plan_so_far(monkeypatch):
    monkeypatch.setattr("planners.embedding.best_plan.local.WORK_AT_ONCE", 200_000)
    space = real(UNSOLVED)
    ends = [best_plan(*space, Deadline(200, JumpingClock(looks))) for looks in (20, 35, 200)]
    rounds = [found.proposals for found in ends]
    assert rounds == sorted(set(rounds)), "each goes on for longer"
    ratings = [found.rating for found in ends]
    assert ratings == sorted(ratings, reverse=True)
    assert ratings[0] == proposed(*space, *DEFAULT, BinProposer).rating > ratings[-1]


def test_without_a_time_no_clock_ends_the_search():
    hurried, other = (
        best_plan(*real(LITTLE), Deadline(None, JumpingClock(looks))) for looks in (0, 10**9)
    )
    assert (rating(hurried), hurried.proposals) == (rating(other), other.proposals)


@pytest.mark.parametrize(
    "place",
    [
        ("synthetic[tables=6,seed=3,memory=mixed]", "dgx_a100_80gb", 8),  # torchrec finds none
        ("synthetic[tables=5,seed=4]", "aws_g4dn_12xlarge", 8),
    ],
)
def test_a_planner_returns_a_plan_that_torchrec_takes(place):
    built = problem(*place)
    plan = prepare(built, partial(Planner, mode="best-plan")).run()
    validate(built, plan)
    validate_compute_kernels(list(plan.options))
    rated = NoopPerfModel(built.topology).rate(list(plan.options))
    assert rated == best_plan(*arrays(built)).rating
    assert rated <= rating(proposed(*arrays(built)))


def test_a_planner_without_a_plan_says_what_torchrec_says_and_that_there_is_none():
    built = problem("synthetic[tables=12,seed=7,memory=mixed]")
    with pytest.raises(InfeasibleDecision) as of_torchrec:
        prepare(built).run()
    with pytest.raises(InfeasibleDecision, match="it is proven that no plan fits") as raised:
        prepare(built, partial(Planner, mode="best-plan")).run()
    assert str(raised.value.__cause__) == str(of_torchrec.value.__cause__)
