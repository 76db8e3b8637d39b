"""The drop-in planner plans as torchrec does, and does not change its arguments."""

import copy
import inspect
import logging
import pickle
from math import inf, nan

import pytest
import torch.distributed as dist
from compared import come_to
from hypothesis import given, strategies as st
from planned import decided, new_planner, problem, randoms
from random_models import random_model
from torch import nn
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
    SortBy,
)
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    GreedyProposer,
    UniformProposer,
)
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, ShardingOption
from torchrec.distributed.types import CacheParams
from torchrec.schema.utils import is_signature_compatible

from planners.embedding.drop_in.planner import Planner

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


@pytest.mark.parametrize("name", ["__init__", "plan", "collective_plan"])
def test_its_signature_is_spelled_as_torchrecs(name):
    theirs = inspect.signature(getattr(EmbeddingShardingPlanner, name))
    ours = inspect.signature(getattr(Planner, name))
    assert is_signature_compatible(theirs, ours)
    parameters = [*ours.parameters.values()]
    more = parameters[len(theirs.parameters) :]
    assert [*map(str, parameters)] == [*map(str, (*theirs.parameters.values(), *more))]
    assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in more)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"mode": "x"}, r"^The mode must be .* not 'x'\.$"),
        *(({"search_seconds": s}, f"not {s!r}") for s in (0, -1.0, nan, inf)),
        ({"previous": "plan.json"}, "needs mode 'best-plan'"),
        ({"move_budget": 1.0}, "need a previous plan"),
        ({"lost_ranks": [1]}, "need a previous plan"),
        ({"mode": "best-plan", "previous": "p", "cache": object()}, "give one only"),
        *(
            ({"mode": "best-plan", "previous": "p", "move_budget": b}, f"at least 0 GiB, not {b!r}")
            for b in (-1, nan)
        ),
    ],
)
def test_wrong_arguments_are_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        new_planner(problem(), **arguments)


@given(
    random=randoms,
    proposer=st.sampled_from(PROPOSERS),
    partitioner=st.sampled_from(PARTITIONERS),
)
def test_real_models_are_planned_as_by_torchrec(random, proposer, partitioner):
    """The plan passes the check, too; without memory, torchrec's own search runs."""
    model = random_model(random)
    compiled, upstream = (
        planner(**model.components(), **more, proposer=proposer(), partitioner=partitioner())
        for planner, more in ((Planner, {"check": True}), (EmbeddingShardingPlanner, {}))
    )
    expected = come_to(upstream, model.module, model.sharders)
    assert come_to(compiled, model.module, model.sharders) == expected
    without_hbm = proposer is DynamicProgrammingProposer and model.topology.compute_device == "cpu"
    assert compiled._warned == (without_hbm and expected[0][0] is not RuntimeError)
    assert compiled._fault is None


ODD_LISTS = st.none() | st.lists(
    st.sampled_from([-1.0, -0.001, 0.0, 0.3, 1.0, 2.5, nan, inf, None, "x"]), max_size=2
)


@given(
    random=randoms,
    pooling_factors=ODD_LISTS,
    min_partition=st.sampled_from([None, None, -1, 0, 1.5, 32, "x"]),
    num_poolings=st.none() | st.none() | ODD_LISTS,
    batch_sizes=st.none() | st.none() | ODD_LISTS,
    load_factor=st.sampled_from([None, -1.0, 0.2, 2.0, nan]),
    kernels=st.sampled_from([None, [], ["fused"], ["nonsense"], ["fused_uvm_caching", None]]),
    types=st.sampled_from([None, ["row_wise"], ["column_wise"], ["nonsense"], "row_wise"]),
)
def test_malformed_constraints_come_to_what_they_come_to_with_torchrec(
    random, load_factor, kernels, types, **lists
):
    logging.getLogger("torchrec").setLevel(logging.ERROR)
    model = random_model(random, most_tables=2)
    table = ParameterConstraints(
        sharding_types=types,
        compute_kernels=kernels,
        cache_params=load_factor and CacheParams(load_factor=load_factor),
        **lists,
    )
    upstream, ours = (
        kind(**{**model.components(), "constraints": {"table_0": table}})
        for kind in (EmbeddingShardingPlanner, Planner)
    )
    expected = come_to(upstream, model.module, model.sharders)
    assert come_to(ours, model.module, model.sharders) == expected


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
@pytest.mark.parametrize("mode", ["same-plan", "best-plan"])
def test_a_planner_is_copied_and_pickled_before_planning_and_after(mode, copied):
    """A copy plans again, and other models, although its proposer keeps state."""
    built, proposer = problem(), DynamicProgrammingProposer()
    planner = new_planner(built, mode=mode, proposer=proposer)
    before = copied(planner)
    expected = decided(planner, built)
    assert decided(before, built) == expected
    after = copied(planner)
    assert decided(after, built) == expected
    other = problem("synthetic[tables=3,seed=9]")
    fresh = new_planner(other, mode=mode, proposer=proposer, constraints=built.constraints)
    assert decided(after, other) == decided(fresh, other)


