"""The dynamic programme over HBM and DDR: compiled, it proposes what the NumPy one does."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proposing import BYTES, compiled, driven, option, real_options, search_spaces, topology

from harness.contract import InfeasibleDecision, WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding import FAMILY
from planners.embedding.decision import fingerprint, validate
from planners.embedding.problem import build
from planners.embedding.same_plan.bin_proposer import BinProposer, BinProposer2D
from planners.embedding.same_plan.dynamic_programming_2d import bin_proposals_2d
from planners.embedding.search.space import search_space

BINS = st.integers(1, 9)


@pytest.mark.parametrize(("device", "hbm"), [("cuda", BYTES), ("cpu", st.just(0))])
@given(
    data=st.data(), ranks=st.integers(1, 4), hbm_bins=BINS, ddr_bins=BINS, ddr=st.integers(1, 60)
)
def test_it_proposes_what_the_numpy_one_does_twice(
    device, hbm, data, ranks, hbm_bins, ddr_bins, ddr
):
    unit, options = data.draw(search_spaces(hbm))
    hosts = data.draw(st.sampled_from([each for each in (1, 2, 4) if ranks % each == 0]))
    capacity = data.draw(st.integers(1, 60)) * unit
    placed_on = topology(device, ranks, capacity, ddr * unit, host_ranks=hosts)
    proposer = BinProposer2D(hbm_bins, ddr_bins)
    expected = driven(proposer, options, placed_on)
    assert compiled(bin_proposals_2d, options, placed_on, hbm_bins, ddr_bins) == expected
    assert driven(proposer, options, placed_on) == expected


@given(
    search_spaces(ddr=st.just(0)), st.integers(1, 3), st.sampled_from([32, 64]), st.integers(1, 9)
)
def test_it_is_the_one_dimensional_one_where_no_option_takes_ddr(drawn, ranks, capacity, bins):
    """But for ties of single precision, which bytes and milliseconds in whole numbers rule out."""
    _, options = drawn
    for each in (shard for chosen in options for shard in chosen.shards):
        each.perf.fwd_compute = float(int(each.perf.fwd_compute))
    # A power of two to a bin: all parts of it, and so all sums, are exact in single precision.
    placed_on = topology("cuda", ranks, bins * capacity * (10**9 + 7))
    in_one = driven(BinProposer(bins), options, placed_on)
    assert driven(BinProposer2D(bins), options, placed_on) == in_one


@given(search_spaces(), st.integers(1, 3), st.integers(1, 60), st.integers(1, 60))
def test_no_combination_that_it_could_have_proposed_is_cheaper(drawn, ranks, hbm, ddr):
    """With a bin for each byte and few tables, so that single precision is exact."""
    unit, options = drawn
    options = [each for each in options if each.name in ("table_0", "table_1")]
    for each in (shard for chosen in options for shard in chosen.shards):
        each.perf.fwd_compute = float(int(each.perf.fwd_compute))
        each.storage.hbm, each.storage.ddr = each.storage.hbm // unit, each.storage.ddr // unit
    placed_on = topology("cuda", ranks, hbm, ddr)
    proposals = driven(BinProposer2D(hbm, ddr), options, placed_on)
    least = {}
    for chosen in product(*tables_of(options, ranks, hbm, ddr)):
        total = [sum(getattr(each.total_storage, kind) for each in chosen) for kind in MEMORY]
        if total[0] < hbm * ranks and total[1] < ddr * ranks:
            perf = sum(each.total_perf for each in chosen)
            least[total[0]] = min(perf, least.get(total[0], perf))
    found = {
        sum(options[number].total_storage.hbm for number in chosen): sum(
            options[number].total_perf for number in chosen
        )
        for chosen in proposals[1:]
    }
    assert found == least
    assert list(found) == sorted(found, reverse=True)


MEMORY = ("hbm", "ddr")


def tables_of(options, ranks, hbm, ddr):
    """Return the options of each table of which no shard is too large."""
    tables = {}
    for each in options:
        fits = all(
            shard.storage.hbm <= hbm and shard.storage.ddr <= ddr * ranks for shard in each.shards
        )
        tables.setdefault(each.fqn, []).extend([each] * fits)
    return tables.values()


@pytest.mark.parametrize("memory", ["roomy", "tight", "mixed"])
def test_it_proposes_the_same_on_real_tables(memory):
    options, placed_on = real_options(40, memory)
    expected = driven(BinProposer2D(), options, placed_on)
    assert len(expected) > 50
    assert compiled(bin_proposals_2d, options, placed_on) == expected


@pytest.mark.parametrize(
    "workload",
    [
        "synthetic[tables=12,seed=3]",
        "dlrm-856[tables=16,seed=3,memory=tight]",
        "synthetic[tables=12,seed=7,memory=mixed]",
    ],
)
def test_the_variants_decide_the_same(workload):
    problem = build(WorkloadSpec.parse(workload), find_topology("dgx_a100_80gb", 16))
    found = set()
    for name in ("dp-tzrec-2d", "dp-compiled-2d"):
        try:
            plan = FAMILY.find(name).prepared(problem).run()
        except InfeasibleDecision as error:
            found.add(str(error))
        else:
            validate(problem, plan)
            found.add(fingerprint(plan))
    assert len(found) == 1


def test_a_dearer_option_is_proposed_where_the_cheapest_wants_too_much_ddr():
    options = [
        option(0, (10, 90, 1.0)),
        option(0, (20, 0, 3.0)),
        option(1, (10, 20, 1.0)),
        option(1, (60, 0, 2.0)),
    ]
    placed_on = topology("cuda", 1, 100)
    # Together (0, 2) take 110 bytes of DDR; it is the first proposal for its total memory alone.
    assert driven(BinProposer2D(), options, placed_on) == [[1, 2], [1, 3], [0, 3], [1, 2]]


def test_an_option_with_a_shard_too_large_is_left_out():
    options = [option(0, (90, 0, 1.0)), option(0, (30, 0, 5.0), (30, 0, 5.0))]
    assert driven(BinProposer2D(), options, topology("cuda", 2, 80)) == [[1], [1]]
    on_host = [option(0, (0, 90, 1.0)), option(0, (0, 170, 0.0))]
    hosts_of_two = topology("cuda", 4, 80, host_ranks=2)
    assert driven(BinProposer2D(), on_host, hosts_of_two) == [[0], [0]]


def test_a_table_that_fits_nowhere_leaves_the_first_proposal_alone():
    options = [option(0, (10, 0, 1.0)), option(1, (101, 0, 1.0)), option(2, (20, 0, 1.0))]
    placed_on = topology("cuda", 1, 100)
    assert driven(BinProposer2D(), options, placed_on) == [[0, 2, 1]]
    assert compiled(bin_proposals_2d, options, placed_on) == [[0, 2, 1]]


def test_without_tables_nothing_is_proposed():
    placed_on = topology("cuda", 1, 100)
    assert driven(BinProposer2D(), [], placed_on) == []
    assert search_space([]).tables == 0


def test_it_says_what_it_needs():
    with pytest.raises(ValueError, match=r"ddr_bins_per_device must be at least 1, not 0"):
        BinProposer2D(100, 0)
