"""The search for the best plan: legal, no worse than torchrec's, ended by a clock, repeatable."""

import math
import os
import time
from functools import cache
from itertools import product

import highspy
import numpy as np
import pytest
from built_problem import problem
from compared import come_to, components
from hypothesis import assume, given, settings, strategies as st
from random_options import random_case
from small_problems import (
    KINDS,
    NO_TABLES,
    constructed,
    devices,
    fit,
    held_by,
    jumping_clock,
    option,
    options_with_ranks,
    problems,
    varied,
)
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import (
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.types import Storage

from planners.embedding.best_plan import linear
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.insertion import Figure
from planners.embedding.best_plan.local import LocalSearch, plan_of
from planners.embedding.best_plan.proofs import ladder
from planners.embedding.best_plan.rounds import SAMPLE, search, target_of
from planners.embedding.best_plan.search import best_plan
from planners.embedding.drop_in.planner import Planner
from planners.embedding.quality import arrays
from planners.embedding.same_plan.bin_proposer import BinProposer
from planners.embedding.same_plan.proposals import rules_of
from planners.embedding.same_plan.search import SamePlan
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Placement, devices_of, search_space

# One plan has several ratings: torchrec adds in the order in which it was proposed.
LAST_BITS = 1e-12

PROPOSERS = (
    GridSearchProposer,
    GreedyProposer,
    lambda: GreedyProposer(use_depth=False),
    UniformProposer,
    BinProposer,
)
UNSOLVED = "synthetic[tables=40,seed=1,memory=tight]"  # too large to be solved

real = cache(lambda workload: arrays(problem(workload)))


def briefly(space, placed_on, seed=0):
    """Search with so little work that few small problems are solved."""
    return best_plan(space, placed_on, Deadline(0.01, lambda: 0.0), seed)


def proposed(space, placed_on, *proposers):
    """Return the best plan of some proposers with torchrec's partitioner."""
    search = SamePlan([new() for new in proposers], rules_of(GreedyPerfPartitioner()))
    return search(space, placed_on)


def rating(outcome):
    return outcome.rating if isinstance(outcome, Found) else math.inf


def no_grid_without_a_host(drawn):
    """Return whether a problem has a complete host, or no grid option, which would need one.

    Other problems are left to torchrec, which cannot place a grid option there either.
    """
    space, placed_on = drawn
    return placed_on.hosts > 0 or not (space.placement == Placement.HOSTS).any()


small_problems = problems(overfull=True).filter(no_grid_without_a_host)


@pytest.mark.parametrize("everything_is_proposed", [True, False])
@settings(max_examples=20)
@given(small_problems, st.integers(0, 3))
def test_a_plan_is_legal_and_between_the_bound_and_what_is_proposed(
    everything_is_proposed, drawn, seed
):
    """On large problems the uniform proposals alone are tried at first, and all if none fits."""
    with pytest.MonkeyPatch.context() as patch:
        if not everything_is_proposed:
            patch.setattr("planners.embedding.best_plan.search._MOST_PROPOSED", 0)
        outcome = briefly(*drawn, seed)
    for proposer in PROPOSERS:
        if everything_is_proposed or proposer is UniformProposer or isinstance(outcome, NotFound):
            assert rating(outcome) <= rating(proposed(*drawn, proposer)) * (1 + LAST_BITS)
    assume(isinstance(outcome, Found))
    load = held_by(*drawn, outcome.options, outcome.ranks)
    assert fit(load, drawn[1])
    assert outcome.rating == pytest.approx(load[:, 0].max(), rel=1e-12)
    assert ladder(candidates(*drawn))[-1].milliseconds <= outcome.rating * (1 + 1e-9)


@settings(max_examples=30)
@given(st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_a_planner_has_no_worse_a_plan_or_none_for_the_same_reason(random, towers, with_ssd):
    """Tables that depend on each other, and those on SSD, are left to torchrec's proposals."""
    case = random_case(random, most_tables=4, towers=towers)
    if not with_ssd:
        for shard in (shard for sharded in case.options for shard in sharded.shards):
            shard.storage = Storage(shard.storage.hbm, shard.storage.ddr, 0)
    theirs = EmbeddingShardingPlanner(**components(case))
    expected = come_to(theirs)
    ours = Planner(mode="best-plan", search_seconds=0.01, **components(case))
    ours._clock = lambda: 0.0
    actual = come_to(ours)
    if ours._best_plan is None:
        assert actual == expected
        return
    rate = NoopPerfModel(case.topology).rate
    if theirs._best_plan is not None:
        assert rate(ours._best_plan) <= rate(theirs._best_plan) * (1 + LAST_BITS)
    held = np.zeros((case.topology.world_size, 5))
    for shard in (shard for placed in ours._best_plan for shard in placed.shards):
        storage = shard.storage
        held[shard.rank] += (0, storage.hbm, storage.ddr, storage.ssd, 1)
    assert fit(held, devices_of(case.topology))


def has_a_bound(problem):
    return 0 < linear.linear_bound(candidates(*problem))[0] < math.inf


some_problems = problems(kinds=tuple(KINDS)[:5], overfull=False).filter(has_a_bound)
# Rounds rate a sample of the ranks of these.
many_ranks = st.integers(3, 12).map(lambda tables: varied(tables, hosts=SAMPLE // 2))


@settings(max_examples=25)
@given(some_problems | many_ranks, st.integers(0, 9), st.integers(0, 2))
def test_the_books_of_the_local_search_are_right(problem, seed, doublings):
    """Time and memory of each rank, and the best rating, are those of the plan summed anew."""
    space, placed_on = problem
    tables, state = constructed(space, placed_on, seed, doublings)
    for work, hot in ((0, 1.0), (200_000, 0.5)):
        best, bound = state.figures[Figure.BEST], state.figures[Figure.BOUND]
        search(tables, state, NO_TABLES, NO_TABLES, work, hot, hot - 0.5)
        assert np.isin(state.plan.options, candidates(space, placed_on).options).all()
        load = held_by(space, placed_on, *plan_of(tables, state._replace(best=state.plan)))
        assert (state.memory == load[:, 1:4]).all()
        assert state.perf == pytest.approx(load[:, 0], abs=1e-9 * load[:, 0].max())
        assert state.figures[Figure.BEST] <= best
        assert state.figures[Figure.TARGET] == target_of(state.figures[Figure.BEST], bound)
    if (state.best.options >= 0).all():
        load = held_by(space, placed_on, *plan_of(tables, state))
        assert fit(load, placed_on)
        assert state.figures[Figure.BEST] == pytest.approx(load[:, 0].max(), rel=1e-9)


def test_the_penalty_on_missing_memory_is_tuned_however_few_rounds_a_call_has():
    """On many ranks a call has fewer rounds than there are between two tunings."""
    tables, state = constructed(*varied(hosts=SAMPLE // 2))
    before = state.figures[Figure.PENALTY]
    rounds = [search(tables, state, NO_TABLES, NO_TABLES, 20_000, 0.0, 0.0) for _ in range(60)]
    assert max(rounds) < 512 < sum(rounds)
    assert state.figures[Figure.PENALTY] != before


def test_on_many_ranks_a_start_leaves_whole_hosts_to_rows():
    """Shards of much memory, one on a rank, and rows that fit two to a host, fill all hosts."""
    hosts = SAMPLE // 2 + 1
    large, rows = hosts // 2 * 2, hosts // 2 * 2 + 2
    options = [
        *(option(table, "device", (7, 0, 1.0)) for table in range(large)),
        *(option(large + table, "host_rows", *[(5, 0, 1.0)] * 2) for table in range(rows)),
    ]
    found = candidates(search_space(options), devices(*[(10, 0)] * (2 * hosts), host_ranks=2))
    local = LocalSearch(found, linear.linear_bound(found)[0], 0)
    local.start_at(found.options)
    assert local.best is not None


def test_a_plan_is_near_the_bound():
    """A problem too large to be solved is within a hundredth of what is proven."""
    space, placed_on = real("synthetic[tables=30,seed=1,memory=roomy]")
    bound = ladder(candidates(space, placed_on))[-1].milliseconds
    assert best_plan(space, placed_on).rating <= 1.01 * bound


@pytest.fixture
def little_work(monkeypatch):
    """Limit the work of searches, but not their linear programmes, which are limited by time."""
    room = "planners.embedding.best_plan"
    monkeypatch.setattr(f"{room}.search.WORK_PER_SECOND", 1e4)
    monkeypatch.setattr(f"{room}.patterns._WORK", 1.2e4)
    monkeypatch.setattr(f"{room}.packing._MOST_PLACES", -1)


@pytest.mark.usefixtures("little_work")
def test_the_same_seed_gives_the_same_plan():
    """Another seed gives another plan of the same unsolved problem."""
    plan, again, other = (
        best_plan(*real(UNSOLVED), Deadline(200, lambda: 0.0), seed) for seed in (1, 1, 2)
    )
    assert str(plan) == str(again)
    assert plan.ranks.tolist() == again.ranks.tolist() != other.ranks.tolist()


@pytest.mark.usefixtures("little_work")
def test_the_clock_ends_the_search_with_the_best_plan_so_far(monkeypatch):
    """The search goes on for longer if the clock jumps later, and its plans improve."""
    monkeypatch.setattr("planners.embedding.best_plan.local.WORK_AT_ONCE", 200_000)
    space = real(UNSOLVED)
    ends = [best_plan(*space, Deadline(200, jumping_clock(looks))) for looks in (20, 80, 300)]
    rounds = [outcome.proposals for outcome in ends]
    assert rounds == sorted(set(rounds))
    ratings = [outcome.rating for outcome in ends]
    assert ratings == sorted(ratings, reverse=True)
    assert ratings[0] == proposed(*space, *PROPOSERS).rating > ratings[-1]


def test_without_a_time_no_clock_ends_the_search():
    """A clock that jumps at once leaves the plan and the number of proposals as they are."""
    problem = real("synthetic[tables=6,seed=2,memory=tight]")
    hurried, other = (
        best_plan(*problem, Deadline(None, jumping_clock(looks))) for looks in (0, 10**9)
    )
    assert (rating(hurried), hurried.proposals) == (rating(other), other.proposals)


@settings(max_examples=30, deadline=None)
@given(problems(kinds=tuple(KINDS)[:5], overfull=False).filter(lambda drawn: drawn[1].hosts > 0))
def test_no_options_in_the_place_of_a_plan_s_have_fewer_types(drawn):
    """Of options that may take each other's place, the plan has few sharding types."""
    space, placed_on = drawn
    plan = best_plan(*drawn, Deadline(0.05, lambda: 0.0))
    assume(isinstance(plan, Found))
    assert fit(held_by(*drawn, plan.options, plan.ranks), placed_on)

    def may_replace(other, option):
        mine, theirs = space.estimates_of(other), space.estimates_of(option)
        return (
            (space.table[other], space.placement[other])
            == (space.table[option], space.placement[option])
            and len(mine) == len(theirs)
            and (space.total[mine] <= space.total[theirs]).all()
            and (space.storage[mine] <= space.storage[theirs]).all()
        )

    options = [number for number, _ in options_with_ranks(space, plan.options, plan.ranks)]
    choices = [[o for o in range(len(space.options)) if may_replace(o, p)] for p in options]
    types = [option.sharding_type for option in space.options]
    used = len({types[option] for option in options})
    assert used == min(len({types[option] for option in chosen}) for chosen in product(*choices))


def test_of_two_types_that_cost_the_same_the_plan_has_the_first_in_torchrec_s_list():
    """A table of one column shard is table-wise."""
    options = [option(table // 2, "device", (1, 0, 1.0)) for table in range(4)]
    for table_wise in options[1::2]:
        table_wise.sharding_type = "table_wise"
    plan = best_plan(search_space(options), devices((9, 0), (9, 0)))
    assert sorted(plan.options.tolist()) == [1, 3]


def test_a_child_of_a_process_that_has_solved_integer_programmes_has_the_same_plan():
    """A process that has planned can be forked, and its child does not hang."""
    space, placed_on = arrays(problem("dlrm-856[tables=30,seed=1]"))
    expected = best_plan(space, placed_on).rating
    child = os.fork()
    if child == 0:
        os._exit(0 if best_plan(space, placed_on).rating == expected else 1)
    for _ in range(600):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.1)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended, "the child hangs"
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("name", ["run", "getDualRay"])
def test_a_fork_waits_for_whatever_solves(name, monkeypatch):
    """Each call of HiGHS that may solve has the lock that a fork waits for."""
    solve, locked = getattr(highspy.Highs, name), []

    def noting(solver):
        locked.append(linear.solving.locked())
        return solve(solver)

    monkeypatch.setattr(highspy.Highs, name, noting)
    best_plan(*arrays(problem("synthetic[tables=12,seed=3,memory=tight]", gpus=8)))
    too_large = [option(table, "device", (6, 0, 1.0)) for table in range(4)]
    best_plan(search_space(too_large), devices((9, 9), (9, 9)))
    assert locked
    assert all(locked)
