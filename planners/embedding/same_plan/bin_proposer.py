"""TorchEasyRec's dynamic programming over memory bins: 1D in plain Python, 2D in NumPy.

The compiled search runs the same programmes with kernels for the loops over states and options.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
from torchrec.distributed.planner.types import Enumerator, Proposer, ShardingOption, Topology
from typing_extensions import override

from planners.embedding.search import space as arrays
from planners.embedding.search.space import Devices, Floats, Ints, SearchSpace

Numbers = npt.NDArray[np.signedinteger[Any]]
Singles = npt.NDArray[np.float32]

Layer = tuple[Numbers, Numbers]
"""For each state of some tables: the last table's option, and the state of the tables before it."""

HBM, DDR = 0, 1  # columns of storage

_CHUNK = 256  # proposals that are made at a time


class BinProposer(Proposer):
    """Proposes, for each total of memory, the options with the least summed perf.

    The memory of all devices is divided into bins, `bins_per_device` for each device. Table by
    table, each bin keeps the cheapest combination of options with a total in that bin (the first,
    if several are equally cheap) and its exact memory. The first proposal has the smallest option
    of each table; the next ones are those of the reached bins, from the fullest to the emptiest.
    Tables are sorted by the size of their smallest option. Memory is HBM if any option uses HBM,
    and otherwise, for example on machines without GPUs, DDR.

    This is TorchEasyRec's original one-dimensional form, from which torchrec's
    DynamicProgrammingProposer derives. Unlike both, it can be loaded more than once.
    """

    def __init__(self, bins_per_device: int = 100) -> None:
        if bins_per_device < 1:
            raise ValueError(f"bins_per_device must be at least 1, not {bins_per_device}.")
        self.bins_per_device = bins_per_device
        self._space: SearchSpace
        self._proposal: list[ShardingOption] | None = None
        self._later: Iterator[Ints] | None = None

    @override
    def load(
        self, search_space: list[ShardingOption], enumerator: Enumerator | None = None
    ) -> None:
        """Start again with a new search space."""
        self._later = None if search_space else iter(())
        self._proposal = None
        if search_space:
            self._space = arrays.search_space(search_space)
            options, first = self.by_table(self._space)
            self._proposal = self._chosen(options[first[:-1]])

    @override
    def propose(self) -> list[ShardingOption] | None:
        """Return the current proposal, None after the last; `feedback` advances to the next one."""
        return self._proposal

    @override
    def feedback(
        self,
        partitionable: bool,
        plan: list[ShardingOption] | None = None,
        perf_rating: float | None = None,
        storage_constraint: Topology | None = None,
    ) -> None:
        """Advance to the next proposal; raise ValueError if the first call has no topology."""
        if self._later is None:
            if storage_constraint is None:
                raise ValueError("The first feedback needs a topology as `storage_constraint`.")
            devices = arrays.devices_of(storage_constraint)
            self._later = chain.from_iterable(self.cheapest(self._space, devices))
        row = next(self._later, None)
        self._proposal = None if row is None else self._chosen(row)

    def _chosen(self, row: Ints) -> list[ShardingOption]:
        return [self._space.options[number] for number in row.tolist()]

    def kind(self, space: SearchSpace) -> int:
        """Return the kind of memory that is divided into bins, HBM or DDR."""
        return HBM if space.option_storage[:, HBM].any() else DDR

    def by_table(self, space: SearchSpace) -> tuple[Ints, Ints]:
        """Return the options by table, the smallest first, and each table's start, (T + 1,)."""
        return _by_size(space, space.option_storage[:, self.kind(space)])

    def cheapest(
        self, space: SearchSpace, devices: Devices, compiled: bool = False
    ) -> Iterator[Ints]:
        """Yield the cheapest combination of each reached bin, in chunks of option numbers, (P, T).

        Nothing is yielded if the devices have no memory, where torchrec divides by zero.
        """
        options, first = self.by_table(space)
        kind = self.kind(space)
        capacity, bins = int(devices.storage[:, kind].sum()), self.bins_per_device * devices.ranks
        if capacity:
            memory = space.option_storage[options, kind] / (float(capacity) / bins)
            fill = _fill_compiled if compiled else _fill
            layers, reached = fill(memory, space.option_perf[options], first, bins)
            yield from _traced(layers, reached[::-1], options, first)


