"""The search for the best plan on workloads: its gap to the bound, and how it ends."""

from functools import cache, partial

import pytest
from certified import DEFAULT, JumpingClock, proposed, rating, standing_still
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.planners import validate_compute_kernels

from harness.contract import InfeasibleDecision, WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.proofs import ladder
from planners.embedding.best_plan.search import best_plan
from planners.embedding.decision import prepare, validate
from planners.embedding.drop_in.planner import Planner
from planners.embedding.problem import build
from planners.embedding.quality import arrays
from planners.embedding.same_plan.bin_proposer import BinProposer
from planners.embedding.search.outcome import Deadline


@cache
def real(workload, topology="dgx_a100_80gb", gpus=16):
    """Return a problem of realistic size, its options and its devices."""
    problem = build(WorkloadSpec.parse(workload), find_topology(topology, gpus))
    return problem, *arrays(problem)


TIGHT = "synthetic[tables=24,seed=1,memory=tight]"

UNSOLVED = "synthetic[tables=60,seed=1,memory=tight]"  # too large to be solved

ROOMY = "synthetic[tables=60,seed=1,memory=roomy]"

LITTLE = "synthetic[tables=6,seed=2,memory=tight]"


def gap(found, bound):
    return found.rating / bound - 1


def lower_bound(*problem):
    return ladder(candidates(*problem))[-1].milliseconds


def test_a_plan_is_near_the_bound_where_there_is_room():
    _, *problem = real(ROOMY)
    assert gap(best_plan(*problem), lower_bound(*problem)) <= 0.01


@pytest.fixture
def little_work(monkeypatch):
    """Limit the work of searches, but not their linear programmes, which are limited by time."""
    room = "planners.embedding.best_plan"
    monkeypatch.setattr(f"{room}.search.WORK_PER_SECOND", 1e4)
    monkeypatch.setattr(f"{room}.patterns._WORK_PER_SECOND", 3e3)


def test_a_plan_is_nearer_the_bound_where_memory_is_scarce():
    _, *problem = real(TIGHT)
    found, bound = best_plan(*problem, Deadline(1, standing_still)), lower_bound(*problem)
    assert gap(found, bound) <= gap(proposed(*problem), bound) / 3


@pytest.mark.usefixtures("little_work")
def test_the_same_seed_finds_the_same_plan():
    _, *problem = real(UNSOLVED)
    one, again, other = (
        best_plan(*problem, Deadline(200, standing_still), seed) for seed in (1, 1, 2)
    )
    assert one.rating == again.rating
    assert one.options.tolist() == again.options.tolist()
    assert one.ranks.tolist() == again.ranks.tolist()
    assert one.ranks.tolist() != other.ranks.tolist()


@pytest.mark.usefixtures("little_work")
def test_the_clock_ends_the_search_with_the_best_plan_so_far(monkeypatch):
    monkeypatch.setattr("planners.embedding.best_plan.local.WORK_AT_ONCE", 200_000)
    _, *problem = real(UNSOLVED)
    ends = [best_plan(*problem, Deadline(200, JumpingClock(looks))) for looks in (20, 35, 200)]
    rounds = [found.proposals for found in ends]
    assert rounds == sorted(set(rounds)), "each goes on for longer"
    ratings = [found.rating for found in ends]
    assert ratings == sorted(ratings, reverse=True)
    assert ratings[0] == proposed(*problem, *DEFAULT, BinProposer).rating > ratings[-1]


def test_without_a_time_no_clock_ends_the_search():
    _, *problem = real(LITTLE)
    clocks = [JumpingClock(looks) for looks in (0, 3, 10**9)]
    hurried, *others = (best_plan(*problem, Deadline(None, clock)) for clock in clocks)
    assert all(rating(hurried) == rating(other) for other in others)
    assert all(hurried.proposals == other.proposals for other in others)


@pytest.mark.parametrize(
    "place",
    [
        (LITTLE, "dgx_a100_80gb", 16),
        ("synthetic[tables=6,seed=3,memory=mixed]", "dgx_a100_80gb", 8),  # torchrec finds none
        ("synthetic[tables=5,seed=4]", "aws_g4dn_12xlarge", 8),
    ],
)
def test_a_planner_returns_a_plan_that_torchrec_takes(place):
    problem, space, placed_on = real(*place)
    plan = prepare(problem, partial(Planner, mode="best-plan")).run()
    validate(problem, plan)
    validate_compute_kernels(list(plan.options))
    model = NoopPerfModel(problem.topology)
    assert model.rate(list(plan.options)) == best_plan(space, placed_on).rating
    assert model.rate(list(plan.options)) <= rating(proposed(space, placed_on))


def test_a_planner_without_a_plan_says_what_torchrec_says_and_that_there_is_none():
    problem, *_ = real("synthetic[tables=12,seed=7,memory=mixed]")
    with pytest.raises(InfeasibleDecision) as of_torchrec:
        prepare(problem).run()
    with pytest.raises(InfeasibleDecision, match="it is proven that no plan fits") as raised:
        prepare(problem, partial(Planner, mode="best-plan")).run()
    assert str(raised.value.__cause__) == str(of_torchrec.value.__cause__)
