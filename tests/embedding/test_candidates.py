"""The options that a best plan is made of: none that is dropped is missed."""

from itertools import permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torchrec.distributed.planner.types import Perf, Shard, ShardingOption, Storage

from planners.embedding.search.candidates import Candidates, candidates, distinct_shards
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
            Shard([1, 1], [0, 0], Storage(hbm, ddr), Perf(ms, 0.0, 0.0, 0.0))
            for hbm, ddr, ms in shards
        ],
        dependency=dependency,
        is_pooled=True,
    )


def devices(*storage, host_ranks=None):
    """Return ranks with these bytes of HBM and DDR."""
    host_ranks = host_ranks or len(storage)
    return Devices(np.array([[*held, 0] for held in storage], np.int64), host_ranks, host_ranks)


def ways(space: SearchSpace, devices: Devices, option: int) -> list[tuple[int, ...]]:
    """Return all ranks on which an option's shards may be, whether or not they fit there."""
    count = int(np.diff(space.first_shard)[option])
    ranks = range(devices.ranks)
    size = devices.host_ranks
    hosts = [tuple(range(host * size, (host + 1) * size)) for host in range(devices.hosts)]
    placement = space.placement[option]
    if placement == Placement.UNIFORM:
        return [tuple(ranks)] if count == devices.ranks else []
    if placement == Placement.DEVICE:
        return list(product(ranks, repeat=count))
    if placement == Placement.HOST_ROWS:
        return [host for host in hosts if len(host) == count]
    if placement == Placement.HOST_COLUMNS:
        return [chosen for host in hosts for chosen in product(host, repeat=count)]
    if placement == Placement.HOSTS and hosts and count % size == 0:
        rounds, rest = divmod(count // size, len(hosts))
        turns = [permutations(hosts)] * rounds + [permutations(hosts, rest)] * (rest > 0)
        blocks = [list(turn) for turn in turns]
        return [
            tuple(rank for turn in chosen for host in turn for rank in host)
            for chosen in product(*blocks)
        ]
    return []


def load(space: SearchSpace, devices: Devices, option: int, ranks: tuple[int, ...]):
    """Return the milliseconds and the bytes that an option puts on each rank, shape (ranks, 4)."""
    shards = space.estimate[space.first_shard[option] : space.first_shard[option + 1]]
    loaded = np.zeros((devices.ranks, 4))
    np.add.at(loaded[:, 0], list(ranks), space.total[shards])
    np.add.at(loaded[:, 1:], list(ranks), space.storage[shards])
    return loaded


def least_rating(space: SearchSpace, devices: Devices, allowed=None) -> float:
    """Try every plan and return the rating of the best one that fits, or infinity."""
    plans = np.zeros((1, devices.ranks, 4))
    for table in range(space.tables):
        options = [
            option
            for option in np.flatnonzero(space.table == table).tolist()
            if allowed is None or option in allowed
        ]
        more = [
            load(space, devices, option, ranks)
            for option in options
            for ranks in ways(space, devices, option)
        ]
        plans = (plans[:, np.newaxis] + np.reshape(more, (-1, devices.ranks, 4))).reshape(
            -1, devices.ranks, 4
        )
        plans = np.unique(plans[(plans[..., 1:] <= devices.storage).all((1, 2))], axis=0)
    return float(plans[..., 0].max(1).min(initial=np.inf))


@st.composite
def problems(draw, most_tables=3, kinds=tuple(KINDS), least_ms=0):
    """Draw a few tables and ranks, so small that every plan can be tried."""
    ranks = draw(st.integers(2, 4))
    host_ranks = draw(st.sampled_from([1, 2, 2, 3, ranks, ranks + 1]))
    tables = draw(st.integers(1, most_tables))
    unit = draw(st.sampled_from([1.0, 1.0, 1e-5, 0.3, 1e4]))
    byte = draw(st.sampled_from([1, 10**9 + 7]))
    size = st.integers(0, 8).map(lambda size: size * byte)
    held = st.integers(2, 16).map(lambda size: size * byte)
    rank = st.tuples(held, st.sampled_from([0, 0, 3, 8]).map(lambda size: size * byte))
    same = draw(st.booleans())
    storage = [draw(rank)] * ranks if same else [draw(rank) for _ in range(ranks)]
    ms = st.integers(least_ms, 20).map(lambda ms: ms * unit)
    shard = st.tuples(size, st.sampled_from([0, 0, 1, 4]).map(lambda size: size * byte), ms)
    counts = {
        "uniform": st.sampled_from([ranks, ranks, ranks, ranks - 1]),
        "device": st.integers(1, 2),
        "host_rows": st.sampled_from([host_ranks, host_ranks, host_ranks + 1]),
        "host_columns": st.integers(1, 2),
        "hosts": st.sampled_from([host_ranks, 2 * host_ranks, 3 * host_ranks, host_ranks + 1]),
        "nowhere": st.just(1),
    }
    options = []
    for table in range(tables):
        for _ in range(draw(st.integers(1, 3))):
            kind = draw(st.sampled_from(kinds))
            count = draw(counts[kind])
            shards = draw(st.lists(shard, min_size=count, max_size=count))
            if draw(st.booleans()):
                shards = shards[:1] * count
            options.append(option(table, kind, *shards))
    order = draw(st.permutations(range(len(options))))
    return search_space([options[index] for index in order]), devices(
        *storage, host_ranks=host_ranks
    )
