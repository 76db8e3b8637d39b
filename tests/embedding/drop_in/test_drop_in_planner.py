"""The drop-in planner behaves as torchrec's: signature, copies, errors, time, releases."""

import copy
import inspect
import logging
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from compared import come_to
from hypothesis import given, settings, strategies as st
from little_work import little_work, randoms, standing_still
from planned import decided, new_planner, problem
from random_models import random_model
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import (
    EmbeddingShardingPlanner,
    validate_compute_kernels,
)
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    PlannerError,
    ShardingOption,
    Storage,
)
from torchrec.distributed.types import CacheParams, ShardingType
from torchrec.schema.utils import is_signature_compatible

from planners.embedding.best_plan.torchrec_rules import _is_accepted
from planners.embedding.drop_in.checks import fault_of
from planners.embedding.drop_in.compiled_search import CompiledSearch
from planners.embedding.drop_in.planner import DistrustedSearch, Planner
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.estimation import Estimation
from planners.embedding.search.options import Estimates
from planners.embedding.search.outcome import Found, NotFound

BOTH = ("same-plan", "best-plan")


@pytest.mark.parametrize("name", ["__init__", "plan", "collective_plan"])
def test_its_signature_is_spelled_as_torchrecs(name):
    theirs = inspect.signature(getattr(EmbeddingShardingPlanner, name))
    ours = inspect.signature(getattr(Planner, name))
    assert is_signature_compatible(theirs, ours)
    for own, their in zip(ours.parameters.values(), theirs.parameters.values(), strict=False):
        assert (str(own), own.kind) == (str(their), their.kind)
    more = list(ours.parameters)[len(theirs.parameters) :]
    assert more == (
        ["mode", "search_seconds", "seed", "check", "any_release",
         "previous", "move_budget", "lost_ranks", "cache", "remedy_seconds"]
        if name == "__init__" else []
    )  # fmt: skip


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
@pytest.mark.parametrize("mode", BOTH)
def test_a_planner_is_copied_and_pickled_before_planning_and_after(mode, copied):
    built = problem()
    planner = new_planner(built, mode=mode)
    before = copied(planner)
    expected = decided(planner, built)
    assert decided(before, built) == expected
    after = copied(planner)
    assert decided(after, built) == expected
    other = problem("synthetic[tables=3,seed=9]")
    fresh = new_planner(other, mode=mode, constraints=built.constraints)
    assert decided(after, other) == decided(fresh, other)


def test_an_enumerator_is_pickled_with_what_it_remembers():
    built = problem()
    enumerator = DistinctShardEnumerator(built.topology, 512, built.constraints)
    twin = pickle.loads(pickle.dumps(enumerator))
    options, others = (each.enumerate(built.module, built.sharders) for each in (enumerator, twin))
    figures = [
        [(shard.perf, shard.storage) for option in each for shard in option.shards]
        for each in (options, others)
    ]
    assert figures[0] == figures[1]
    upstream = EmbeddingEnumerator(built.topology, 512)
    config, own, theirs = (each._estimators[0]._config for each in (twin, enumerator, upstream))
    assert dir(config) == dir(own)
    assert type(config).__name__ == type(theirs).__name__


ODD = st.sampled_from([-1.0, -0.001, 0.0, 0.3, 1.0, 2.5, math.nan, math.inf, None, "x"])

ODD_LISTS = st.none() | st.lists(ODD, max_size=2)


@given(
    random=randoms,
    pooling_factors=ODD_LISTS,
    min_partition=st.sampled_from([None, None, -1, 0, 1.5, 32, "x"]),
    num_poolings=st.none() | st.none() | ODD_LISTS,
    batch_sizes=st.none() | st.none() | ODD_LISTS,
    load_factor=st.sampled_from([None, -1.0, 0.2, 2.0, math.nan]),
    kernels=st.sampled_from([None, [], ["fused"], ["nonsense"], ["fused_uvm_caching", None]]),
    types=st.sampled_from([None, ["row_wise"], ["column_wise"], ["nonsense"], "row_wise"]),
)
def test_malformed_constraints_come_to_what_they_come_to_with_torchrec(
    random, pooling_factors, min_partition, num_poolings, batch_sizes, load_factor, kernels, types
):
    logging.getLogger("torchrec").setLevel(logging.ERROR)
    model = random_model(random, most_tables=2)
    constraints = {
        "table_0": ParameterConstraints(
            sharding_types=types,
            compute_kernels=kernels,
            min_partition=min_partition,
            pooling_factors=pooling_factors,
            num_poolings=num_poolings,
            batch_sizes=batch_sizes,
            cache_params=load_factor and CacheParams(load_factor=load_factor),
        )
    }
    upstream, ours = (
        kind(**{**model.components(), "constraints": constraints})
        for kind in (EmbeddingShardingPlanner, Planner)
    )
    expected = come_to(upstream, model.module, model.sharders)
    assert come_to(ours, model.module, model.sharders) == expected


