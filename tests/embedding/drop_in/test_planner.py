"""The drop-in planner plans as torchrec does, and does not change its arguments."""

import copy
import inspect
import logging
import pickle
from dataclasses import replace
from math import inf, nan

import pytest
from compared import come_to
from hypothesis import given, settings, strategies as st
from planned import OwnProposer, assert_same, decided, new_planner, problem, randoms
from random_models import random_model
from torch import nn
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    EmbeddingOffloadScaleupProposer,
    GreedyProposer,
    UniformProposer,
)
from torchrec.distributed.planner.types import ParameterConstraints, PlanLoader, ShardingOption
from torchrec.distributed.types import CacheParams, KeyValueParams
from torchrec.schema.utils import is_signature_compatible

from planners.embedding.drop_in import compiled_search
from planners.embedding.drop_in.planner import Planner
from planners.embedding.variants.rungs import OptionsEnumerator, WhollyCopiedOption


@pytest.mark.parametrize("name", ["__init__", "plan", "collective_plan"])
def test_its_signature_is_spelled_as_torchrecs(name):
    """Arguments of its own follow, by keyword only."""
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
    """One sentence says what is wrong."""
    with pytest.raises(ValueError, match=sentence):
        new_planner(problem(), **arguments)


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
    """Plan or error, and counts, are torchrec's."""
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


@given(random=randoms)
@settings(max_examples=15, deadline=None)
def test_key_value_and_virtual_tables_are_planned_as_by_torchrec(random):
    """Plan, counts and error are torchrec's, and the best plan is not slower."""
    kernels = ["fused", "key_value"], ["dram_virtual_table"], ["ssd_virtual_table", "fused"]
    built = problem("synthetic[tables=4,seed=2]")
    constraints = {
        table.name: ParameterConstraints(
            compute_kernels=random.choice(kernels),
            sharding_types=random.choice([["table_wise", "row_wise"], ["table_row_wise"]]),
            key_value_params=KeyValueParams(max_l1_cache_size=random.choice([1, 64])),
            pooling_factors=[random.choice([1.0, 20.0])],
        )
        for table in built.tables
    }
    for device in built.topology.devices:
        device.storage.hbm = random.choice([2**28, 2**31])
        device.storage.ssd = 2**40
    built = replace(built, constraints=constraints)
    plain, best = new_planner(built, check=True), new_planner(built, mode="best-plan", check=True)
    upstream = decided(new_planner(built, EmbeddingShardingPlanner), built)
    assert decided(plain, built) == upstream
    decided(best, built)
    assert not plain._warned
    assert not best._warned
    if plain.max_rank_ms is not None:
        assert best.max_rank_ms <= plain.max_rank_ms


def test_a_module_without_tables_has_an_empty_plan():
    """Nothing is proposed."""
    planner = new_planner(problem())
    assert planner.plan(nn.Linear(1, 1), [EmbeddingBagCollectionSharder()]).plan == {}
    assert (planner._num_proposals, planner._num_plans) == (0, 0)


class _Loader(PlanLoader):
    """A loader of these options, or of no plan."""

    def __init__(self, plan=None):
        self.plan = plan

    def load(self):
        return self.plan and {option.storage_hash(): option for option in self.plan}

    plan_context_hash = get_plan_id = lambda self: None


def _of_own_class(built):
    enumerator = OptionsEnumerator(built.topology, 512, built.constraints)
    enumerator.option = WhollyCopiedOption
    return enumerator


def _plan(built):
    planner = new_planner(built, EmbeddingShardingPlanner)
    planner.plan(built.module, built.sharders)
    return planner._best_plan


USED = {
    "options of an own class": lambda built: {"enumerator": _of_own_class(built)},
    "callbacks": lambda built: {"callbacks": [lambda plan: plan[:1]]},
    "a loader without a plan": lambda built: {"plan_loader": _Loader()},
    "a loaded plan, without a search": lambda built: {"plan_loader": _Loader(_plan(built))},
}


@pytest.mark.parametrize("arguments", USED.values(), ids=USED)
def test_the_users_components_are_used_as_by_torchrec(arguments):
    """The compiled search runs between them."""
    built = problem()
    assert_same(built, lambda: arguments(built))


