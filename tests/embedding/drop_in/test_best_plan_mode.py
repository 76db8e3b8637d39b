"""In mode best-plan: what a planner tells of its plan, its limits, and its proposers."""

import copy
import logging
from dataclasses import replace
from itertools import chain
from unittest import mock

import pytest
from compared import come_to, components
from hypothesis import given, strategies as st
from planned import OwnProposer, decided, new_planner, problem, randoms
from random_options import random_case
from torchrec.distributed.planner.planners import (
    EmbeddingShardingPlanner,
)
from torchrec.distributed.planner.proposers import (
    EmbeddingOffloadScaleupProposer,
    GreedyProposer,
    UniformProposer,
)
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import PlannerError
from torchrec.distributed.types import CacheParams, CacheStatistics

from planners.embedding.drop_in.planner import Planner
from planners.embedding.search.outcome import NotFound


def test_rating_and_gap_of_a_plan_are_attributes_and_one_line_of_the_log(caplog):
    """They are those of the last plan: none without a plan, and no gap without a bound."""
    built = problem()
    planner, plain = new_planner(built, mode="best-plan", remedy_seconds=0), new_planner(built)
    with caplog.at_level(logging.INFO, "shardbench"):
        planner.plan(built.module, built.sharders)
    assert planner.max_rank_ms == planner._perf_model.rate(planner._best_plan)
    assert planner.gap == planner.max_rank_ms / planner.bound_ms - 1
    (line,) = (record.getMessage() for record in caplog.records if record.name == "shardbench")
    assert f"{planner.max_rank_ms:.4g} ms" in line
    assert f"{100 * planner.gap:.1f} % above the bound" in line
    plain.plan(built.module, built.sharders)
    assert plain.max_rank_ms
    assert plain.gap is None
    planner._storage_reservation = FixedPercentageStorageReservation(0.9999)
    with pytest.raises(PlannerError):
        planner.plan(built.module, built.sharders)
    assert (planner.max_rank_ms, planner.gap) == (None, None)


class Ticking:
    """A clock that advances at every call."""

    def __init__(self, seconds):
        self.seconds, self.now = seconds, 0.0

    def __call__(self):
        self.now += self.seconds
        return self.now


@pytest.mark.parametrize("limit", [{"search_seconds": 1.0}, {"timeout_seconds": 1}])
def test_a_time_limit_ends_the_search(monkeypatch, limit):
    """A clock that advances faster is looked at less often."""
    monkeypatch.setattr("planners.embedding.best_plan.local.WORK_AT_ONCE", 400_000)
    built = problem("synthetic[tables=44,seed=1,memory=tight]", gpus=8)
    looks = []
    for seconds in (0.01, 0.03):
        planner = new_planner(built, proposer=None, mode="best-plan", **limit)
        clock = planner._clock = Ticking(seconds)
        planner.plan(built.module, built.sharders)
        looks.append(clock.now / seconds)
        assert clock.now < 1.0 + 12 * seconds
    assert looks[1] < looks[0]


def test_without_a_plan_in_time_the_error_is_torchrecs():
    """It comes after torchrec's first proposals."""
    built = problem("synthetic[tables=24,seed=1,memory=tight]", gpus=16)
    planner = new_planner(built, mode="best-plan", search_seconds=3.0, proposer=None)
    planner._clock = Ticking(10.0)
    with pytest.raises(PlannerError, match="Unable to find a plan for this model"):
        planner.plan(built.module, built.sharders)
    assert 0 < planner._num_proposals < 100


@given(random=randoms, towers=st.booleans())
@mock.patch("planners.embedding.best_plan.search.WORK_PER_SECOND", 2e4)
def test_the_best_plan_is_the_same_in_whatever_order_options_are_listed(random, towers):
    """All kernels of a table have the same estimates, so plans tie."""
    case, alike = random_case(random, most_tables=4, towers=towers), {}
    for each in case.options:
        shards = alike.setdefault((each.fqn, each.sharding_type), each.shards)
        each.shards = copy.deepcopy(shards)
    plans = []
    for _ in range(3):
        tables = [
            [case.options[number] for number in numbers] for numbers in case.tables().values()
        ]
        for options in tables:
            random.shuffle(options)
        shuffled = replace(case, options=[*chain(*tables)])
        planner = Planner(mode="best-plan", search_seconds=60, **components(shuffled))
        planner._clock = Ticking(0.0)
        outcome, _, _ = come_to(planner)
        plans.append(outcome[0] if planner._best_plan else PlannerError)
        assert planner._fault is None
    assert plans[0] == plans[1] == plans[2]


def test_the_best_plan_needs_no_compiled_proposer():
    """Proposers of any kind are ignored."""
    built = problem()
    own = new_planner(built, mode="best-plan", proposer=[UniformProposer(), OwnProposer()])
    assert decided(own, built) == decided(new_planner(built, mode="best-plan"), built)
    assert own.bound_ms > 0


@pytest.mark.parametrize("proposer", [GreedyProposer, OwnProposer])
def test_without_a_best_plan_the_proposers_propose(proposer, monkeypatch, caplog):
    """If the search finds nothing and proves nothing, the plan is that of mode same-plan."""
    built = problem()
    monkeypatch.setattr(
        "planners.embedding.best_plan.search.best_plan", lambda *_: NotFound(None, None, 0)
    )
    own = new_planner(built, mode="best-plan", proposer=proposer())
    upstream = new_planner(built, EmbeddingShardingPlanner, proposer=proposer())
    assert decided(own, built) == decided(upstream, built)
    reason = "the search for the best plan finds none, and OwnProposer is not"
    assert (reason in caplog.text) == (proposer is OwnProposer)


@pytest.mark.parametrize("proposer", [GreedyProposer, EmbeddingOffloadScaleupProposer])
def test_a_proof_that_no_plan_fits_needs_no_proposer(proposer):
    """A note on the error tells of the proof."""
    built = problem()
    for device in built.topology.devices:
        device.storage.hbm = device.storage.ddr = 2**21
    planner = new_planner(
        built,
        mode="best-plan",
        proposer=proposer(),
        remedy_seconds=0,
        storage_reservation=FixedPercentageStorageReservation(0.0),
    )
    with pytest.raises(PlannerError, match="Unable to find a plan") as caught:
        planner.plan(built.module, built.sharders)
    assert caught.value.__notes__ == ["It is proven that no plan fits."]


class _MissRates(CacheStatistics):
    """A cache that misses less the larger it is."""

    expected_lookups = 200_000.0
    cacheability = 0.5

    def expected_miss_rate(self, clf):
        return 1 - clf


def test_larger_caches_that_rate_better_are_taken():
    """TorchRec's proposer of larger caches proposes beside the search."""
    built = problem("synthetic[tables=6,seed=2,memory=roomy]")
    constraints = {
        name: replace(
            given,
            compute_kernels=["fused_uvm_caching"],
            cache_params=CacheParams(load_factor=0.1, stats=_MissRates()),
        )
        for name, given in built.constraints.items()
    }
    upstream, own = (
        new_planner(
            built, kind, constraints=constraints, proposer=EmbeddingOffloadScaleupProposer(), **mode
        )
        for kind, mode in ((EmbeddingShardingPlanner, {}), (Planner, {"mode": "best-plan"}))
    )
    for planner in (upstream, own):
        planner.plan(built.module, built.sharders)
    assert own.max_rank_ms <= upstream._perf_model.rate(upstream._best_plan)
    factors = {option.cache_params.load_factor for option in own._best_plan}
    assert max(filter(None, factors)) > 0.1, "larger than the constraints say"
    assert own.gap is None or own.gap >= 0
