"""The search space and the devices as arrays, for compiled code.

Processes that compile kernels import this module, so it imports torchrec only where it is used.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torchrec.distributed.planner.types import ShardingOption, Topology

    from planners.embedding.search.options import UnmadeShards

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Kernels are compiled for arrays with the annotated number of dimensions, by default one.
Ints2 = Annotated[Ints, 2]
Floats2 = Annotated[Floats, 2]
Floats3 = Annotated[Floats, 3]


_CHUNK = 2**21  # shards for which intermediate arrays are in memory at the same time

_BYTES = attrgetter("hbm", "ddr", "ssd")
# In the order in which `Perf.total` adds them, so that sums agree to the last bit.
_MILLISECONDS = attrgetter(
    "fwd_compute", "bwd_compute", "fwd_comms", "bwd_comms", "prefetch_compute"
)


class Placement(IntEnum):
    """The rule by which the shards of an option are assigned to devices."""

    UNIFORM = 0  # shard i on rank i
    DEVICE = 1  # each shard on any device
    HOST_ROWS = 2  # on one host, shard i on its i-th device (table_row_wise)
    HOST_COLUMNS = 3  # on one host, each shard on any of its devices (table_column_wise)
    HOSTS = 4  # on several hosts, shard i on their i-th device (grid_shard)
    NOWHERE = 5  # torchrec's partitioner cannot place this sharding type


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The options of all tables as arrays: T tables, O options, S shards, K distinct estimates.

    A table is one parameter with its module's path (torchrec's `fqn`). Tables are numbered in the
    order of their first options, which is the order of torchrec's proposals. The components of
    `perf` are forward and backward compute, forward and backward comms, and prefetch.
    """

    options: Sequence["ShardingOption"]  # the options that the arrays describe
    table: Ints  # the table of each option, shape (O,)
    first_shard: Ints  # option o has the shards first_shard[o] to first_shard[o + 1], (O + 1,)
    estimate: Ints  # the estimate number of each shard, shape (S,)
    storage: Ints  # bytes of HBM, DDR and SSD of each estimate, shape (K, 3)
    perf: Floats  # milliseconds of each component of each estimate, shape (K, 5)
    total: Floats  # milliseconds (`Perf.total`) of each estimate, shape (K,)
    placement: Ints  # a `Placement` for each option, shape (O,)
    group: Ints  # equal for tables that are placed together (torchrec's `dependency`), shape (T,)
    module: Ints  # the module number of each table, shape (T,)
    option_storage: Ints  # bytes summed over each option's shards, shape (O, 3)
    option_perf: Floats  # milliseconds summed over each option's shards in torchrec's order, (O,)
    largest_shard: Floats  # `Perf.total` of an option's most expensive shard, shape (O,)

    @property
    def tables(self) -> int:
        """The number of tables, T."""
        return len(self.group)

    @property
    def largest_storage(self) -> Ints:
        """The most bytes of HBM, DDR and SSD of a shard of each option, shape (O, 3)."""
        estimate, _, first_run = runs(self.first_shard, self.estimate)
        return np.maximum.reduceat(self.storage[estimate], first_run)

    def estimates_of(self, option: int) -> Ints:
        """Return the estimate number of each shard of an option."""
        return self.estimate[self.first_shard[option] : self.first_shard[option + 1]]


@dataclass(frozen=True, slots=True)
class Devices:
    """The memory of all ranks; ranks after the last whole host belong to no host."""

    storage: Ints  # bytes of HBM, DDR and SSD of each rank, shape (ranks, 3)
    local_ranks: int  # torchrec's local world size, which breaks ties between ranks
    host_ranks: int  # ranks per host of torchrec's partitioner (its intra-group size)

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.storage)

    @property
    def hosts(self) -> int:
        """The number of whole hosts."""
        return self.ranks // self.host_ranks


class Load(NamedTuple):
    """The load of R ranks: milliseconds (R,), and bytes of HBM, DDR and SSD (R, 3)."""

    perf: Floats
    used: Ints

    @property
    def rating(self) -> float:
        """Milliseconds of the slowest rank."""
        return float(self.perf.max())