@pytest.mark.parametrize("sharding_type", ["row_wise", "column_wise", "table_row_wise"])
def test_a_negative_pooling_factor_is_refused_in_torchrecs_words(sharding_type):
    built = problem("synthetic[tables=2,seed=2]")
    constraints = {
        table.name: ParameterConstraints(
            sharding_types=[sharding_type], compute_kernels=["fused"], pooling_factors=[-2.0]
        )
        for table in built.tables
    }
    built = replace(built, constraints=constraints)
    expected = decided(new_planner(built, EmbeddingShardingPlanner), built)
    assert expected[0][0] is AssertionError
    assert "input_sizes" in expected[0][2]
    assert decided(new_planner(built), built) == expected


def assert_distrusted(built, reason: str, **arguments) -> None:
    """Assert that a planner warns once of a fault, and then always decides as torchrec does."""
    expected = decided(new_planner(built, EmbeddingShardingPlanner), built)
    planner = new_planner(built, **arguments)
    with pytest.warns(
        DistrustedSearch, match=f"search is torchrec's own, since {reason}"
    ) as warned:
        assert decided(planner, built) == expected
    assert len(warned) == 1
    assert decided(planner, built)[0] == expected[0], "and goes on so, in silence"


def falsified(monkeypatch, change):
    """Patch the compiled search to return `change(outcome, space)` instead of a found plan."""
    search = CompiledSearch.search

    def changed(self, space, devices):
        outcome = search(self, space, devices)
        return change(outcome, space) if isinstance(outcome, Found) else outcome

    monkeypatch.setattr(CompiledSearch, "search", changed)


def rolled(outcome, space):
    """Move all shards of options placed by device to the next rank; the rating is unchanged."""
    ranks = outcome.ranks.copy()
    first = 0
    for option in outcome.options:
        last = first + int(np.diff(space.first_shard)[option])
        if space.placement[option] == 1:
            ranks[first:last] = (ranks[first:last] + 1) % 8
        first = last
    return replace(outcome, ranks=ranks)


def on_rank(rank):
    return lambda outcome, space: replace(outcome, ranks=np.full_like(outcome.ranks, rank))


FALSE = {
    "another rating": lambda outcome, space: replace(outcome, rating=outcome.rating * (1 + 1e-15)),
    "one rank": on_rank(0),
    "no rank": on_rank(-1),
    "a rank too many": on_rank(8),
    "a table less": lambda outcome, space: replace(outcome, options=outcome.options[:-1]),
    "a table twice": lambda outcome, space: replace(
        outcome,
        options=np.append(outcome.options, outcome.options[:1]),
        ranks=np.append(
            outcome.ranks, outcome.ranks[: np.diff(space.first_shard)[outcome.options[0]]]
        ),
    ),
}


@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.parametrize("change", FALSE.values(), ids=FALSE)
def test_a_wrong_plan_is_caught_and_torchrec_plans(monkeypatch, change, mode):
    falsified(monkeypatch, change)
    assert_distrusted(problem(), "[^.]", mode=mode, check=True)


def test_other_ranks_of_the_same_rating_are_caught_where_torchrecs_are_wanted(monkeypatch):
    falsified(monkeypatch, rolled)
    assert_distrusted(problem(), ".*(other ranks|rates|must be on rank)", check=True)


def test_wrong_estimates_are_caught(monkeypatch):
    built = problem()
    perf = Estimates.perf

    def cheap(self, number):
        estimated = perf(self, number)
        estimated.fwd_compute = estimated.fwd_compute * 0.5
        return estimated

    monkeypatch.setattr(Estimates, "perf", cheap)
    monkeypatch.setattr(Estimation, "_differ", lambda self, checks: False)
    upstream = new_planner(built, EmbeddingShardingPlanner)
    assert decided(new_planner(built), built) != decided(upstream, built)
    assert_distrusted(built, "torchrec estimates table .* differently", check=True)


@pytest.mark.parametrize("check", [False, True])
def test_a_search_that_fails_leaves_the_plan_to_torchrec(monkeypatch, check):
    monkeypatch.setattr(CompiledSearch, "flatten", lambda self, options: 1 / 0)
    assert_distrusted(problem(), ".*ZeroDivisionError: division by zero", check=check)


def test_a_proposal_that_only_torchrec_places_leaves_the_plan_to_torchrec(monkeypatch):
    falsified(monkeypatch, lambda found, _: NotFound(found.options, found.options, 1))
    assert_distrusted(problem(), "torchrec places a proposal")


@settings(max_examples=25)
@given(random=randoms, mode=st.sampled_from(BOTH))
@little_work
def test_a_right_plan_passes_the_check(random, mode):
    model = random_model(random)
    checked, unchecked = (
        Planner(**model.components(), mode=mode, search_seconds=60, check=check)
        for check in (True, False)
    )
    checked._clock = unchecked._clock = standing_still
    assert come_to(checked, model.module, model.sharders) == come_to(
        unchecked, model.module, model.sharders
    )
    assert checked._fault is None


