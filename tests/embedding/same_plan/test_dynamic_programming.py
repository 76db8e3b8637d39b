"""The dynamic programme: compiled, it proposes what torchrec's and the plain Python one do."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proposing import BYTES, compiled, driven, option, real_options, search_spaces, topology
from torchrec.distributed.planner.proposers import DynamicProgrammingProposer

from harness.contract import InfeasibleDecision, WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding import FAMILY
from planners.embedding.decision import fingerprint, validate
from planners.embedding.problem import build
from planners.embedding.same_plan.bin_proposer import BinProposer
from planners.embedding.same_plan.dynamic_programming import bin_proposals
from planners.embedding.search.space import devices_of, search_space

hbm_proposals = partial(bin_proposals, hbm_only=True)


@given(search_spaces(), st.integers(1, 3), st.integers(1, 60), st.integers(1, 9))
def test_it_proposes_what_torchrec_does(drawn, ranks, capacity, bins):
    unit, options = drawn
    placed_on = topology("cuda", ranks, capacity * unit)
    expected = driven(DynamicProgrammingProposer(bins), options, placed_on)
    assert compiled(hbm_proposals, options, placed_on, bins) == expected
    if any(each.total_storage.hbm for each in options):
        assert driven(BinProposer(bins), options, placed_on) == expected


@pytest.mark.parametrize(("device", "hbm"), [("cuda", BYTES), ("cpu", st.just(0))])
@given(data=st.data(), ranks=st.integers(1, 3), capacity=st.integers(1, 60), bins=st.integers(1, 9))
def test_it_proposes_what_the_plain_one_does_twice(device, hbm, data, ranks, capacity, bins):
    unit, options = data.draw(search_spaces(hbm))
    placed_on = topology(device, ranks, capacity * unit)
    proposer = BinProposer(bins)
    expected = driven(proposer, options, placed_on)
    assert compiled(bin_proposals, options, placed_on, bins) == expected
    assert driven(proposer, options, placed_on) == expected


@pytest.mark.parametrize("memory", ["roomy", "tight", "mixed"])
def test_it_proposes_the_same_on_real_tables(memory):
    options, placed_on = real_options(20, memory)
    expected = driven(DynamicProgrammingProposer(), options, placed_on)
    assert len(expected) > 50
    assert driven(BinProposer(), options, placed_on) == expected
    assert compiled(hbm_proposals, options, placed_on) == expected
    assert compiled(bin_proposals, options, placed_on) == expected


VARIANTS = ("dp-torchrec", "dp-tzrec", "dp-compiled")


@pytest.mark.parametrize(
    "workload", ["synthetic[tables=12,seed=3]", "dlrm-856[tables=16,seed=3,memory=tight]"]
)
def test_the_variants_decide_the_same(workload):
    problem = build(WorkloadSpec.parse(workload), find_topology("dgx_a100_80gb", 16))
    plans = [FAMILY.find(name).prepared(problem).run() for name in VARIANTS]
    validate(problem, plans[-1])
    assert len({fingerprint(plan) for plan in plans}) == 1


def test_the_variants_find_no_plan_after_the_same_proposals():
    problem = build(
        WorkloadSpec.parse("synthetic[tables=12,seed=7,memory=mixed]"),
        find_topology("dgx_a100_80gb", 16),
    )
    reasons = set()
    for name in VARIANTS:
        with pytest.raises(InfeasibleDecision, match=r"0 of \d+ proposals") as raised:
            FAMILY.find(name).prepared(problem).run()
        reasons.add(str(raised.value))
    assert len(reasons) == 1


def test_the_cheapest_of_a_bin_is_proposed_from_the_fullest_down():
    options = [
        option(0, (10, 0, 5.0)),
        option(0, (40, 0, 1.0)),
        option(1, (20, 0, 4.0)),
        option(1, (22, 0, 3.0)),  # the same bin as the one before, and cheaper
        option(1, (90, 0, 0.0)),
    ]
    expected = [[0, 2], [1, 3], [0, 3]]
    placed_on = topology("cuda", 1, 100)
    assert driven(BinProposer(10), options, placed_on) == expected
    assert compiled(bin_proposals, options, placed_on, 10) == expected


@pytest.mark.parametrize("size", [100, 101])
def test_a_table_that_fits_nowhere_leaves_the_first_proposal_alone(size):
    options = [option(0, (10, 0, 1.0)), option(1, (size, 0, 1.0)), option(2, (20, 0, 1.0))]
    placed_on = topology("cuda", 1, 100)
    assert driven(BinProposer(), options, placed_on) == [[0, 2, 1]]
    assert compiled(bin_proposals, options, placed_on) == [[0, 2, 1]]
    assert compiled(hbm_proposals, options, placed_on) == [[0, 2, 1]]


def test_options_that_want_hbm_where_there_is_none_leave_the_first_proposal_alone():
    options = [option(0, (10, 5, 1.0))]
    placed_on = topology("cpu", 2, 100)
    assert driven(BinProposer(), options, placed_on) == [[0]]
    assert compiled(bin_proposals, options, placed_on) == [[0]]
    assert compiled(hbm_proposals, options, placed_on) == [[0]]


def test_without_tables_nothing_is_proposed():
    placed_on = topology("cuda", 1, 100)
    assert driven(BinProposer(), [], placed_on) == []
    assert list(bin_proposals(search_space([]), devices_of(placed_on))) == []


def test_a_bin_proposer_says_what_it_needs():
    with pytest.raises(ValueError, match="at least 1, not 0"):
        BinProposer(0)
    proposer = BinProposer()
    proposer.load([option(0, (1, 0, 1.0))])
    with pytest.raises(ValueError, match="what the devices can hold"):
        proposer.feedback(True)
