"""The search space and the devices as arrays, for compiled code."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from torchrec.distributed.planner.types import (
    PartitionByType,
    Perf,
    Shard,
    ShardingOption,
    Storage,
    Topology,
)
from torchrec.distributed.types import ShardingType

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Placement(IntEnum):
    """How the shards of an option go onto devices."""

    UNIFORM = 0  # shard i on rank i
    DEVICE = 1  # each shard on a device of its own choice
    HOST_ROWS = 2  # on one host, shard i on its i-th device (table_row_wise)
    HOST_COLUMNS = 3  # on one host, each shard on a device of its own choice (table_column_wise)
    HOSTS = 4  # on several hosts, shard i on their i-th device (grid_shard)
    NOWHERE = 5  # torchrec refuses this sharding type where the placement is tried


_BY_TYPE = {
    (PartitionByType.HOST.value, ShardingType.TABLE_ROW_WISE.value): Placement.HOST_ROWS,
    (PartitionByType.HOST.value, ShardingType.TABLE_COLUMN_WISE.value): Placement.HOST_COLUMNS,
    (PartitionByType.MULTI_HOST.value, ShardingType.GRID_SHARD.value): Placement.HOSTS,
}


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The options of all tables, S shards of K distinct estimates in O options of T tables.

    A table here is one parameter with its module's path (torchrec's `fqn`); tables are numbered as
    they first appear in the options, which is the order of torchrec's proposals.

    Attributes:
        options: the objects that the arrays were made from.
        table: of each option, shape (O,).
        first_shard: option o has the shards first_shard[o] to first_shard[o + 1], shape (O + 1,).
        estimate: which estimate each shard has, shape (S,).
        storage: bytes of HBM, DDR and SSD of each estimate, shape (K, 3).
        perf: milliseconds of each estimate, by component, in the order in which `Perf.total` adds
            them: forward and backward compute, forward and backward comms, prefetch; shape (K, 5).
        total: `Perf.total` of each estimate, shape (K,).
        placement: a `Placement` for each option, shape (O,).
        group: tables with one number here are placed together (torchrec's `dependency`), shape
            (T,).
        module: the module that a table belongs to, shape (T,).
        option_storage, option_perf: sums over an option's shards in torchrec's order, shapes
            (O, 3) and (O,).
        largest_shard: `Perf.total` of the dearest shard of an option, shape (O,).
    """

    options: Sequence[ShardingOption]
    table: Ints
    first_shard: Ints
    estimate: Ints
    storage: Ints
    perf: Floats
    total: Floats
    placement: Ints
    group: Ints
    module: Ints
    option_storage: Ints
    option_perf: Floats
    largest_shard: Floats

    @property
    def tables(self) -> int:
        """T, the number of tables."""
        return len(self.group)

    def estimates_of(self, option: int) -> Ints:
        """Return which estimate each shard of an option has."""
        return self.estimate[self.first_shard[option] : self.first_shard[option + 1]]


@dataclass(frozen=True, slots=True)
class Devices:
    """What the ranks can hold: `storage` in bytes of HBM, DDR and SSD, shape (ranks, 3).

    `local_ranks` breaks ties between devices; `host_ranks` is how many ranks a host of torchrec's
    partitioner has (its intra-group size); ranks that do not fill a host are on none.
    """

    storage: Ints
    local_ranks: int
    host_ranks: int

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.storage)

    @property
    def hosts(self) -> int:
        """The number of whole hosts."""
        return self.ranks // self.host_ranks


def devices_of(topology: Topology) -> Devices:
    """Return the devices of a topology, as they are after any reservation."""
    return Devices(
        storage=np.array(
            [[d.storage.hbm, d.storage.ddr, d.storage.ssd] for d in topology.devices], np.int64
        ),
        local_ranks=topology.local_world_size,
        host_ranks=topology.intra_group_size,
    )


def search_space(options: Sequence[ShardingOption]) -> SearchSpace:
    """Return options with estimates as arrays; the options are kept and not changed.

    Raises:
        ValueError: an estimate is not in whole bytes.
    """
    tables: dict[str, int] = {}
    groups: dict[str, int] = {}
    modules: dict[str, int] = {}
    group: list[int] = []
    module: list[int] = []
    table: list[int] = []
    for option in options:
        fqn = option.fqn
        if fqn not in tables:
            tables[fqn] = len(tables)
            group.append(groups.setdefault(option.dependency or fqn, len(groups)))
            module.append(modules.setdefault(option.path, len(modules)))
        table.append(tables[fqn])
    estimates = _Estimates()
    estimate = np.array(
        [estimates.index(shard) for option in options for shard in option.shards], np.int64
    )
    counts = [len(option.shards) for option in options]
    first_shard = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    storage = np.array(estimates.storage).reshape(-1, 3)
    if storage.size and storage.dtype.kind != "i":
        raise ValueError("an estimate is not in whole bytes")
    storage = storage.astype(np.int64)
    total = np.array([perf.total for perf in estimates.perf], np.float64)
    return SearchSpace(
        options=options,
        table=np.array(table, np.int64),
        first_shard=first_shard,
        estimate=estimate,
        storage=storage,
        perf=np.array(
            [
                (p.fwd_compute, p.bwd_compute, p.fwd_comms, p.bwd_comms, p.prefetch_compute)
                for p in estimates.perf
            ],
            np.float64,
        ).reshape(-1, 5),
        total=total,
        placement=np.array([_placement(option) for option in options], np.int64),
        group=np.array(group, np.int64),
        module=np.array(module, np.int64),
        option_storage=np.add.reduceat(storage[estimate], first_shard[:-1]),
        option_perf=_sums_in_order(total[estimate], first_shard),
        largest_shard=np.maximum.reduceat(total[estimate], first_shard[:-1]),
    )


class _Estimates:
    """Numbers the distinct pairs of estimate objects; shards of equal size may share them."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], int] = {}
        self.storage: list[tuple[int, int, int]] = []
        self.perf: list[Perf] = []

    def index(self, shard: Shard) -> int:
        perf, storage = shard.perf, shard.storage
        key = (id(perf), id(storage))
        found = self._known.get(key)
        if found is None:
            assert isinstance(perf, Perf)
            assert isinstance(storage, Storage)
            found = self._known[key] = len(self.perf)
            self.storage.append((storage.hbm, storage.ddr, storage.ssd))
            self.perf.append(perf)
        return found


def _placement(option: ShardingOption) -> Placement:
    if option.partition_by == PartitionByType.UNIFORM.value:
        return Placement.UNIFORM
    if option.partition_by == PartitionByType.DEVICE.value:
        return Placement.DEVICE
    return _BY_TYPE.get((option.partition_by, option.sharding_type), Placement.NOWHERE)


def _sums_in_order(values: Floats, first: Ints) -> Floats:
    """Sum each slice from left to right, as Python does; NumPy's own sums add in pairs."""
    return np.array([sum(values[start:end].tolist()) for start, end in pairwise(first)], np.float64)