def devices_of(topology: "Topology") -> Devices:
    """Return the devices of a topology, with its current storage (after any reservation)."""
    return Devices(
        storage=np.array([_BYTES(device.storage) for device in topology.devices], np.int64),
        local_ranks=topology.local_world_size,
        host_ranks=topology.intra_group_size,
    )


def search_space(options: Sequence["ShardingOption"]) -> SearchSpace:
    """Return estimated options as arrays; raise ValueError if storage is not in whole bytes."""
    from planners.embedding.search.options import unmade_shards

    # 1. The estimate number of each shard, and all estimates, each once.
    unmade = [shards for option in options if (shards := unmade_shards(option))]
    if len(unmade) == len(options) and len({shards.estimates for shards in unmade}) == 1:
        first_shard, estimate, (storage, perf, total) = _unmade(unmade)
    else:
        first_shard, estimate, (storage, perf, total) = _made(options)
    if storage.size and storage.dtype.kind != "i":
        raise ValueError("an estimate is not in whole bytes")
    storage, perf = storage.astype(np.int64, order="C"), perf.astype(np.float64, order="C")
    # 2. Figures of options; rounding needs torchrec's order only in sums of milliseconds.
    run, length, first_run = runs(first_shard, estimate)
    # 3. Tables, in the order of their first options.
    tables: dict[str, ShardingOption] = {}
    for option in options:
        tables.setdefault(option.fqn, option)
    return SearchSpace(
        options=options,
        table=_numbers(option.fqn for option in options),
        first_shard=first_shard,
        estimate=estimate,
        storage=storage,
        perf=perf,
        total=total,
        placement=_placements(options),
        group=_numbers(option.dependency or fqn for fqn, option in tables.items()),
        module=_numbers(option.path for option in tables.values()),
        option_storage=np.add.reduceat(storage[run] * length[:, None], first_run),
        option_perf=_sums_in_order(total, first_shard, estimate),
        largest_shard=np.maximum.reduceat(total[run], first_run),
    )


def load_of(space: SearchSpace, options: Ints, ranks: Ints, world_size: int) -> Load:
    """Return the load of a plan on `world_size` ranks.

    `options` has option numbers, and `ranks` the rank of each of their shards, option by option.
    Shards are added in this order, so sums equal those of torchrec's perf model to the last bit.
    """
    load = Load(np.zeros(world_size), np.zeros((world_size, 3), np.int64))
    if len(ranks):
        estimate = np.concatenate([space.estimates_of(option) for option in options.tolist()])
        np.add.at(load.perf, ranks, space.total[estimate])
        for kind in range(3):  # NumPy adds much faster in one dimension
            np.add.at(load.used[:, kind], ranks, space.storage[estimate, kind])
    return load


def load_of_plan(plan: Sequence["ShardingOption"], world_size: int) -> Load:
    """Return the load of a plan that has one option, with ranks, for each table."""
    ranks = np.array([shard.rank for option in plan for shard in option.shards], np.int64)
    return load_of(search_space(plan), np.arange(len(plan)), ranks, world_size)


def torchrecs_order(options: Sequence["ShardingOption"]) -> Ints:
    """Return the places of each option's type and kernel in torchrec's lists, shape (O, 2)."""
    from torchrec.distributed.embedding_types import EmbeddingComputeKernel
    from torchrec.distributed.types import ShardingType

    types = {name.value: place for place, name in enumerate(ShardingType)}
    kernels = {name.value: place for place, name in enumerate(EmbeddingComputeKernel)}
    last = len(types) + len(kernels)
    places = [
        (types.get(option.sharding_type, last), kernels.get(option.compute_kernel, last))
        for option in options
    ]
    return np.array(places, np.int64).reshape(-1, 2)


Estimated = tuple[Ints, Ints, tuple[Any, Any, Floats]]
"""As in SearchSpace: first_shard, estimate, and the estimates' storage, perf and total."""


