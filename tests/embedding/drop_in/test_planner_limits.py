"""The planner's limits of time and memory, and its independence of order and release."""

import copy
import warnings
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torchrec
from compared import come_to, components
from hypothesis import given, strategies as st
from planned import decided, little_work, new_planner, problem, randoms, standing_still
from random_options import random_case
from small_problems import option
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import PlannerError

from harness.contract.supported_releases import UnsupportedRelease
from planners.embedding.drop_in import compiled_search
from planners.embedding.drop_in.compiled_search import (
    CompiledSearch,
    failed_proposals,
    least_memory,
)
from planners.embedding.drop_in.planner import RELEASES, Planner
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.outcome import NotFound
from planners.embedding.search.space import search_space


class Ticking:
    """A clock that advances at every call."""

    def __init__(self, seconds):
        self.seconds, self.now = seconds, 0.0

    def __call__(self):
        self.now += self.seconds
        return self.now


@pytest.mark.parametrize("limit", [{"search_seconds": 1.0}, {"timeout_seconds": 1}])
def test_a_time_limit_ends_the_search(monkeypatch, limit):
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


def test_making_the_arrays_counts_as_search(monkeypatch):
    """After it no time is left for a bound."""
    built, now = problem(), [0.0]
    planner = new_planner(built, mode="best-plan", search_seconds=3.0)
    planner._clock = lambda: now[0]
    flatten = CompiledSearch.flatten

    def slow(self, options):
        now[0] += 10.0
        return flatten(self, options)

    monkeypatch.setattr(CompiledSearch, "flatten", slow)
    planner.plan(built.module, built.sharders)
    assert planner._best_plan
    assert not planner.bound_ms


def test_without_a_plan_in_time_the_error_is_torchrecs():
    built = problem("synthetic[tables=24,seed=1,memory=tight]", gpus=16)
    planner = new_planner(built, mode="best-plan", search_seconds=3.0, proposer=None)
    planner._clock = Ticking(10.0)
    with pytest.raises(PlannerError, match="Unable to find a plan for this model"):
        planner.plan(built.module, built.sharders)
    assert 0 < planner._num_proposals < 100


@given(random=randoms, towers=st.booleans())
@little_work
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
        planner._clock = standing_still
        outcome, _, _ = come_to(planner)
        plans.append(outcome[0] if planner._best_plan else PlannerError)
        assert planner._fault is None
    assert plans[0] == plans[1] == plans[2]


def test_on_another_release_all_is_torchrecs_own(monkeypatch):
    """A warning says so once, unless the user insists."""
    built = problem()
    expected = decided(new_planner(built, EmbeddingShardingPlanner), built)
    assert RELEASES.include(torchrec.__version__)
    monkeypatch.setattr(torchrec, "__version__", "1.10.0")
    monkeypatch.setattr("harness.contract.supported_releases._said", set())
    with monkeypatch.context() as without_search:
        without_search.setattr(CompiledSearch, "__init__", None)
        with pytest.warns(
            UnsupportedRelease, match=r"^Planner was tested with torchrec .*1\.10\.0"
        ):
            planner = new_planner(built, mode="best-plan", check=True)
        assert type(planner._enumerator) is EmbeddingEnumerator
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert decided(planner, built) == expected
            assert decided(copy.deepcopy(planner), built)[0] == expected[0]
    monkeypatch.delattr(torchrec, "__version__")
    with pytest.warns(UnsupportedRelease, match="not with a checkout"):
        assert type(new_planner(built)._enumerator) is EmbeddingEnumerator
    planner = new_planner(built, any_release=True)
    assert type(planner._enumerator) is DistinctShardEnumerator
    assert decided(planner, built) == expected


def space():
    return search_space(
        [
            option(0, "device", (8, 0, 1.0), (4, 2, 1.0)),
            option(0, "host_columns", (5, 3, 2.0)),
            option(1, "device", (7, 1, 1.0)),
            option(1, "host_columns", (7, 0, 1.0)),
        ]
    )


@pytest.mark.parametrize("most", [0, 100])
def test_the_memory_of_each_option_is_that_of_its_shards(monkeypatch, most):
    monkeypatch.setattr(compiled_search, "MOST_SHARDS", most)
    proposals = failed_proposals(space(), NotFound(np.array([0, 2]), np.array([1, 3]), 2))
    hbm = [[sum(shard.storage.hbm for shard in o.shards) for o in row] for row in proposals]
    assert hbm == [[12, 7], [5, 7]]
    assert len(proposals[0][0].shards) == (2 if most else 1)


def test_the_least_memory_goes_by_hbm_and_then_by_host_memory():
    assert least_memory(space()).tolist() == [1, 3]
