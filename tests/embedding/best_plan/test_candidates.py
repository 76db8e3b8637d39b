"""The options that a best plan is made of: none that is dropped is missed."""

from itertools import permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torchrec.distributed.planner.types import Perf, Shard, ShardingOption, Storage

from planners.embedding.best_plan.candidates import candidates
from planners.embedding.search.space import Devices, Placement, SearchSpace, search_space

KINDS = {
    "uniform": ("row_wise", "uniform"),
    "device": ("column_wise", "device"),
    "host_rows": ("table_row_wise", "host"),
    "host_columns": ("table_column_wise", "host"),
    "hosts": ("grid_shard", "multi_host"),
    "nowhere": ("column_wise", "host"),
}


def option(table, kind, *shards, kernel="fused", dependency=None):
    """Return an option of a table; a shard is its bytes of HBM and DDR, and its milliseconds."""
    sharding_type, partition_by = KINDS[kind]
    return ShardingOption(
        name=f"table_{table}",
        tensor=torch.empty(0, device="meta"),
        module=("module", nn.Module()),
        input_lengths=[1.0],
        batch_size=1,
        sharding_type=sharding_type,
        partition_by=partition_by,
        compute_kernel=kernel,
        shards=[
            Shard([1, 1], [0, 0], Storage(hbm, ddr, 0), Perf(ms, 0.0, 0.0, 0.0))
            for hbm, ddr, ms in shards
        ],
        dependency=dependency,
        is_pooled=True,
    )


def devices(*storage, host_ranks=None):
    """Return ranks with these bytes of HBM and DDR."""
    host_ranks = host_ranks or len(storage)
    return Devices(np.array([[*held, 0] for held in storage], np.int64), host_ranks, host_ranks)


def ways(space: SearchSpace, placed_on: Devices, option: int) -> list[tuple[int, ...]]:
    """Return all ranks on which an option's shards may be, whether or not they fit there."""
    count = len(shards(space, option))
    ranks, size = range(placed_on.ranks), placed_on.host_ranks
    hosts = [tuple(range(host * size, (host + 1) * size)) for host in range(placed_on.hosts)]
    placement = space.placement[option]
    if placement == Placement.UNIFORM:
        return [tuple(ranks)] if count == len(ranks) else []
    if placement == Placement.DEVICE:
        return list(product(ranks, repeat=count))
    if placement == Placement.HOST_ROWS:
        return [host for host in hosts if len(host) == count]
    if placement == Placement.HOST_COLUMNS:
        return [chosen for host in hosts for chosen in product(host, repeat=count)]
    if placement == Placement.HOSTS and hosts and count % size == 0:
        rounds, rest = divmod(count // size, len(hosts))
        turns = [permutations(hosts, turn) for turn in [len(hosts)] * rounds + [rest]]
        return [sum((sum(turn, ()) for turn in chosen), ()) for chosen in product(*turns)]
    return []


def shards(space: SearchSpace, option: int):
    """Return the estimate of each shard of an option."""
    return space.estimate[space.first_shard[option] : space.first_shard[option + 1]]


def load(space: SearchSpace, placed_on: Devices, option: int, ranks: tuple[int, ...]):
    """Return the milliseconds, bytes of each kind and shards that ranks get, shape (ranks, 5)."""
    loaded = np.zeros((placed_on.ranks, 5))
    np.add.at(loaded[:, 0], list(ranks), space.total[shards(space, option)])
    np.add.at(loaded[:, 1:4], list(ranks), space.storage[shards(space, option)])
    np.add.at(loaded[:, 4], list(ranks), 1)
    return loaded


def fit(loaded, placed_on: Devices):
    """Whether loads of shape (..., ranks, 5) fit; a rank that gets nothing is not looked at."""
    return ((loaded[..., 1:4] <= placed_on.storage).all(-1) | (loaded[..., 4] == 0)).all(-1)


def least_rating(space: SearchSpace, placed_on: Devices, allowed=None) -> float:
    """Try every plan and return the rating of the best one that fits, or infinity."""
    plans = np.zeros((1, placed_on.ranks, 5))
    for table in range(space.tables):
        more = [
            load(space, placed_on, option, ranks)
            for option in np.flatnonzero(space.table == table).tolist()
            if allowed is None or option in allowed
            for ranks in ways(space, placed_on, option)
        ]
        plans = plans[:, np.newaxis] + np.reshape(more, (-1, placed_on.ranks, 5))
        plans = plans.reshape(-1, placed_on.ranks, 5)
        plans = np.unique(plans[fit(plans, placed_on)], axis=0)
    return float(plans[..., 0].max(1).min(initial=np.inf))


@st.composite
def problems(draw, kinds=tuple(KINDS), overfull=True, host_ranks=None):
    """Draw a few tables and ranks, so small that every plan can be tried.

    Ranks may differ, and some of them may be on no whole host.
    """
    ranks = draw(st.integers(2, 4))
    host_ranks = host_ranks or draw(st.sampled_from([1, 2, 2, 3, ranks, ranks + 1]))
    byte = draw(st.sampled_from([1, 10**9 + 7]))
    ms = draw(st.sampled_from([1.0, 0.3, 1e-5, 1e4]))
    hbm = st.integers(0, 8).map(lambda size: size * byte)
    ddr = st.sampled_from([0, 0, 1, 4]).map(lambda size: size * byte)
    shard = st.tuples(hbm, ddr, st.integers(0, 20).map(lambda perf: perf * ms))
    held = st.tuples(
        st.integers(4, 20).map(lambda size: size * byte),
        st.sampled_from([0, 3, 8, 12, 12, -1 if overfull else 12]).map(lambda size: size * byte),
    )
    storage = draw(st.lists(held, min_size=ranks, max_size=ranks))
    if draw(st.booleans()):
        storage = storage[:1] * ranks
    counts = {
        "uniform": st.sampled_from([ranks] * 9 + [ranks - 1]),
        "device": st.integers(1, 2),
        "host_rows": st.sampled_from([host_ranks] * 9 + [host_ranks + 1]),
        "host_columns": st.integers(1, 2),
        "hosts": st.sampled_from([1, 2, 3]).map(lambda blocks: blocks * host_ranks)
        | st.just(host_ranks + 1),
        "nowhere": st.just(1),
    }
    options = []
    for table in range(draw(st.integers(1, 3))):
        for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4)):
            count = draw(counts[kind])
            equal = draw(st.booleans())
            drawn = draw(st.lists(shard, min_size=count, max_size=count))
            options.append(option(table, kind, *(drawn[:1] * count if equal else drawn)))
    options = draw(st.permutations(options))
    return search_space(options), devices(*storage, host_ranks=host_ranks)


