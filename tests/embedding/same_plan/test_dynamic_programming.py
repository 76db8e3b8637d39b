"""The compiled dynamic programmes make the same proposals as torchrec's, plain and NumPy ones."""

from functools import partial
from itertools import product

import pytest
from built_problem import problem
from hypothesis import given, strategies as st
from proposing import BYTES, compiled, driven, option, real_options, search_spaces, topology
from torchrec.distributed.planner.proposers import DynamicProgrammingProposer

from harness.contract import InfeasibleDecision
from planners.embedding import FAMILY
from planners.embedding.decision import fingerprint, validate
from planners.embedding.same_plan.bin_proposer import BinProposer, BinProposer2D
from planners.embedding.same_plan.proposals import bin_proposals, bin_proposals_2d

hbm_proposals = partial(bin_proposals, hbm_only=True)

BINS = st.integers(1, 9)
DEVICES = pytest.mark.parametrize(("device", "hbm"), [("cuda", BYTES), ("cpu", st.just(0))])
FORMS = pytest.mark.parametrize(
    ("proposer", "proposals"), [(BinProposer, bin_proposals), (BinProposer2D, bin_proposals_2d)]
)


@given(search_spaces(), st.integers(1, 3), st.integers(1, 60), BINS)
def test_it_proposes_as_torchrec_does(drawn, ranks, capacity, bins):
    unit, options = drawn
    devices = topology("cuda", ranks, capacity * unit)
    expected = driven(DynamicProgrammingProposer(bins), options, devices)
    assert compiled(hbm_proposals, options, devices, bins) == expected
    if any(one.total_storage.hbm for one in options):
        assert driven(BinProposer(bins), options, devices) == expected


@DEVICES
@FORMS
@given(data=st.data(), ranks=st.integers(1, 4), capacity=st.integers(1, 60), ddr=st.integers(1, 60))
def test_it_proposes_as_the_uncompiled_one_does_twice(
    device, hbm, proposer, proposals, data, ranks, capacity, ddr
):
    unit, options = data.draw(search_spaces(hbm))
    host_ranks = data.draw(st.sampled_from([count for count in (1, 2, 4) if ranks % count == 0]))
    devices = topology(device, ranks, capacity * unit, ddr * unit, host_ranks)
    bins = [data.draw(BINS) for _ in range(1 if proposer is BinProposer else 2)]
    uncompiled = proposer(*bins)
    expected = driven(uncompiled, options, devices)
    assert compiled(proposals, options, devices, *bins) == expected
    assert driven(uncompiled, options, devices) == expected


@given(search_spaces(ddr=st.just(0)), st.integers(1, 3), st.sampled_from([32, 64]), BINS)
def test_both_forms_agree_without_ties_where_no_option_takes_ddr(drawn, ranks, capacity, bins):
    _, options = drawn
    for number, one in enumerate(options):  # sums of powers of two are exact, and never equal
        for index, shard in enumerate(one.shards):
            shard.perf.fwd_compute = 0.0 if index else 2.0**number
    # A bin is a power of two of units: its parts and all sums are exact in single precision
    devices = topology("cuda", ranks, bins * capacity * (10**9 + 7))
    in_one = driven(BinProposer(bins), options, devices)
    assert driven(BinProposer2D(bins), options, devices) == in_one


@given(search_spaces(), st.integers(1, 3), st.integers(1, 60), st.integers(1, 60))
def test_no_combination_that_it_could_have_proposed_is_cheaper(drawn, ranks, hbm, ddr):
    """Uses a bin for each byte, few tables, and numbers that are exact in single precision."""
    unit, options = drawn
    options = [one for one in options if one.name in ("table_0", "table_1")]
    for shard in (shard for one in options for shard in one.shards):
        shard.perf.fwd_compute = float(int(shard.perf.fwd_compute))
        shard.storage.hbm, shard.storage.ddr = shard.storage.hbm // unit, shard.storage.ddr // unit
    devices = topology("cuda", ranks, hbm, ddr)
    fitting = {one.fqn: [] for one in options}
    for one in options:
        if all(s.storage.hbm <= hbm and s.storage.ddr <= ddr * ranks for s in one.shards):
            fitting[one.fqn].append(one)
    least = {}
    for chosen in product(*fitting.values()):
        held = [sum(getattr(o.total_storage, kind) for o in chosen) for kind in ("hbm", "ddr")]
        if held[0] < hbm * ranks and held[1] < ddr * ranks:
            perf = sum(one.total_perf for one in chosen)
            least[held[0]] = min(perf, least.get(held[0], perf))
    found = {
        sum(options[number].total_storage.hbm for number in chosen): sum(
            options[number].total_perf for number in chosen
        )
        for chosen in driven(BinProposer2D(hbm, ddr), options, devices)[1:]
    }
    assert found == least
    assert list(found) == sorted(found, reverse=True)


