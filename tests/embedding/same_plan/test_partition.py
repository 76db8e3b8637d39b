"""Proposals are placed and rated as by torchrec's partitioners and perf model, to the bit."""

import copy

import numpy as np
from hypothesis import given, strategies as st
from random_options import MEGABYTE, Case, placements, random_case, random_rows
from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
    SortBy,
)
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.types import PlannerError

from planners.embedding.same_plan.proposals import rules_of
from planners.embedding.same_plan.search import Partition
from planners.embedding.search.space import devices_of, search_space

randoms = st.randoms(use_true_random=False)


def place_upstream(case: Case, row, partitioner):
    """Return the rating and ranks of torchrec's partitioner, or NaN and None if it fails."""
    proposal = [copy.deepcopy(case.options[option]) for option in row]
    try:
        plan = partitioner.partition(proposal, case.topology)
    except PlannerError:
        return np.nan, None
    rating = NoopPerfModel(case.topology).rate(plan)
    return rating, [shard.rank for option in plan for shard in option.shards]


def assert_placed_as_upstream(case: Case, rows, partitioner) -> None:
    """Compare the ratings of rows, exact or as lower bounds of worse rows, and the best plan."""
    expected, plans = zip(*(place_upstream(case, row, partitioner) for row in rows), strict=True)
    problem = search_space(case.options), devices_of(case.topology), rules_of(partitioner)
    partition, quick = (Partition(*problem, exact=exact) for exact in (True, False))
    np.testing.assert_array_equal(partition.place(rows), expected)
    bounds, fits = quick.place(rows), ~np.isnan(expected)
    assert (~np.isnan(bounds) == fits).all()
    assert (bounds[fits] <= np.array(expected)[fits] * (1 + 1e-9)).all()
    for placed in (partition, quick):
        if not fits.any():
            assert placed.best is None
        else:
            best = int(np.nanargmin(expected))
            assert placed.best.tolist() == list(rows[best])
            assert placed.best_ranks.tolist() == plans[best]
            assert placed.best_rating == expected[best]


@given(
    random=randoms,
    sort_by=st.sampled_from(SortBy),
    balance_modules=st.booleans(),
    tables_and_plenty=st.sampled_from([(6, 1), (30, 1), (30, 2), (30, 4), (30, 8)]),
)
def test_rows_are_placed_as_by_the_greedy_partitioner(
    random, sort_by, balance_modules, tables_and_plenty
):
    """With plenty of memory, a row that is not better is often rated without being placed."""
    most_tables, plenty = tables_and_plenty
    case = random_case(random, most_tables=most_tables)
    for device in case.topology.devices:
        for kind, amount in vars(device.storage).items():
            setattr(device.storage, kind, amount * plenty)
    partitioner = GreedyPerfPartitioner(sort_by, balance_modules)
    assert_placed_as_upstream(case, random_rows(random, case), partitioner)


@given(
    random=randoms,
    searches=st.integers(0, 12),
    tolerance=st.sampled_from([0, 0.02, 0.5]),
    balance_modules=st.booleans(),
)
def test_rows_are_placed_as_by_the_memory_balanced_partitioner(
    random, searches, tolerance, balance_modules
):
    """Sizes are multiples of 8 MB, because its search for a limit ends within 10 MB."""
    case = random_case(random, unit=8 * MEGABYTE)
    partitioner = MemoryBalancedPartitioner(searches, tolerance, balance_modules)
    assert_placed_as_upstream(case, random_rows(random, case), partitioner)


def test_the_random_cases_are_neither_all_easy_nor_all_impossible():
    """Otherwise the tests above would compare only errors, or only plans with memory to spare."""
    placed = [placements(seed)["ratings"] for seed in range(100)]
    ratings = [rating for rows in placed for rating in rows]
    assert 0.2 < sum(rating is None for rating in ratings) / len(ratings) < 0.8