def beats(space: SearchSpace, option: int, other: int) -> bool:
    """Whether an option may be taken for another one wherever that is, and is no worse."""
    placements = (space.placement[option], space.placement[other])
    mine, theirs = shards(space, option), shards(space, other)
    return (
        space.table[option] == space.table[other]
        and len(mine) == len(theirs)
        and (placements[0] == placements[1] or placements == (1, 3))
        and all(space.total[mine] <= space.total[theirs])
        and (space.storage[mine] <= space.storage[theirs]).all()
    )


def fits_alone(space: SearchSpace, placed_on: Devices, option: int) -> bool:
    return any(
        fit(load(space, placed_on, option, ranks), placed_on)
        for ranks in ways(space, placed_on, option)
    )


@given(problems())
def test_a_best_plan_is_made_of_candidates(problem):
    space, placed_on = problem
    kept = set(candidates(space, placed_on).options.tolist())
    assert least_rating(space, placed_on, kept) == least_rating(space, placed_on)


@given(problems())
def test_what_fits_is_dropped_only_for_what_beats_it(problem):
    space, placed_on = problem
    kept = candidates(space, placed_on).options.tolist()
    for option in set(range(len(space.table))) - set(kept):
        if fits_alone(space, placed_on, option):
            assert any(beats(space, other, option) for other in kept)
    assert not any(
        beats(space, option, other) for option in kept for other in kept if option != other
    )


@settings(max_examples=30)
@given(problems())
def test_candidates_are_listed_table_by_table(problem):
    space, placed_on = problem
    found = candidates(space, placed_on)
    listed = [found.of(table).tolist() for table in range(space.tables)]
    assert [option for options in listed for option in options] == found.options.tolist()
    assert all((space.table[options] == table).all() for table, options in enumerate(listed))
    assert found.without_options.tolist() == [
        table for table, options in enumerate(listed) if not options
    ]


SMALL = (1, 0, 1.0)


@pytest.mark.parametrize(
    ("kind", "count"),
    [("uniform", 3), ("host_rows", 3), ("hosts", 3), ("nowhere", 1)],
)
def test_what_torchrec_places_nowhere_is_no_candidate(kind, count):
    space = search_space([option(0, kind, *[SMALL] * count)])
    assert not len(candidates(space, devices(*[(9, 9)] * 4, host_ranks=2)).options)


@pytest.mark.parametrize(("kind", "count"), [("host_rows", 3), ("host_columns", 1), ("hosts", 3)])
def test_what_needs_a_whole_host_is_a_candidate_only_where_there_is_one(kind, count):
    space = search_space([option(0, kind, *[SMALL] * count)])
    assert not len(candidates(space, devices((9, 9), (9, 9), host_ranks=3)).options)
    assert len(candidates(space, devices(*[(9, 9)] * 3, host_ranks=3)).options)


@pytest.mark.parametrize("large", [(10, 0, 0.0), (0, 10, 0.0)])
def test_an_option_with_a_shard_that_no_device_holds_is_dropped(large):
    space = search_space([option(0, "device", SMALL, large), option(1, "device", SMALL)])
    found = candidates(space, devices((9, 9), (9, 9)))
    assert found.without_options.tolist() == [0]
    assert found.options.tolist() == [1]


def test_of_two_equal_options_the_freer_one_stays():
    space = search_space([option(0, kind, SMALL, SMALL) for kind in ("host_columns", "device")])
    assert candidates(space, devices((9, 9), (9, 9))).options.tolist() == [1]


def test_candidates_have_the_same_order_however_the_kernels_are_enumerated():
    cheap, small = (2, 0, 1.0), (1, 0, 2.0)
    options = [
        option(table, kind, *shard * (1 if kind == "device" else 2), kernel=kernel)
        for table in range(2)
        for kind in ("device", "uniform")
        for kernel, shard in (("fused", [cheap]), ("fused_uvm_caching", [small]))
    ]
    names = []
    for enumerated in (options, [options[index] for index in (1, 0, 3, 2, 5, 4, 7, 6)]):
        found = candidates(search_space(enumerated), devices((9, 9), (9, 9)))
        assert len(found.options) == len(options)
        chosen = [enumerated[number] for number in found.options]
        names.append([(each.fqn, each.sharding_type, each.compute_kernel) for each in chosen])
    assert names[0] == names[1]
