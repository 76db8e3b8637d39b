"""On made-up options, the compiled search has torchrec's plans, counts and errors."""

import copy
import math

import pytest
from compared import come_to, components
from hypothesis import given, settings, strategies as st
from proposing import option, topology
from random_options import MEGABYTE, Case, random_case
from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
    SortBy,
)
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.types import PlannerError

from planners.embedding.drop_in.planner import Planner
from planners.embedding.same_plan.bin_proposer import BinProposer
from planners.embedding.same_plan.proposals import PartitionRules
from planners.embedding.same_plan.search import SamePlan
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import devices_of, search_space

randoms = st.randoms(use_true_random=False)

PROPOSERS = {
    "default": lambda: None,
    "greedy with a threshold": lambda: GreedyProposer(threshold=2),
    "bins": BinProposer,
    "two": lambda: [DynamicProgrammingProposer(10), GreedyProposer(threshold=1)],
    "all": lambda: [
        UniformProposer(use_depth=False),
        GreedyProposer(),
        GridSearchProposer(max_proposals=30),
        DynamicProgrammingProposer(),
        GreedyProposer(threshold=3),
    ],
}
PARTITIONERS = {
    "none": lambda: None,
    "by perf, modules first": lambda: GreedyPerfPartitioner(SortBy.PERF, balance_modules=True),
    "memory": MemoryBalancedPartitioner,
}


@pytest.mark.parametrize("proposer", PROPOSERS)
@settings(max_examples=30)
@given(random=randoms, partitioner=st.sampled_from(sorted(PARTITIONERS)))
def test_planners_come_to_the_same(proposer, random, partitioner):
    case = random_case(random, unit=random.choice([1, 8 * MEGABYTE]), most_tables=8)
    upstream, compiled = planners(case, PROPOSERS[proposer], PARTITIONERS[partitioner])
    expected = come_to(upstream)
    assert come_to(compiled) == expected
    error = expected[0][0]  # other than for a missing plan, e.g. for negative memory
    fell_over = isinstance(error, type) and error is not PlannerError
    assert compiled._warned == fell_over, "it was torchrec that searched"


def planners(case: Case, proposer, partitioner=PARTITIONERS["none"]):
    """Return torchrec's planner and ours for a case, with new components."""
    return [
        planner(**components(case), proposer=proposer(), partitioner=partitioner())
        for planner in (EmbeddingShardingPlanner, Planner)
    ]


def small_case(hbm=(9, 2, 9, 3)) -> Case:
    """Return tables with two options each, the second one slower, on two ranks with 4 bytes."""
    options = [
        option(number // 2, (amount, 0, number % 2 + 1.0)) for number, amount in enumerate(hbm)
    ]
    return Case(options, topology("cuda", 2, 4, 100))


def search(case: Case, proposers, deadline=None):
    same_plan = SamePlan(proposers, PartitionRules(), deadline)
    return same_plan, same_plan(search_space(case.options), devices_of(case.topology))


def test_a_proposal_is_tried_once_whoever_makes_it():
    same_plan, outcome = search(small_case(), [GridSearchProposer(), GreedyProposer()])
    assert same_plan.proposals == 4 + 3
    assert (outcome.proposals, outcome.partitions) == (4, 1)


@pytest.mark.parametrize(("hbm", "smallest"), [((9, 8, 9, 8), [1, 3]), ((7, 7, 9, 9), [0, 2])])
def test_without_a_plan_the_first_of_the_smallest_and_the_last_proposal_are_kept(hbm, smallest):
    _, outcome = search(small_case(hbm), [GridSearchProposer()])
    assert isinstance(outcome, NotFound)
    assert (outcome.smallest.tolist(), outcome.last.tolist()) == (smallest, [1, 3])


def test_equal_options_are_one():
    """TorchRec identifies an option by its hash, which ignores e.g. the batch size."""
    case = small_case()
    twin = copy.deepcopy(case.options[1])
    case.options.append(twin)
    assert search(case, [GridSearchProposer()])[1].proposals == 4
    twin.shards[0].storage.hbm = 1
    assert search(case, [GridSearchProposer()])[1].proposals == 6


def test_time_that_is_up_ends_the_search_between_chunks():
    deadline = Deadline(5, iter([0, 4, 6]).__next__)
    same_plan, outcome = search(small_case(hbm=(0,) * 20), [GridSearchProposer()], deadline)
    assert isinstance(outcome, Found)
    assert outcome.proposals == same_plan.proposals == 16 + 32


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (lambda case: change(case.options[0].shards[0].storage, ddr=-1), "negative or not finite"),
        (lambda case: change(case.options[1].shards[0].perf, fwd_comms=math.inf), "not finite"),
        (
            lambda case: [change(option, dependency="tower") for option in case.options],
            "tables that depend on each other",
        ),
        (lambda case: change(case.options[0], partition_by="somewhere"), "does not know how"),
        (
            lambda case: (
                change(case.options[0], partition_by="multi_host", sharding_type="grid_shard"),
                change(case.topology, _intra_group_size=4),
            ),
            "no whole host for a grid",
        ),
        (
            lambda case: change(case.topology.devices[1].perf, bwd_comms=1.5),
            "devices are not empty",
        ),
        (
            lambda case: change(case.topology.devices[1].storage, ddr=3.5),
            "do not hold whole bytes",
        ),
        (
            lambda case: change(case.options[2], compute_kernel="key_value"),
            "kernel key_value by columns",
        ),
    ],
)
def test_a_case_that_is_not_compiled_is_left_to_torchrec(changed, reason, caplog):
    case = small_case()
    changed(case)
    upstream, compiled = planners(case, GreedyProposer)
    assert come_to(compiled) == come_to(upstream)
    assert reason in caplog.text


def change(target, **attributes) -> None:
    for name, value in attributes.items():
        setattr(target, name, value)
