"""Proposals are placed and rated as by torchrec's partitioners and perf model, to the bit."""

import copy
from random import Random

import numpy as np
from hypothesis import given, strategies as st
from random_options import MEGABYTE, Case, random_case
from random_rows import placements, random_rows
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
    space = search_space(case.options)
    partition = Partition(space, devices_of(case.topology), rules_of(partitioner), exact=True)
    quick = Partition(space, devices_of(case.topology), rules_of(partitioner))
    best, best_row, best_ranks = float("inf"), None, None
    expected = []
    for row in rows:
        rating, ranks = place_upstream(case, row, partitioner)
        expected.append(rating)
        if rating < best:
            best, best_row, best_ranks = rating, list(row), ranks
    np.testing.assert_array_equal(partition.place(rows), expected)
    np.testing.assert_array_equal(np.isnan(quick.place(rows)), np.isnan(expected))
    for placed in (partition, quick):
        if best_row is None:
            assert placed.best is None
        else:
            assert placed.best.tolist() == best_row
            assert placed.best_ranks.tolist() == best_ranks
            assert placed.best_rating == best


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
    case = roomy_case(random, *tables_and_plenty)
    partitioner = GreedyPerfPartitioner(sort_by, balance_modules)
    assert_placed_as_upstream(case, random_rows(random, case), partitioner)


def roomy_case(random: Random, most_tables: int, plenty: int) -> Case:
    case = random_case(random, most_tables=most_tables)
    for device in case.topology.devices:
        for kind, amount in vars(device.storage).items():
            setattr(device.storage, kind, amount * plenty)
    return case


@given(
    random=randoms,
    searches=st.integers(0, 12),
    tolerance=st.sampled_from([0, 0.02, 0.5]),
    balance_modules=st.booleans(),
)
def test_rows_are_placed_as_by_the_memory_balanced_partitioner(
    random, searches, tolerance, balance_modules
):
    case = random_case(random, unit=8 * MEGABYTE)
    partitioner = MemoryBalancedPartitioner(searches, tolerance, balance_modules)
    assert_placed_as_upstream(case, random_rows(random, case), partitioner)


def test_ratings_of_worse_rows_are_lower_bounds():
    lower = 0
    for seed in range(40):
        random = Random(seed)
        case = roomy_case(random, 30, 8)
        rows = np.vstack([random_rows(random, case) for _ in range(4)])
        space, devices = search_space(case.options), devices_of(case.topology)
        exact, quick = (
            Partition(space, devices, rules_of(GreedyPerfPartitioner()), exact=exact).place(rows)
            for exact in (True, False)
        )
        placed = ~np.isnan(exact)
        assert (quick[placed] <= exact[placed] * (1 + 1e-9)).all()
        lower += int((quick[placed] < exact[placed] * (1 - 1e-9)).sum())
    assert lower > 10, "few rows were rated without being placed"


def test_the_random_cases_are_neither_all_easy_nor_all_impossible():
    placed = [placements(seed)["ratings"] for seed in range(100)]
    ratings = [rating for rows in placed for rating in rows]
    assert 0.2 < sum(rating is None for rating in ratings) / len(ratings) < 0.8