@pytest.mark.parametrize("memory", ["roomy", "tight", "mixed"])
def test_they_propose_the_same_on_real_tables(memory):
    options, devices = real_options(20, memory)
    expected = driven(DynamicProgrammingProposer(), options, devices)
    assert len(expected) > 50
    assert driven(BinProposer(), options, devices) == expected
    assert compiled(hbm_proposals, options, devices) == expected
    assert compiled(bin_proposals, options, devices) == expected
    options, devices = real_options(40, memory)
    expected = driven(BinProposer2D(), options, devices)
    assert len(expected) > 50
    assert compiled(bin_proposals_2d, options, devices) == expected


@pytest.mark.parametrize(
    "variants", [("dp-torchrec", "dp-tzrec", "dp-compiled"), ("dp-tzrec-2d", "dp-compiled-2d")]
)
@pytest.mark.parametrize(
    "workload",
    [
        "synthetic[tables=12,seed=3]",
        "dlrm-856[tables=16,seed=3,memory=tight]",
        "synthetic[tables=12,seed=7,memory=mixed]",
    ],
)
def test_the_variants_decide_the_same(variants, workload):
    built = problem(workload)
    outcomes = set()
    for name in variants:
        try:
            plan = FAMILY.find(name).prepared(built).run()
        except InfeasibleDecision as error:
            outcomes.add(str(error))
        else:
            validate(built, plan)
            outcomes.add(fingerprint(plan))
    assert len(outcomes) == 1
    if "mixed" in workload and "dp-torchrec" in variants:
        assert "(0 of " in outcomes.pop()


@pytest.mark.parametrize(
    ("forms", "options", "expected"),
    [
        # The second option of table 1 ends in the bin of the first, and is cheaper.
        (
            [(BinProposer(10), partial(bin_proposals, bins_per_device=10))],
            [(0, (10, 0, 5.0)), (0, (40, 0, 1.0)), (1, (20, 0, 4.0)), (1, (22, 0, 3.0)),
             (1, (90, 0, 0.0))],
            [[0, 2], [1, 3], [0, 3]],
        ),
        # (0, 2) takes 110 bytes of DDR: it is the first proposal for its total memory alone.
        (
            [(BinProposer2D(), bin_proposals_2d)],
            [(0, (10, 90, 1.0)), (0, (20, 0, 3.0)), (1, (10, 20, 1.0)), (1, (60, 0, 2.0))],
            [[1, 2], [1, 3], [0, 3], [1, 2]],
        ),
        # Table 1 fits nowhere, which leaves the first proposal alone.
        (
            [(BinProposer(), bin_proposals), (BinProposer(), hbm_proposals),
             (BinProposer2D(), bin_proposals_2d)],
            [(0, (10, 0, 1.0)), (1, (101, 0, 1.0)), (2, (20, 0, 1.0))],
            [[0, 2, 1]],
        ),
    ],
)  # fmt: skip
def test_small_cases(forms, options, expected):
    options = [option(*one) for one in options]
    devices = topology("cuda", 1, 100)
    for proposer, proposals in forms:
        assert driven(proposer, options, devices) == expected
        assert compiled(proposals, options, devices) == expected


def test_a_full_device_takes_no_table_of_its_size():
    options = [option(0, (10, 0, 1.0)), option(1, (100, 0, 1.0))]
    devices = topology("cuda", 1, 100)
    assert driven(BinProposer(), options, devices) == [[0, 1]]
    assert compiled(bin_proposals, options, devices) == [[0, 1]]


def test_options_that_want_hbm_where_there_is_none_leave_the_first_proposal_alone():
    options = [option(0, (10, 5, 1.0))]
    devices = topology("cpu", 2, 100)
    assert driven(BinProposer(), options, devices) == [[0]]
    assert compiled(bin_proposals, options, devices) == [[0]]
    assert compiled(hbm_proposals, options, devices) == [[0]]


def test_an_option_with_a_shard_too_large_is_left_out():
    options = [option(0, (90, 0, 1.0)), option(0, (30, 0, 5.0), (30, 0, 5.0))]
    assert driven(BinProposer2D(), options, topology("cuda", 2, 80)) == [[1], [1]]
    on_host = [option(0, (0, 90, 1.0)), option(0, (0, 170, 0.0))]
    hosts_of_two = topology("cuda", 4, 80, host_ranks=2)
    assert driven(BinProposer2D(), on_host, hosts_of_two) == [[0], [0]]


@FORMS
def test_without_tables_nothing_is_proposed(proposer, proposals):
    devices = topology("cuda", 1, 100)
    assert driven(proposer(), [], devices) == compiled(proposals, [], devices) == []


def test_a_bin_proposer_names_the_argument_that_is_wrong():
    for kind, arguments, name in (
        (BinProposer, (0,), "bins_per_device"),
        (BinProposer2D, (100, 0), "ddr_bins_per_device"),
    ):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, not 0"):
            kind(*arguments)
    proposer = BinProposer()
    proposer.load([option(0, (1, 0, 1.0))])
    with pytest.raises(ValueError, match="first feedback"):
        proposer.feedback(True)