def _made(options: Sequence["ShardingOption"]) -> Estimated:
    shards = [shard for option in options for shard in option.shards]
    keys = [(id(shard.perf), id(shard.storage)) for shard in shards]  # equal shards may share both
    distinct = dict(zip(keys, shards, strict=True)).values()
    first_shard = np.cumsum([0, *(len(option.shards) for option in options)], dtype=np.int64)
    storage = np.array([_BYTES(shard.storage) for shard in distinct]).reshape(-1, 3)
    perf = np.array([_MILLISECONDS(shard.perf) for shard in distinct]).reshape(-1, 5)
    total = np.array([shard.perf.total for shard in distinct], np.float64)
    return first_shard, _numbers(keys), (storage, perf, total)


def _unmade(shards: Sequence["UnmadeShards"]) -> Estimated:
    """Return the same arrays as `_made`, without creating the shards."""
    counts = [len(option.layout.sizes) for option in shards]
    begin = np.cumsum([0, *counts])
    used = np.repeat([option.first for option in shards] - begin[:-1], counts)
    storage, perf = shards[0].estimates.get(used + np.arange(begin[-1]))
    first_shard = np.cumsum([0, *(len(option.layout.which) for option in shards)])
    estimate = np.empty(first_shard[-1], np.int64)
    for option, start, known in zip(shards, first_shard.tolist(), begin.tolist(), strict=False):
        which = option.layout.which
        np.add(which, known, out=estimate[start : start + len(which)])
    of_estimates = _rows(_BYTES(storage)), _rows(_MILLISECONDS(perf)), perf.total.astype(np.float64)
    return first_shard, estimate, of_estimates


def _rows(columns: Iterable[Any]) -> Any:
    return np.array([column.tolist() for column in columns]).T


def runs(first_shard: Ints, estimate: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the runs of equal estimates in options, which are few, even on thousands of ranks.

    They are each run's estimate and its number of shards, and the first run of each option.
    """
    starts = np.empty(len(estimate), bool)
    starts[:1] = True
    np.not_equal(estimate[1:], estimate[:-1], out=starts[1:])
    starts[first_shard[:-1]] = True
    start = np.flatnonzero(starts)
    length = np.diff(start, append=len(estimate))
    return estimate[start], length, np.searchsorted(start, first_shard[:-1])


def _sums_in_order(total: Floats, first_shard: Ints, estimate: Ints) -> Floats:
    """Sum each option's values from left to right, as torchrec does; NumPy adds in pairs.

    Arrays of all shards at once would take much memory, so some options are summed at a time.
    """
    ends = np.searchsorted(first_shard, np.arange(_CHUNK, first_shard[-1], _CHUNK))
    sums = np.zeros(len(first_shard) - 1)
    for first, end in pairwise([0, *ends.tolist(), len(sums)]):
        option = np.repeat(np.arange(end - first), np.diff(first_shard[first : end + 1]))
        values = total[estimate[first_shard[first] : first_shard[end]]]
        sums[first:end] = np.bincount(option, weights=values, minlength=end - first)
    return sums


def _numbers(keys: Iterable[Hashable]) -> Ints:
    """Return a number for each key, in the order of first appearance."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def _placements(options: Sequence["ShardingOption"]) -> Ints:
    from torchrec.distributed.planner.types import PartitionByType
    from torchrec.distributed.types import ShardingType

    by_rank = {
        PartitionByType.UNIFORM.value: Placement.UNIFORM,
        PartitionByType.DEVICE.value: Placement.DEVICE,
    }
    by_host = {
        (PartitionByType.HOST.value, ShardingType.TABLE_ROW_WISE.value): Placement.HOST_ROWS,
        (PartitionByType.HOST.value, ShardingType.TABLE_COLUMN_WISE.value): Placement.HOST_COLUMNS,
        (PartitionByType.MULTI_HOST.value, ShardingType.GRID_SHARD.value): Placement.HOSTS,
    }
    kinds = [(option.partition_by, option.sharding_type) for option in options]
    return np.array(
        [by_rank.get(by, by_host.get((by, kind), Placement.NOWHERE)) for by, kind in kinds],
        np.int64,
    )