class BinProposer2D(BinProposer):
    """Proposes, for each total of HBM, the options with the least summed perf at any fitting DDR.

    The HBM and the DDR of all devices are each divided into bins. Table by table, each reached pair
    of bins keeps the cheapest combination of options with totals in these bins (the first, if
    several are equally cheap) and its memory in single precision. An option is left out if one of
    its shards exceeds the HBM of every device or the DDR of every host. The first proposal has the
    smallest option of each table, by HBM plus DDR; the next ones are those of the HBM bins, from
    the fullest to the emptiest.

    TorchEasyRec makes these proposals since May 2026; unlike its proposer, this one can be loaded
    more than once.
    """

    def __init__(self, bins_per_device: int = 100, ddr_bins_per_device: int = 25) -> None:
        super().__init__(bins_per_device)
        if ddr_bins_per_device < 1:
            raise ValueError(f"ddr_bins_per_device must be at least 1, not {ddr_bins_per_device}.")
        self.ddr_bins_per_device = ddr_bins_per_device

    @override
    def by_table(self, space: SearchSpace) -> tuple[Ints, Ints]:
        return _by_size(space, space.option_storage[:, : DDR + 1].sum(1))

    @override
    def cheapest(
        self, space: SearchSpace, devices: Devices, compiled: bool = False
    ) -> Iterator[Ints]:
        # 1. The bins of HBM and of DDR; memory that no device has gets one bin of infinite size.
        storage = devices.storage[:, : DDR + 1]
        per_device, total = (self.bins_per_device, self.ddr_bins_per_device), storage.sum(0)
        hbm_bins, ddr_bins = np.where(total, np.multiply(per_device, devices.ranks), 1).tolist()
        bins = (hbm_bins, ddr_bins)
        # 2. Leave out options with a shard that is larger than any device's HBM or host's DDR.
        hosts = np.add.reduceat(storage, np.arange(0, devices.ranks, devices.local_ranks))
        most = np.where(total, (storage[:, HBM].max(), hosts[:, DDR].max()), inf)
        options, first = self.by_table(space)
        fits = np.all(space.largest_storage[:, : DDR + 1] <= most, axis=1)[options]
        options, first = options[fits], np.concatenate([[0], np.cumsum(fits)])[first]
        # 3. Add table after table to the states, which ascend by their pairs of bins.
        size = np.where(total, total / bins, inf)
        memory = (space.option_storage[options, : DDR + 1] / size).astype(np.float32)
        perf = space.option_perf[options].astype(np.float32)
        entry = np.full(hbm_bins * ddr_bins if compiled else 0, -1, np.int32)
        add = partial(_add_compiled, entry) if compiled else _add
        exact, spent, layers = np.zeros((1, 2), np.float32), np.zeros(1, np.float32), []
        for begin, end in pairwise(first.tolist()):
            layer, exact, spent = add(memory[begin:end], perf[begin:end], exact, spent, bins)
            layers.append(layer)
        # 4. Propose the (first) cheapest combination of each reached HBM bin, the fullest first.
        ends = _first_least(exact[:, HBM].astype(np.int64), spent)[::-1]
        yield from _traced(layers, ends, options, first)


def _by_size(space: SearchSpace, size: Ints) -> tuple[Ints, Ints]:
    """Group options by table, and sort tables by their smallest options."""
    first = np.unique(space.table[np.argsort(size, kind="stable")], return_index=True)[1]
    return grouped(np.argsort(np.argsort(first))[space.table], size)


def grouped(table: Ints, score: Ints | Floats) -> tuple[Ints, Ints]:
    """Return options grouped by table, the lowest score first, and each table's start, (T + 1,)."""
    first = np.concatenate([[0], np.cumsum(np.bincount(table))])
    return np.lexsort((score, table)), first


