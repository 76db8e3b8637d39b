"""On made-up options, the compiled search has torchrec's plans, counts and errors."""

import copy
import math
from random import Random

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
    "none": lambda random: None,
    "greedy": lambda random: GreedyPerfPartitioner(
        random.choice([*SortBy]), balance_modules=random.random() < 0.5
    ),
    "memory": lambda random: MemoryBalancedPartitioner(
        random.randint(0, 12), random.choice([0, 0.02, 0.5]), random.random() < 0.5
    ),
}


@pytest.mark.parametrize("proposer", PROPOSERS)
@settings(max_examples=30)
@given(
    random=st.randoms(use_true_random=False),
    partitioner=st.sampled_from(sorted(PARTITIONERS)),
    twins=st.booleans(),
    plenty=st.sampled_from([1, 1, 2, 8]),
)
def test_planners_come_to_the_same(proposer, random, partitioner, twins, plenty):
    """Options may be equal: torchrec identifies one by a hash that ignores e.g. the batch size."""
    # The memory-balanced partitioner's search for a limit ends within 10 MB.
    unit = 8 * MEGABYTE if partitioner == "memory" else 1
    case = random_case(random, unit, most_tables=8 if plenty == 1 else 20)
    for device in case.topology.devices:  # with plenty, rows are rated without being placed
        for kind, amount in vars(device.storage).items():
            setattr(device.storage, kind, amount * plenty)
    if twins:
        case.options.insert(0, copy.deepcopy(random.choice(case.options)))
    seed = random.randint(0, 2**32)
    upstream, compiled = (
        planner(
            **components(case),
            proposer=PROPOSERS[proposer](),
            partitioner=PARTITIONERS[partitioner](Random(seed)),
        )
        for planner in (EmbeddingShardingPlanner, Planner)
    )
    expected = come_to(upstream)
    assert come_to(compiled) == expected
    error = expected[0][0]  # other than for a missing plan, e.g. for negative memory
    fell_over = isinstance(error, type) and error is not PlannerError
    assert compiled._warned == fell_over, "it was torchrec that searched"


SIZE = 10  # bytes of a shard


@st.composite
def even_cases(draw) -> Case:
    """Draw tables with equal shards, on ranks where one shard more each would not fit.

    Shards of a time that is equal on all ranks make the average load the exact rating.
    """
    ranks, slots = draw(st.integers(2, 12)), draw(st.integers(2, 9))
    ms = st.sampled_from([1.0, 1.01, 1.03, 2.0])
    counts = st.sampled_from([ranks, 2 * ranks, ranks + 1])
    tables = draw(st.lists(st.lists(st.tuples(counts, ms), min_size=1, max_size=3), max_size=3))
    options = [
        option(number, "device", *[(SIZE, 0, time)] * count)
        for number, table in enumerate([[(ranks, 1.0)], *tables])
        for count, time in table
    ]
    return Case(options, Topology(ranks, "cuda", slots * SIZE + SIZE - 1, 0))


@settings(max_examples=100)
@given(even_cases())
def test_rows_that_just_fit_and_ratings_that_just_differ_are_told_apart(case):
    """A row is rated without being placed only if it is no better and surely fits."""
    upstream, compiled = (
        planner(**components(case), proposer=GridSearchProposer(max_proposals=30))
        for planner in (EmbeddingShardingPlanner, Planner)
    )
    assert come_to(compiled) == come_to(upstream)
    assert not compiled._warned, "it was torchrec that searched"


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
    upstream, compiled = (
        planner(**components(case), proposer=GreedyProposer())
        for planner in (EmbeddingShardingPlanner, Planner)
    )
    assert come_to(compiled) == come_to(upstream)
    assert reason in caplog.text


def change(target, **attributes) -> None:
    for name, value in attributes.items():
        setattr(target, name, value)
