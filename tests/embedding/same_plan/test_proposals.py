"""Our streams yield the proposals of torchrec's proposers, in the same order."""

import copy
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from proposing import driven, option, topology
from random_options import Case, random_case
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)

from planners.embedding.same_plan.bin_proposer import BinProposer
from planners.embedding.same_plan.proposals import depends_on_ratings, stream
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
    "dynamic, coarse": lambda: DynamicProgrammingProposer(hbm_bins_per_device=2),
    "bins": BinProposer,
}


def upstream(case: Case, proposer, *feedback):
    return driven(proposer, case.options, case.topology, *feedback)


def arrays(case: Case):
    return search_space(case.options), devices_of(case.topology)


def streamed(case: Case, proposer, rating=lambda number: None):
    proposed = stream(proposer, *arrays(case))
    proposals: list[list[int]] = []
    rows = next(proposed, None)
    while rows is not None:
        numbers = range(len(proposals), len(proposals) + len(rows))
        proposals += rows.tolist()
        try:
            rows = proposed.send(np.array([*map(rating, numbers)], float))  # NaN for None
        except StopIteration:
            break
    return proposals


def test_sums_of_shards_are_rounded_as_by_this_python():
    many, one = option(0, *[(1, 0, 0.1)] * 10), option(0, (1, 0, 1.0))  # equal since Python 3.12
    case = Case([one, many], topology("cuda", ranks=10, hbm=10))
    for name in ("greedy by sum", "uniform by sum"):
        assert streamed(case, NEW[name]()) == upstream(case, NEW[name]())


@pytest.mark.parametrize("name", NEW)
@settings(max_examples=30)
@given(random=randoms)
def test_streams_propose_as_torchrec_does(name, random):
    case = random_case(random, most_tables=8)
    # Where devices have less than nothing in all, torchrec's bins are of negative size.
    assume((devices_of(case.topology).storage[:, :2].sum(0) > 0).all())
    assert streamed(case, NEW[name]()) == upstream(case, NEW[name]())


@given(random=randoms, threshold=st.integers(0, 8), given_ratings=st.lists(ratings, min_size=50))
def test_a_threshold_stops_the_greedy_proposer_where_torchrec_stops(
    random, threshold, given_ratings
):
    case = random_case(random, most_tables=12)

    def rating(number):
        return given_ratings[number % len(given_ratings)]

    assert streamed(case, GreedyProposer(threshold=threshold), rating) == upstream(
        case, GreedyProposer(threshold=threshold), rating
    )


def test_only_a_threshold_depends_on_ratings():
    assert depends_on_ratings(GreedyProposer(threshold=3))
    assert not depends_on_ratings(GreedyProposer(threshold=0))  # torchrec takes 0 for none
    assert not any(depends_on_ratings(new()) for new in NEW.values())


@given(random=randoms)
def test_tables_that_come_later_by_type_are_later_in_uniform_proposals(random):
    case = random_case(random, most_tables=4)
    random.shuffle(case.options)
    assert streamed(case, UniformProposer()) == upstream(case, UniformProposer())
    assert streamed(case, GreedyProposer()) == upstream(case, GreedyProposer())


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


def test_a_grid_of_as_many_proposals_as_allowed_is_made_in_chunks():
    case = long_case(tables=10)
    chunks = list(stream(GridSearchProposer(2**10), *arrays(case)))
    assert [len(chunk) for chunk in chunks] == [16, 32, 64, 128, 256, 256, 256, 16]
    assert np.concatenate(chunks).tolist() == upstream(case, GridSearchProposer(2**10))


def test_no_grid_is_made_where_it_is_too_large():
    case = long_case(tables=60)
    assert list(stream(GridSearchProposer(2**60 - 1), *arrays(case))) == []
    first = next(stream(GridSearchProposer(2**60), *arrays(case)))
    assert first[:2].tolist() == [list(range(0, 120, 2)), [*range(0, 118, 2), 119]]


def test_a_used_proposer_is_streamed_as_a_new_one():
    case = long_case(tables=3)
    proposer = DynamicProgrammingProposer()
    expected = upstream(case, proposer)
    assert upstream(case, proposer) == [], "torchrec's proposes nothing a second time"
    assert streamed(case, proposer) == expected
