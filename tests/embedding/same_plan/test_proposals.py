"""Our streams yield the proposals of torchrec's and of uncompiled proposers, in the same order."""

import copy
from itertools import product
from random import Random

import numpy as np
import pytest
from built_problem import problem
from hypothesis import assume, given, settings, strategies as st
from proposing import driven, option, search_spaces, streamed, topology
from random_options import Case, random_case
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)

from planners.embedding.same_plan.bin_proposer import BinProposer, BinProposer2D
from planners.embedding.same_plan.proposals import stream
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.space import devices_of, search_space

randoms = st.randoms(use_true_random=False)
ratings = st.sampled_from([None, 0.0, 1.0, 2.0, 3.0])

NEW = {
    "greedy": GreedyProposer,
    "greedy by sum": lambda: GreedyProposer(use_depth=False),
    "uniform": UniformProposer,
    "uniform by sum": lambda: UniformProposer(use_depth=False),
    "grid": lambda: GridSearchProposer(max_proposals=60),
    "dynamic": DynamicProgrammingProposer,
    "bins": BinProposer,
    "bins, 2d": BinProposer2D,
}


@pytest.mark.parametrize("name", NEW)
@settings(max_examples=30)
@given(random=randoms, in_order=st.booleans())
def test_streams_propose_as_the_proposers_do(name, random, in_order):
    case = random_case(random, most_tables=8)
    if not in_order:
        random.shuffle(case.options)
    # Where devices have less than nothing in all, torchrec's bins are of negative size.
    assume((devices_of(case.topology).storage[:, :2].sum(0) > 0).all())
    assert streamed(case, NEW[name]()) == driven(case, NEW[name]())


def test_sums_of_shards_are_rounded_as_by_this_python():
    many, whole = option(0, *[(1, 0, 0.1)] * 10), option(0, (1, 0, 1.0))  # equal since Python 3.12
    case = Case([whole, many], topology("cuda", 10, 10, 10))
    for name in ("greedy by sum", "uniform by sum"):
        assert streamed(case, NEW[name]()) == driven(case, NEW[name]())


@given(random=randoms, threshold=st.integers(0, 8), given_ratings=st.lists(ratings, min_size=50))
def test_a_threshold_stops_the_greedy_proposer_where_torchrec_stops(
    random, threshold, given_ratings
):
    case = random_case(random, most_tables=12)

    def rating(number):
        return given_ratings[number % len(given_ratings)]

    assert streamed(case, GreedyProposer(threshold=threshold), rating) == driven(
        case, GreedyProposer(threshold=threshold), rating
    )


def long_case(tables: int) -> Case:
    """Return tables with two kernels each, so that there are many combinations."""
    case = random_case(Random(3), most_tables=1)
    options = []
    for number in range(tables):
        for kernel in ("fused", "fused_uvm"):
            option = copy.deepcopy(case.options[0])
            option.name, option.compute_kernel = f"table_{number}", kernel
            options.append(option)
    return Case(options, case.topology)


def test_a_grid_of_as_many_proposals_as_allowed_is_made_in_growing_chunks():
    case = long_case(tables=10)
    arrays = search_space(case.options), devices_of(case.topology)
    chunks = list(stream(GridSearchProposer(2**10), *arrays))
    assert [len(chunk) for chunk in chunks] == [16, 32, 64, 128, 256, 256, 256, 16]
    assert np.concatenate(chunks).tolist() == driven(case, GridSearchProposer(2**10))
    assert streamed(case, GridSearchProposer(2**10 - 1)) == []


@pytest.mark.parametrize("proposer", [BinProposer, BinProposer2D])
@given(random=randoms, bins=st.integers(1, 9), on_gpus=st.booleans())
def test_dynamic_programmes_propose_the_same_compiled_and_loaded_again(
    proposer, random, bins, on_gpus
):
    case = random_case(random, most_tables=8)
    assume((devices_of(case.topology).storage[:, :2].sum(0) > 0).all())
    if not on_gpus:
        for shard in (shard for option in case.options for shard in option.shards):
            shard.storage.hbm = 0
    uncompiled = proposer(bins)
    expected = driven(case, uncompiled)
    assert streamed(case, proposer(bins)) == driven(case, uncompiled) == expected
    if proposer is BinProposer and any(option.total_storage.hbm for option in case.options):
        torchrecs = DynamicProgrammingProposer(bins)
        assert driven(case, torchrecs) == streamed(case, torchrecs) == expected


@given(search_spaces(), st.integers(1, 3), st.integers(1, 60), st.integers(1, 60))
def test_no_combination_that_it_could_have_proposed_is_cheaper(drawn, ranks, hbm, ddr):
    """Uses a bin for each byte, few tables, and numbers that are exact in single precision."""
    options = [o for o in drawn if o.name in ("table_0", "table_1")]
    fitting = {o.fqn: [] for o in options}
    for o in options:
        for shard in o.shards:
            shard.perf.fwd_compute = float(int(shard.perf.fwd_compute))
        if all(s.storage.hbm <= hbm and s.storage.ddr <= ddr * ranks for s in o.shards):
            fitting[o.fqn].append(o)
    least = {}
    for chosen in product(*fitting.values()):
        total = [sum(getattr(o.total_storage, kind) for o in chosen) for kind in ("hbm", "ddr")]
        if total[0] < hbm * ranks and total[1] < ddr * ranks:
            perf = sum(o.total_perf for o in chosen)
            least[total[0]] = min(perf, least.get(total[0], perf))
    proposals = driven(Case(options, topology("cuda", ranks, hbm, ddr)), BinProposer2D(hbm, ddr))
    proposed = {
        sum(options[number].total_storage.hbm for number in chosen): sum(
            options[number].total_perf for number in chosen
        )
        for chosen in proposals[1:]
    }
    assert proposed == least
    assert list(proposed) == sorted(proposed, reverse=True)


@pytest.mark.parametrize(
    ("proposer", "tables"),
    [(DynamicProgrammingProposer, 20), (BinProposer, 20), (BinProposer2D, 40)],
)
def test_compiled_dynamic_programmes_propose_the_same_for_real_tables(proposer, tables):
    built = problem(f"synthetic[tables={tables},seed=7,memory=mixed]")
    options = built.enumerator(DistinctShardEnumerator).enumerate(built.module, built.sharders)
    case = Case(options, built.topology)
    expected = driven(case, proposer())
    assert len(expected) > 50
    assert streamed(case, proposer()) == expected


@pytest.mark.parametrize("proposer", [BinProposer, BinProposer2D])
def test_without_tables_nothing_is_proposed(proposer):
    case = Case([], topology("cuda", 1, 100, 100))
    assert driven(case, proposer()) == streamed(case, proposer()) == []


def test_a_bin_proposer_names_the_argument_that_is_wrong():
    with pytest.raises(ValueError, match="ddr_bins_per_device must be at least 1, not 0"):
        BinProposer2D(100, 0)
    proposer = BinProposer()
    proposer.load([option(0, (1, 0, 1.0))])
    with pytest.raises(ValueError, match="first feedback"):
        proposer.feedback(True)