def _fill(memory: Floats, perf: Floats, first: Ints, bins: int) -> tuple[list[Layer], Numbers]:
    """Return for each table and bin the cheapest combination, and the bins that all tables reach.

    Table t has the options first[t] to first[t + 1], of these figures, memory in bins.
    """
    layers: list[Layer] = []
    spent, used = [0.0] + [inf] * (bins - 1), [0.0] * bins
    for begin, end in pairwise(first.tolist()):
        best, exact = [inf] * bins, [0.0] * bins
        option, previous = [-1] * bins, [-1] * bins
        figures = zip(memory[begin:end].tolist(), perf[begin:end].tolist(), strict=True)
        for number, (more_memory, more_perf) in enumerate(figures):
            for start, cost in enumerate(spent):
                if cost < inf:
                    total = used[start] + more_memory
                    if total < bins:
                        reached = int(total)
                        if cost + more_perf < best[reached]:
                            best[reached], exact[reached] = cost + more_perf, total
                            option[reached], previous[reached] = number, start
        layers.append((np.array(option), np.array(previous)))
        spent, used = best, exact
    return layers, np.flatnonzero(np.isfinite(spent))


def _fill_compiled(
    memory: Floats, perf: Floats, first: Ints, bins: int
) -> tuple[list[Layer], Numbers]:
    from planners.embedding.same_plan.bins import fill

    tables = len(first) - 1
    choice, previous = np.empty((tables, bins), np.int16), np.empty((tables, bins), np.int32)
    reached, states = np.zeros(bins, np.int32), np.zeros((4, bins))
    count = fill(memory, perf, first, choice, previous, reached, *states)
    return list(zip(choice, previous, strict=True)), reached[:count]


def _add(
    memory: Singles, perf: Singles, exact: Singles, spent: Singles, bins: tuple[int, int]
) -> tuple[Layer, Singles, Singles]:
    """Add a table to states, given by their exact memory and cost; return its layer and states."""
    ends = exact[:, np.newaxis] + memory
    previous, option = np.nonzero((ends < bins).all(2))
    ends, cost = ends[previous, option], spent[previous] + perf[option]
    hbm, ddr = ends.astype(np.int64).T
    best = _first_least(hbm * bins[DDR] + ddr, cost)
    return (option[best], previous[best]), ends[best], cost[best]


def _add_compiled(
    entry: npt.NDArray[np.int32],
    memory: Singles,
    perf: Singles,
    exact: Singles,
    spent: Singles,
    bins: tuple[int, int],
) -> tuple[Layer, Singles, Singles]:
    from planners.embedding.same_plan.bins import add_table

    most = min(len(spent) * len(perf), len(entry))
    cell, ends = np.empty(most, np.int64), np.empty((most, 2), np.float32)
    option, previous = np.empty((2, most), np.int32)
    cost = np.empty(most, np.float32)
    count = add_table(memory, perf, exact, spent, *bins, entry, cell, option, previous, ends, cost)
    entry[cell[:count]] = -1
    order = np.argsort(cell[:count])
    return (option[order], previous[order]), ends[order], cost[order]


def _first_least(group: Ints, cost: Singles) -> Ints:
    """Return, for each group in ascending order, the index of its (first) least cost."""
    order = np.lexsort((cost, group))
    return order[np.unique(group[order], return_index=True)[1]]


def _traced(layers: Sequence[Layer], ends: Numbers, options: Ints, first: Ints) -> Iterator[Ints]:
    """Yield the combinations that end in these states, in chunks of option numbers."""
    for start in range(0, len(ends), _CHUNK):
        state = ends[start : start + _CHUNK]
        rows = np.empty((len(state), len(layers)), np.int64)
        for table in reversed(range(len(layers))):
            option, previous = layers[table]
            rows[:, table], state = options[first[table] + option[state]], previous[state]
        yield rows
