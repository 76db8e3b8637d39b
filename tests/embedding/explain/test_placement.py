"""The new placement of a table is a possible one, and the best one if its shards are equal."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st
from random_options import random_case

from planners.embedding.explain.placement import Obstacle, replace
from planners.embedding.search.space import (
    Devices,
    Load,
    Placement,
    SearchSpace,
    devices_of,
    search_space,
)


def all_ways(space: SearchSpace, devices: Devices, option: int) -> Iterator[tuple[int, ...]]:
    """Yield every placement of an option that torchrec allows, ignoring memory."""
    count = int(space.first_shard[option + 1] - space.first_shard[option])
    placement, size = space.placement[option], devices.host_ranks
    hosts = [tuple(range(host * size, (host + 1) * size)) for host in range(devices.hosts)]
    if placement == Placement.UNIFORM and count == devices.ranks:
        yield tuple(range(count))
    elif placement == Placement.DEVICE:
        yield from product(range(devices.ranks), repeat=count)
    elif placement == Placement.HOST_COLUMNS:
        for host in hosts:
            yield from product(host, repeat=count)
    elif placement == Placement.HOST_ROWS and count == size:
        yield from hosts
    elif placement == Placement.HOSTS and hosts and count % size == 0:
        for chosen in product(range(len(hosts)), repeat=count // size):
            begins = range(0, len(chosen), len(hosts))
            rounds = [chosen[begin : begin + len(hosts)] for begin in begins]
            if all(len(set(each)) == len(each) for each in rounds):
                yield tuple(rank for host in chosen for rank in hosts[host])


def with_it(
    space: SearchSpace, devices: Devices, others: Load, option: int, ranks: tuple[int, ...]
) -> float | None:
    """Return the rating of a plan with this placement, or None if it exceeds the memory."""
    shards = space.estimates_of(option).tolist()
    perf, used = others.perf.copy(), others.used.copy()
    for rank, estimate in zip(ranks, shards, strict=True):
        perf[rank] += space.total[estimate]
        used[rank] += space.storage[estimate]
        if (used[rank] > devices.storage[rank]).any():
            return None
    return float(perf.max())


@pytest.mark.parametrize("seeds", range(4))
@given(data=st.data())
def test_it_is_a_placement_that_exists_and_the_best_of_equal_shards(seeds, data):
    random = Random(data.draw(st.integers(0, 10**6)) * 4 + seeds)
    case = random_case(random, towers=False)
    space, devices = search_space(case.options), devices_of(case.topology)
    option = random.randrange(len(case.options))
    others = Load(
        np.array([random.randint(0, 8) / 10 for _ in range(devices.ranks)]),
        np.array([[random.randint(0, 2) for _ in range(3)] for _ in range(devices.ranks)]),
    )
    found: tuple[list[int], Load] | Obstacle
    try:
        found = replace(space, devices, others, option)
    except Obstacle as obstacle:
        found = obstacle
    shards = space.estimates_of(option)
    if random.random() < 0.9 and len(shards) > 6:
        return  # all ways would be too many
    ratings = {
        ranks: rating
        for ranks in all_ways(space, devices, option)
        if (rating := with_it(space, devices, others, option, ranks)) is not None
    }
    are_equal = len(np.unique(shards)) == 1
    if isinstance(found, Obstacle):
        assert found.why_not
        assert not ratings or not are_equal
        if found.lacking:  # nothing at all goes onto a rank that is overfull without it
            assert (
                found.needed_bytes > found.free_bytes or found.needed_bytes == found.free_bytes == 0
            )
        return
    ranks, load = found
    mine = ratings[tuple(ranks)]
    assert load.perf.max() == pytest.approx(mine)
    least = min(ratings.values())
    if are_equal:
        assert mine == pytest.approx(least)
    assert mine >= least * (1 - 1e-12)


def test_the_others_stay_where_they_are():
    case = random_case(Random(3), towers=False)
    space, devices = search_space(case.options), devices_of(case.topology)
    others = Load(np.zeros(devices.ranks), np.zeros((devices.ranks, 3), np.int64))
    for option in range(len(case.options)):
        with suppress(Obstacle):
            replace(space, devices, others, option)
    assert not others.perf.any()
    assert not others.used.any()
