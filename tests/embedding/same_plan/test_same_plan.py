"""On made-up options, the compiled search has torchrec's plans, counts and errors."""

import copy
import math

import pytest
from compared import come_to, components
from hypothesis import given, settings, strategies as st
from random_options import MEGABYTE, Case, random_case
from small_problems import option
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
from torchrec.distributed.planner.types import PlannerError, Topology

from planners.embedding.drop_in.planner import Planner
from planners.embedding.same_plan.bin_proposer import BinProposer
from planners.embedding.same_plan.proposals import PartitionRules
from planners.embedding.same_plan.search import SamePlan
from planners.embedding.search.outcome import Deadline, Found
from planners.embedding.search.space import devices_of, search_space

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
@given(
    random=st.randoms(use_true_random=False),
    partitioner=st.sampled_from(sorted(PARTITIONERS)),
    twins=st.booleans(),
)
def test_planners_come_to_the_same(proposer, random, partitioner, twins):
    """Options may be equal: torchrec identifies one by a hash that ignores e.g. the batch size."""
    case = random_case(random, unit=random.choice([1, 8 * MEGABYTE]), most_tables=8)
    if twins:
        case.options.insert(0, copy.deepcopy(random.choice(case.options)))
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


def small_case() -> Case:
    """Return tables with two options each, the second one slower, on two ranks."""
    options = [option(number // 2, "device", (0, 0, number % 2 + 1.0)) for number in range(20)]
    return Case(options, Topology(2, "cuda", 4, 100))


def test_time_that_is_up_ends_the_search_between_chunks():
    """The clock passes the deadline after the second chunk of proposals."""
    case, deadline = small_case(), Deadline(5, iter([0, 4, 6]).__next__)
    same_plan = SamePlan([GridSearchProposer()], PartitionRules(), deadline)
    outcome = same_plan(search_space(case.options), devices_of(case.topology))
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
    """The planner logs the reason, and comes to what torchrec's planner does."""
    case = small_case()
    changed(case)
    upstream, compiled = planners(case, GreedyProposer)
    assert come_to(compiled) == come_to(upstream)
    assert reason in caplog.text


def change(target, **attributes) -> None:
    for name, value in attributes.items():
        setattr(target, name, value)
