"""Every rung of the ladder decides the same, and copies exactly what it says it copies."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.contract import InfeasibleDecision, WorkloadSpec
from harness.measuring.check import check
from harness.measuring.timing.clock import SystemClock
from harness.topologies.lookup import find_topology
from planners.embedding import FAMILY
from planners.embedding.decision import fingerprint
from planners.embedding.problem import build
from planners.embedding.studies import LADDER


def problem(workload: str, topology: str = "dgx_a100_80gb", gpus: int = 16):
    return build(WorkloadSpec.parse(workload), find_topology(topology, gpus))


@pytest.fixture(scope="module")
def checked():
    built = problem("synthetic[tables=6,seed=2,memory=tight]")
    return {name: check(FAMILY, FAMILY.find(name), built, SystemClock()) for name in LADDER}


def outcome(variant: str, built) -> str:
    """The fingerprint of a variant's plan, or why it has none."""
    try:
        return fingerprint(FAMILY.find(variant).prepared(built).run())
    except InfeasibleDecision as error:
        return str(error)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    tables=st.integers(1, 5),
    seed=st.integers(0, 1000),
    memory=st.sampled_from(["roomy", "tight", "mixed"]),
    place=st.sampled_from([("dgx_a100_80gb", 8), ("aws_g4dn_12xlarge", 8), ("v100_x8", 4)]),
)
def test_all_rungs_decide_the_same(tables, seed, memory, place):
    built = problem(f"synthetic[tables={tables},seed={seed},memory={memory}]", *place)
    assert len({outcome(name, built) for name in LADDER}) == 1


def test_the_ladder_is_a_chain_from_the_reference_to_upstream():
    assert FAMILY.reference.name == LADDER[0]
    assert [FAMILY.find(name).same_as for name in LADDER[1:]] == list(LADDER[:-1])


def test_all_rungs_make_the_same_proposals(checked):
    assert len({each.counters["proposals"] for each in checked.values()}) == 1
    assert len({each.counters["annotation_lookups"] for each in checked.values()}) == 1


def test_each_proposal_is_copied_as_often_as_the_rung_says(checked):
    proposals = checked["upstream"].counters["proposals"]
    improvements = checked["upstream"].counters["plan_copies"]
    assert 0 < improvements < proposals
    copies = {name: each.counters["plan_copies"] - improvements for name, each in checked.items()}
    # The proposer is asked once more than it has proposals; copying nothing is no copy of a plan.
    assert copies == {
        "double-deepcopy": 2 * proposals,
        "single-deepcopy": proposals,
        "custom-deepcopy": proposals,
        "copy-if-better": 0,
        "upstream": 0,
    }


def test_the_topology_is_copied_for_each_proposal_but_upstream(checked):
    devices = {name: each.counters["device_copies"] for name, each in checked.items()}
    partitions = checked["upstream"].counters["partitions"]
    assert {name: count - devices["upstream"] for name, count in devices.items()} == {
        **dict.fromkeys(LADDER[:-1], partitions),
        "upstream": 0,
    }


def test_each_rung_copies_fewer_objects(checked):
    copied = [checked[name].counters["objects_copied"] for name in LADDER]
    assert copied == sorted(copied, reverse=True)
    assert copied[0] > 4 * copied[-1]


def test_counters_repeat_exactly(checked):
    built = problem("synthetic[tables=6,seed=2,memory=tight]")
    again = check(FAMILY, FAMILY.find("custom-deepcopy"), built, SystemClock())
    assert again.counters == checked["custom-deepcopy"].counters
    assert again.fingerprint == checked["custom-deepcopy"].fingerprint


def test_a_wholly_copied_option_shares_nothing(checked):
    from planners.embedding.variants.copies import WhollyCopiedOptionEnumerator

    built = problem("synthetic[tables=2,seed=2]")
    enumerator = WhollyCopiedOptionEnumerator(
        topology=built.topology, batch_size=512, constraints=built.constraints
    )
    option = enumerator.enumerate(built.module, built.sharders)[0]
    copied = copy.deepcopy(option)
    assert copied.module[1] is not option.module[1]
    assert copied.tensor is not option.tensor
    assert hash(copied) == hash(option), "the planner knows proposals by this hash"


def test_the_observer_leaves_nothing_behind():
    from torchrec.distributed.planner.estimator import annotations
    from torchrec.distributed.planner.planners import EmbeddingShardingPlanner

    from harness.contract import Recorder
    from planners.embedding.observer import observe

    def state():
        return (
            EmbeddingShardingPlanner.plan,
            copy.deepcopy,
            annotations._get_annotated_method,
            annotations._get_coefficient_method,
        )

    before = state()
    with observe(Recorder()):
        assert state() != before
    assert state() == before


@pytest.mark.parametrize("name", ["uniform", "greedy-sum", "default", "dp-torchrec"])
def test_variants_that_decide_for_themselves_make_valid_plans(name):
    built = problem("synthetic[tables=5,seed=2,memory=roomy]")
    found = check(FAMILY, FAMILY.find(name), built, SystemClock())
    assert found.quality["max_rank_ms"] > 0
    assert found.counters["proposals"] >= found.counters["partitions"] > 0
    assert set(found.phases) <= set(FAMILY.phases)


def test_a_planner_is_new_for_every_call():
    """The dynamic programme keeps `_inited`: reused, it would propose nothing the second time."""
    built = problem("synthetic[tables=4,seed=2]")
    run = FAMILY.find("dp-torchrec").prepared(built).run
    assert fingerprint(run()) == fingerprint(run())