def test_a_module_without_tables_has_an_empty_plan():
    planner = new_planner(problem())
    assert planner.plan(nn.Linear(1, 1), [EmbeddingBagCollectionSharder()]).plan == {}
    assert (planner._num_proposals, planner._num_plans) == (0, 0)


@pytest.mark.parametrize("hbm_share", [1, 0])
def test_the_users_components_are_back_afterwards(hbm_share):
    built = problem()
    for device in built.topology.devices:
        device.storage.hbm *= hbm_share
    proposers, partitioner = [GreedyProposer(), UniformProposer()], GreedyPerfPartitioner()
    reservation = built.storage_reservation()
    planner = new_planner(
        built, proposer=proposers, partitioner=partitioner, storage_reservation=reservation
    )
    outcome = decided(planner, built)[0]
    assert (outcome[0] is PlannerError) == (not hbm_share)
    assert planner._proposers is proposers
    assert planner._partitioner is partitioner
    assert "reserve" not in vars(reservation)


def test_the_plan_shares_nothing_with_the_search_space():
    built = problem()
    planner = new_planner(built)
    planner.plan(built.module, built.sharders)

    def parts(options):
        for option in options:
            yield id(option)
            for shard in option.shards:
                yield from map(id, (shard, shard.size, shard.offset, shard.storage, shard.perf))

    stored = planner._enumerator.last_stored_search_space
    assert {shard.rank for option in stored for shard in option.shards} == {None}
    assert not {*parts(stored)} & {*parts(planner._best_plan)}
    tensors = {option.fqn: option.tensor for option in stored}
    for option in planner._best_plan:
        assert type(option) is ShardingOption
        assert option.tensor is tensors[option.fqn]


def test_rating_and_gap_of_a_plan_are_attributes_and_one_line_of_the_log(caplog):
    """They are those of the last plan: none without a plan, and no gap without a bound."""
    built = problem()
    planner, plain = new_planner(built, mode="best-plan", remedy_seconds=0), new_planner(built)
    with caplog.at_level(logging.INFO, "shardbench"):
        planner.plan(built.module, built.sharders)
    assert planner.max_rank_ms == planner._perf_model.rate(planner._best_plan)
    assert planner.gap == planner.max_rank_ms / planner.bound_ms - 1
    (line,) = (record.getMessage() for record in caplog.records if record.name == "shardbench")
    assert line == f"{planner.max_rank_ms:.4g} ms, {100 * planner.gap:.1f} % above the bound"
    plain.plan(built.module, built.sharders)
    assert plain.max_rank_ms
    assert plain.gap is None
    planner._storage_reservation = FixedPercentageStorageReservation(0.9999)
    with pytest.raises(PlannerError):
        planner.plan(built.module, built.sharders)
    assert (planner.max_rank_ms, planner.gap) == (None, None)


def test_it_plans_collectively():
    built = problem()
    expected = new_planner(built).plan(built.module, built.sharders)
    if dist.is_initialized():  # a fake one, which another test's planner left
        dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        plan = new_planner(built).collective_plan(built.module, built.sharders)
    finally:
        dist.destroy_process_group()
    assert plan.plan == expected.plan
