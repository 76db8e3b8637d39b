"""Problems with so few tables that all plans can be enumerated, and searches of such problems."""

from itertools import chain, permutations, product, repeat

import numpy as np
import torch
from hypothesis import strategies as st
from torch import nn
from torchrec.distributed.planner.types import Perf, Shard, ShardingOption, Storage

from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.linear import linear_bound
from planners.embedding.best_plan.local import LocalSearch
from planners.embedding.search.space import Devices, Placement, SearchSpace, search_space

NO_TABLES = np.empty(0, np.int64)

KINDS = {
    "uniform": ("row_wise", "uniform"),
    "device": ("column_wise", "device"),
    "host_rows": ("table_row_wise", "host"),
    "host_columns": ("table_column_wise", "host"),
    "hosts": ("grid_shard", "multi_host"),
    "nowhere": ("column_wise", "host"),
}


def option(table, kind, *shards, kernel="fused", dependency=None):
    """Return an option of a table; each of `shards` is (HBM bytes, DDR bytes, milliseconds)."""
    sharding_type, partition_by = KINDS[kind]
    estimates = {  # equal shards share them, as those of our enumerator do
        (hbm, ddr, ms): (Storage(hbm, ddr, 0), Perf(ms, 0.0, 0.0, 0.0)) for hbm, ddr, ms in shards
    }
    return ShardingOption(
        name=f"table_{table}",
        tensor=torch.empty(0, device="meta"),
        module=("module", nn.Module()),
        input_lengths=[1.0],
        batch_size=1,
        sharding_type=sharding_type,
        partition_by=partition_by,
        compute_kernel=kernel,
        shards=[Shard([1, 1], [0, 0], *estimates[shard]) for shard in shards],
        dependency=dependency,
        is_pooled=True,
    )


def jumping_clock(looks):
    """Return a clock that shows 0 s for the first `looks` calls, and 1e9 s after them."""
    return chain(repeat(0.0, looks), repeat(1e9)).__next__


def devices(*storage, host_ranks=None):
    """Return devices; each of `storage` is a rank's (HBM bytes, DDR bytes)."""
    host_ranks = host_ranks or len(storage)
    return Devices(np.array([[*held, 0] for held in storage], np.int64), host_ranks, host_ranks)


def ways(space: SearchSpace, placed_on: Devices, option: int) -> list[tuple[int, ...]]:
    """Return all placements of an option, each a rank per shard, ignoring memory limits."""
    count = len(space.estimates_of(option))
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


def load(space: SearchSpace, placed_on: Devices, option: int, ranks: tuple[int, ...]):
    """Return the load of a placement, shape (ranks, 5): ms, bytes of 3 kinds, number of shards."""
    loaded = np.zeros((placed_on.ranks, 5))
    np.add.at(loaded[:, 0], list(ranks), space.total[space.estimates_of(option)])
    np.add.at(loaded[:, 1:4], list(ranks), space.storage[space.estimates_of(option)])
    np.add.at(loaded[:, 4], list(ranks), 1)
    return loaded


def fit(loaded, placed_on: Devices):
    """Return whether loads of shape (..., ranks, 5) fit; ranks without shards always fit."""
    return ((loaded[..., 1:4] <= placed_on.storage).all(-1) | (loaded[..., 4] == 0)).all(-1)


def least_rating(space: SearchSpace, placed_on: Devices, allowed=None) -> float:
    """Return the rating of the best plan that fits, by enumerating all plans; else infinity."""
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
    """Draw a problem with so few tables and ranks that every plan can be enumerated.

    Ranks may differ in memory, and the last host may be incomplete.
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


def options_with_ranks(space, options, ranks):
    """Return each option of a plan with the ranks of its shards."""
    ends = np.cumsum(np.diff(space.first_shard)[options])
    assert ends[-1] == len(ranks)
    placed = zip(options, np.split(ranks, ends[:-1]), strict=True)
    return [(int(number), tuple(on.tolist())) for number, on in placed]


def held_by(space, placed_on, options, ranks):
    """Return the load of a plan, shape (ranks, 5) as in `load`; the plan must be legal."""
    assert sorted(space.table[options]) == list(range(space.tables))
    plan = options_with_ranks(space, options, ranks)
    assert all(on in ways(space, placed_on, number) for number, on in plan)
    return sum(load(space, placed_on, number, on) for number, on in plan)


def constructed(space, placed_on, seed=0, doublings=0):
    """Return the local search's tables, and a state that begins at the relaxed plan."""
    found = candidates(space, placed_on)
    bound, options = linear_bound(found)
    local = LocalSearch(found, bound, seed)
    return local.tables, local.resume(local.start_at(options), doublings)


def varied(tables=8, hosts=2):
    """Return tables with an option per placement, and hosts of two ranks plus one more rank."""
    random = np.random.default_rng(5)
    options = []
    for table in range(tables):
        for kind, count in (
            ("uniform", 2 * hosts + 1),
            ("device", 2),
            ("host_rows", 2),
            ("host_columns", 3),
            ("hosts", 6),
        ):
            sizes = random.integers((1, 0), (9, 3), (count, 2)).tolist()
            options.append(
                option(table, kind, *[(*size, random.random() / count) for size in sizes])
            )
    return search_space(options), devices(*[(30, 8)] * 2 * hosts, (25, 5), host_ranks=2)