def test_the_check_sees_where_shards_may_be():
    built = problem("synthetic[tables=4,seed=2]", gpus=16)
    planner = new_planner(built, proposer=None)
    planner.plan(built.module, built.sharders)
    plan = planner._best_plan

    def fault(change):
        changed = copy.deepcopy(plan)
        change(changed)
        rating = planner._perf_model.rate(plan)
        return fault_of(
            changed, rating, {option.fqn for option in plan}, built.topology, planner._perf_model
        )

    def first_shard(**changes):
        return lambda changed: vars(changed[0].shards[0]).update(changes)

    assert fault(lambda changed: None) is None
    assert "do not tile" in fault(first_shard(size=[0, 0]))
    assert "do not tile" in fault(first_shard(size=[10**9, 10**9]))
    assert "bytes of HBM" in fault(first_shard(storage=Storage(2**60, 0)))
    kinds = (
        ("row_wise", "uniform", [1]),
        ("table_row_wise", "host", [4, 5]),
        ("grid_shard", "multi_host", [1]),
    )
    for sharding_type, partition_by, ranks in kinds:

        def barred(changed, kind=sharding_type, by=partition_by, ranks=ranks):
            option = changed[0]
            option.sharding_type, option.partition_by = kind, by
            for shard, rank in zip(option.shards, ranks * 16, strict=False):
                shard.rank = rank

        assert "must be on rank" in fault(barred)


def test_rating_and_gap_of_a_plan_are_attributes_and_one_line_of_the_log(caplog):
    """They are those of the last plan: none before a plan, and no gap without a bound."""
    built = problem()
    planner = new_planner(built, mode="best-plan")
    assert (planner.max_rank_ms, planner.gap) == (None, None)
    with caplog.at_level(logging.INFO, "shardbench"):
        planner.plan(built.module, built.sharders)
    assert planner.max_rank_ms == planner._perf_model.rate(planner._best_plan)
    assert planner.gap == planner.max_rank_ms / planner.bound_ms - 1
    (line,) = (record for record in caplog.records if record.name == "shardbench")
    assert f"{planner.max_rank_ms:.4g} ms" in line.getMessage()
    assert f"{100 * planner.gap:.1f} %" in line.getMessage()
    plain = new_planner(built)
    plain.plan(built.module, built.sharders)
    assert plain.max_rank_ms == plain._perf_model.rate(plain._best_plan)
    assert plain.gap is None
    planner._storage_reservation = FixedPercentageStorageReservation(0.9999)
    planner._remedy_seconds = 0
    with pytest.raises(PlannerError):
        planner.plan(built.module, built.sharders)
    assert (planner.max_rank_ms, planner.gap) == (None, None)


@pytest.mark.parametrize("factor", [0.0, 1.0])
def test_options_that_torchrec_rejects_in_a_plan_are_left_out_of_the_best_one(factor):
    """A cache of the whole table, or of nothing, fits and is rejected; the best plan is valid."""
    built = problem("synthetic[tables=6,seed=2,memory=roomy]")
    constraints = {
        table.name: ParameterConstraints(
            compute_kernels=["fused_uvm", "fused_uvm_caching"],
            cache_params=CacheParams(load_factor=factor),
        )
        for table in built.tables
    }
    planner = new_planner(built, mode="best-plan", constraints=constraints)
    planner.plan(built.module, built.sharders)
    assert {option.compute_kernel for option in planner._best_plan} == {"fused_uvm"}
    for constraint in constraints.values():
        constraint.compute_kernels = ["fused_uvm_caching"]
    planner = new_planner(built, mode="best-plan", constraints=constraints)
    with pytest.raises(PlannerError, match="cache_load_factor"):
        planner.plan(built.module, built.sharders)


@given(
    kernel=st.sampled_from([*EmbeddingComputeKernel]).map(lambda kernel: kernel.value),
    kind=st.sampled_from([*ShardingType]).map(lambda kind: kind.value),
    factor=st.sampled_from([None, -1.0, 0.0, 0.2, 1.0, 2.0, math.nan]),
)
def test_what_is_acceptable_is_what_torchrec_accepts(kernel, kind, factor):
    """The rule is that of torchrec's `validate_compute_kernels`."""
    tensor, module = torch.empty(1, 1, device="meta"), ("bags", torch.nn.Module())
    cache = CacheParams(load_factor=factor)
    option = ShardingOption(
        "table", tensor, module, [1.0], 1, kind, "device", kernel, [], cache_params=cache
    )
    try:
        validate_compute_kernels([option])
    except PlannerError:
        assert not _is_accepted(option)
    else:
        assert _is_accepted(option)
