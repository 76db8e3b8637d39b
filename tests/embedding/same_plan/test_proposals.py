"""Our streams yield the proposals of torchrec's and of uncompiled proposers, in the same order."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from random_options import Case, random_case
from small_problems import option
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.types import Topology

from planners.embedding.same_plan.bin_proposer import BinProposer, BinProposer2D
from planners.embedding.same_plan.proposals import stream
from planners.embedding.search.space import devices_of, search_space

randoms = st.randoms(use_true_random=False)
ratings = st.sampled_from([None, 0.0, 1.0, 2.0, 3.0])

NEW = {
    "greedy": lambda threshold: GreedyProposer(threshold=threshold),
    "greedy by sum": lambda threshold: GreedyProposer(use_depth=False, threshold=threshold),
    "uniform": lambda _: UniformProposer(),
    "uniform by sum": lambda _: UniformProposer(use_depth=False),
    "grid": lambda _: GridSearchProposer(max_proposals=60),
}


def driven(case: Case, proposer, rating=lambda number: None):
    """Return a proposer's proposals as option numbers; the nth gets `rating(n)` as feedback."""
    number = {id(option): index for index, option in enumerate(case.options)}
    proposer.load(list(case.options))
    proposals = []
    while proposal := proposer.propose():
        rated = rating(len(proposals))
        proposals.append([number[id(option)] for option in proposal])
        proposer.feedback(rated is not None, proposal, rated, case.topology)
    return proposals


def streamed(case: Case, proposer, rating=lambda number: None):
    """Return the proposals of a proposer's stream, in the same form."""
    proposed = stream(proposer, search_space(case.options), devices_of(case.topology))
    proposals: list[list[int]] = []
    rows = next(proposed, None)
    while rows is not None:
        assert len(rows) <= 256
        numbers = range(len(proposals), len(proposals) + len(rows))
        proposals += rows.tolist()
        try:
            rows = proposed.send(np.array([*map(rating, numbers)], float))  # NaN for None
        except StopIteration:
            break
    return proposals


@pytest.mark.parametrize("name", NEW)
@settings(max_examples=30)
@given(
    random=randoms,
    in_order=st.booleans(),
    threshold=st.none() | st.integers(0, 8),
    given_ratings=st.lists(ratings, min_size=50),
)
def test_streams_propose_as_the_proposers_do(name, random, in_order, threshold, given_ratings):
    """Options may be listed in any order; ratings may be missing, equal, or zero."""
    case = random_case(random, most_tables=10)
    if not in_order:
        random.shuffle(case.options)

    def rating(number):
        return given_ratings[number % len(given_ratings)]

    proposed = streamed(case, NEW[name](threshold), rating)
    assert proposed == driven(case, NEW[name](threshold), rating)


@pytest.mark.parametrize("name", ["greedy by sum", "uniform by sum"])
def test_sums_of_shards_are_rounded_as_by_this_python(name):
    """Ten tenths and a whole are equal since Python 3.12."""
    options = [option(0, "device", (1, 0, 1.0)), option(0, "device", *[(1, 0, 0.1)] * 10)]
    case = Case(options, Topology(10, "cuda", 10, 10))
    assert streamed(case, NEW[name](None)) == driven(case, NEW[name](None))


@pytest.mark.parametrize("proposer", [BinProposer, BinProposer2D])
@given(random=randoms, bins=st.integers(1, 9) | st.just(100), on_gpus=st.booleans())
def test_dynamic_programmes_propose_the_same_compiled_and_loaded_again(
    proposer, random, bins, on_gpus
):
    """With tables in HBM, BinProposer proposes what torchrec's dynamic programme does."""
    case = random_case(random, most_tables=8)
    random.shuffle(case.options)
    # Where devices have less than nothing in all, torchrec's bins are of negative size.
    assume((devices_of(case.topology).storage[:, :2].sum(0) > 0).all())
    if not on_gpus:
        for shard in (shard for sharded in case.options for shard in sharded.shards):
            shard.storage.hbm = 0
    uncompiled = proposer(bins)
    expected = driven(case, uncompiled)
    assert streamed(case, proposer(bins)) == driven(case, uncompiled) == expected
    if proposer is BinProposer and any(sharded.total_storage.hbm for sharded in case.options):
        torchrecs = DynamicProgrammingProposer(bins)
        assert driven(case, torchrecs) == streamed(case, torchrecs) == expected


@st.composite
def options_of_two_tables(draw):
    """Draw options; few values make ties, and times are exact in single precision."""
    size, ms = st.integers(0, 25), st.integers(0, 4).map(float)
    shards = st.lists(st.tuples(size, size, ms), min_size=1, max_size=3)
    tables = draw(st.permutations([0, *draw(st.lists(st.integers(0, 1), max_size=7))]))
    return [option(table, "device", *draw(shards)) for table in tables]


@given(options_of_two_tables(), st.integers(1, 3), st.integers(1, 60), st.integers(1, 60))
def test_no_combination_that_it_could_have_proposed_is_cheaper(options, ranks, hbm, ddr):
    """With a bin for each byte, the proposals are the cheapest for each amount of HBM."""
    fitting = {sharded.fqn: [] for sharded in options}
    for sharded in options:
        storages = [shard.storage for shard in sharded.shards]
        if all(storage.hbm <= hbm and storage.ddr <= ddr * ranks for storage in storages):
            fitting[sharded.fqn].append(sharded)
    least = {}
    for chosen in product(*fitting.values()):
        used = [sum(getattr(o.total_storage, kind) for o in chosen) for kind in ("hbm", "ddr")]
        if used[0] < hbm * ranks and used[1] < ddr * ranks:
            perf = sum(sharded.total_perf for sharded in chosen)
            least[used[0]] = min(perf, least.get(used[0], perf))
    case = Case(options, Topology(ranks, "cuda", hbm, ddr))
    proposed = {}
    for numbers in driven(case, BinProposer2D(hbm, ddr))[1:]:
        chosen = [options[number] for number in numbers]
        used = sum(sharded.total_storage.hbm for sharded in chosen)
        proposed[used] = sum(sharded.total_perf for sharded in chosen)
    assert proposed == least
    assert list(proposed) == sorted(proposed, reverse=True)


def test_a_bin_proposer_names_the_argument_that_is_wrong():
    """A number of bins must be positive, and feedback needs a topology at first."""
    with pytest.raises(ValueError, match="ddr_bins_per_device must be at least 1, not 0"):
        BinProposer2D(100, 0)
    proposer = BinProposer()
    proposer.load([option(0, "device", (1, 0, 1.0))])
    with pytest.raises(ValueError, match="first feedback"):
        proposer.feedback(True)
