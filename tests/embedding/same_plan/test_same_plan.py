"""On made-up options, the compiled search has torchrec's plans, counts and errors."""

import copy
import math
from random import Random

import pytest
from compared import come_to, components
from hypothesis import given, settings, strategies as st
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
from torchrec.distributed.planner.types import (
    CustomTopologyData,
    Perf,
    PlannerError,
    Shard,
    Storage,
    Topology,
)

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
    "by perf": lambda: GreedyPerfPartitioner(SortBy.PERF),
    "modules first": lambda: GreedyPerfPartitioner(balance_modules=True),
    "memory": MemoryBalancedPartitioner,
    "memory, modules first": lambda: MemoryBalancedPartitioner(3, 0.5, balance_modules=True),
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


# Two tables on two ranks: options 0 and 1 are of one table, 2 and 3 of the other; 1 and 3 cost
# more, and 0 and 2 do not fit.
def small_case(hbm=(9, 2, 9, 3)) -> Case:
    case = random_case(Random(5), most_tables=1)
    options = []
    for number, amount in enumerate(hbm):
        option = copy.deepcopy(case.options[0])
        option.name = f"table_{number // 2}"
        option.sharding_type, option.partition_by = "table_wise", "device"
        option.compute_kernel = ("fused", "fused_uvm")[number % 2]
        option.shards = [Shard([1, 1], [0, 0], Storage(amount, 0), Perf(number % 2 + 1.0, 0, 0, 0))]
        options.append(option)
    data = CustomTopologyData({"hbm_cap": [4, 4]}, 2)
    return Case(options, Topology(2, "cuda", custom_topology_data=data, created_by_factory=True))


def search(case: Case, proposers, **arguments):
    same_plan = SamePlan(proposers, PartitionRules(), **arguments)
    outcome = same_plan(search_space(case.options), devices_of(case.topology))
    return same_plan, outcome


def test_a_proposal_is_tried_once_whoever_makes_it():
    same_plan, outcome = search(small_case(), [GridSearchProposer(), GreedyProposer()])
    assert same_plan.proposals == 4 + 3
    assert (outcome.proposals, outcome.partitions) == (4, 1)


@pytest.mark.parametrize(("hbm", "smallest"), [((9, 8, 9, 8), [1, 3]), ((7, 7, 9, 9), [0, 2])])
def test_without_a_plan_the_first_of_the_smallest_and_the_last_proposal_are_kept(hbm, smallest):
    _, outcome = search(small_case(hbm), [GridSearchProposer()])
    assert isinstance(outcome, NotFound)
    assert outcome.smallest.tolist() == smallest
    assert outcome.last.tolist() == [1, 3]
    assert outcome.proposals == 4


def test_equal_options_are_one():
    """TorchRec identifies an option by its hash, which ignores e.g. the batch size."""
    case = small_case()
    twin = copy.deepcopy(case.options[1])
    _, alone = search(case, [GridSearchProposer()])
    case.options.append(twin)
    _, with_twin = search(case, [GridSearchProposer()])
    assert with_twin.proposals == alone.proposals
    twin.shards[0].storage.hbm = 1
    _, with_another = search(case, [GridSearchProposer()])
    assert with_another.proposals == 6


def test_time_that_is_up_ends_the_search_between_chunks():
    case = small_case(hbm=(0,) * 20)
    _, whole = search(case, [GridSearchProposer()], deadline=None)
    assert whole.proposals == 2**10
    same_plan, outcome = search(
        case, [GridSearchProposer()], deadline=Deadline(5, iter([0, 4, 6]).__next__)
    )
    assert isinstance(outcome, Found)
    assert outcome.proposals == same_plan.proposals == 16 + 32


def with_two_tables_to_hold_together(case: Case) -> None:
    for option in case.options:
        option.dependency = "tower"


def with_a_grid_and_no_whole_host(case: Case) -> None:
    case.options[0].partition_by = "multi_host"
    case.options[0].sharding_type = "grid_shard"
    case.topology._intra_group_size = 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda case: setattr(case.options[0].shards[0].storage, "ddr", -1),
            "negative or not finite",
        ),
        (
            lambda case: setattr(case.options[1].shards[0].perf, "fwd_comms", math.inf),
            "negative or not finite",
        ),
        (with_two_tables_to_hold_together, "tables that depend on each other"),
        (with_a_grid_and_no_whole_host, "no whole host for a grid"),
        (
            lambda case: setattr(case.topology.devices[1].perf, "bwd_comms", 1.5),
            "devices are not empty",
        ),
        (
            lambda case: setattr(case.topology.devices[1].storage, "ddr", 3.5),
            "do not hold whole bytes",
        ),
        (
            lambda case: vars(case.options[2]).update(
                compute_kernel="key_value", sharding_type="column_wise"
            ),
            "kernel key_value by columns",
        ),
    ],
)
def test_a_case_that_is_not_compiled_is_left_to_torchrec(change, reason, caplog):
    case = small_case()
    change(case)
    upstream, compiled = planners(case, GreedyProposer)
    assert come_to(compiled) == come_to(upstream)
    assert reason in caplog.text