class _OwnPartitioner(GreedyPerfPartitioner):
    pass


class _OwnPerfModel(NoopPerfModel):
    pass


class _HalfBytes(EmbeddingEnumerator):
    def enumerate(self, module, sharders):
        options = super().enumerate(module, sharders)
        options[0].shards[0].storage.hbm += 0.5
        return options


LEFT_TO_TORCHREC = {
    "OwnProposer is not compiled": lambda built: {"proposer": [UniformProposer(), OwnProposer()]},
    # It changes options and asks the enumerator about them, and so must get torchrec's own.
    "EmbeddingOffloadScaleupProposer is not compiled": lambda built: {
        "proposer": EmbeddingOffloadScaleupProposer()
    },
    "_OwnPartitioner is not compiled": lambda built: {"partitioner": _OwnPartitioner()},
    "_OwnPerfModel is not compiled": lambda built: {
        "performance_model": _OwnPerfModel(built.topology)
    },
    "the perf model is for another number of ranks": lambda built: {
        "performance_model": NoopPerfModel(problem(gpus=16).topology)
    },
    "an estimate is not in whole bytes": lambda built: {
        "enumerator": _HalfBytes(built.topology, 512, built.constraints)
    },
}


@pytest.mark.parametrize("reason", LEFT_TO_TORCHREC)
def test_what_is_not_compiled_is_said_once_and_left_to_torchrec(reason, caplog):
    """One warning of the logger has the reason."""
    built = problem()
    planner = assert_same(built, lambda: LEFT_TO_TORCHREC[reason](built), warned=True)
    decided(planner, built)
    (said,) = (record for record in caplog.records if record.name == "shardbench")
    assert said.getMessage() == f"The search is torchrec's own, since {reason}."
    assert said.levelno == logging.WARNING


def test_a_machine_that_is_not_used_is_said(caplog):
    """The planner has a part that its search does not know, so the search is torchrec's own."""
    planner = new_planner(
        problem(), mode="best-plan", machine="epyc_2core", partitioner=_OwnPartitioner()
    )
    assert planner.machine is None
    (said,) = (record.getMessage() for record in caplog.records if record.name == "shardbench")
    assert said == "Plans are not judged by the machine, since _OwnPartitioner is not compiled."


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


@pytest.mark.parametrize("hbm_share", [1, 0])
def test_the_users_components_are_back_afterwards(hbm_share):
    """With a plan or an error nothing stays replaced, and no option gets a rank."""
    built, options = problem(), []
    for device in built.topology.devices:
        device.storage.hbm *= hbm_share

    class Enumerator(EmbeddingEnumerator):
        def enumerate(self, module, sharders):
            options.extend(super().enumerate(module, sharders))
            return options

    own = {
        "enumerator": Enumerator(built.topology, 512, built.constraints),
        "proposer": [GreedyProposer(), UniformProposer()],
        "partitioner": GreedyPerfPartitioner(),
        "storage_reservation": built.storage_reservation(),
    }
    planner = new_planner(built, **own)
    decided(planner, built)
    assert bool(planner._best_plan) == bool(hbm_share)
    assert planner._proposers is own["proposer"]
    assert planner._partitioner is own["partitioner"]
    assert "reserve" not in vars(own["storage_reservation"])
    assert {shard.rank for option in options for shard in option.shards} == {None}


def test_an_error_has_the_memory_of_proposals_with_many_shards(monkeypatch):
    """They are not created; the text differs from torchrec's only in its last reason."""
    monkeypatch.setattr(compiled_search, "MOST_SHARDS", 0)
    built, texts = problem(), []
    for device in built.topology.devices:
        device.storage.hbm = 0
    for kind in (Planner, EmbeddingShardingPlanner):
        (_, _, text), _, _ = decided(new_planner(built, kind), built)
        texts.append(text.partition("Last planner error")[0])
    assert texts[0] == texts[1]
    assert "Global storage requirement" in texts[0]


def test_the_plan_shares_nothing_with_the_search_space():
    """Options of the search space have no ranks; tensors are the model's."""
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
