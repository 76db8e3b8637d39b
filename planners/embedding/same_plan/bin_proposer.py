"""TorchEasyRec's dynamic programming over memory bins: 1D in plain Python, 2D in NumPy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt
from torchrec.distributed.planner.types import (
    Enumerator,
    Proposer,
    ShardingOption,
    Storage,
    Topology,
)
from typing_extensions import override

from planners.embedding.search.space import Ints

Singles = npt.NDArray[np.float32]


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
        self._kind = "hbm"
        self._tables: list[list[ShardingOption]] = []
        self._proposal: list[ShardingOption] | None = None
        self._later: Iterator[list[ShardingOption]] | None = None

    @override
    def load(
        self, search_space: list[ShardingOption], enumerator: Enumerator | None = None
    ) -> None:
        """Start again with a new search space."""
        sizes = self._sizes([option.total_storage for option in search_space])
        by_fqn: dict[str, list[ShardingOption]] = {}
        for number in sorted(range(len(sizes)), key=sizes.__getitem__):
            option = search_space[number]
            by_fqn.setdefault(option.fqn, []).append(option)
        self._tables = list(by_fqn.values())
        self._proposal = [options[0] for options in self._tables] or None
        self._later = None

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
            chosen = self._by_bin(storage_constraint) if self._tables else iter(())
            self._later = (
                [options[number] for options, number in zip(self._tables, numbers, strict=True)]
                for numbers in chosen
            )
        self._proposal = next(self._later, None)

    def _sizes(self, storages: Sequence[Storage]) -> list[int]:
        """Choose the kind of memory to count, and return each option's size in it, in bytes."""
        self._kind = "hbm" if any(storage.hbm for storage in storages) else "ddr"
        return [getattr(storage, self._kind) for storage in storages]

    def _by_bin(self, topology: Topology) -> Iterator[list[int]]:
        """Yield the proposals after the first: the index of the chosen option in each table."""
        sizes = [getattr(device.storage, self._kind) for device in topology.devices]
        capacity, bins = sum(sizes), self.bins_per_device * len(sizes)
        if not capacity:
            return
        bin_size = float(capacity) / bins
        tables = [
            [
                (float(getattr(option.total_storage, self._kind)) / bin_size, option.total_perf)
                for option in options
            ]
            for options in self._tables
        ]
        layers = _layers(tables, bins)
        for fullest in reversed(range(bins)):
            if layers[-1][0][fullest] >= 0:
                yield _trace(layers, fullest)


Layer = tuple[Sequence[int], Sequence[int]] | tuple[Ints, Ints]
"""For each bin that some tables fill: the option of the last, and the bin that the others fill."""


def _layers(tables: Sequence[Sequence[tuple[float, float]]], bins: int) -> list[Layer]:
    """Return for each table and bin the cheapest combination's option and its previous bin.

    `tables` has the memory, in bins, and the perf of each option. Unreached bins have -1.
    """
    layers: list[Layer] = []
    spent, used = [0.0] + [inf] * (bins - 1), [0.0] * bins
    for table in tables:
        best, exact = [inf] * bins, [0.0] * bins
        option, previous = [-1] * bins, [-1] * bins
        for number, (more_memory, more_perf) in enumerate(table):
            for start, perf in enumerate(spent):
                if perf < inf:
                    memory = used[start] + more_memory
                    if memory < bins:
                        end = int(memory)
                        cost = perf + more_perf
                        if cost < best[end]:
                            best[end], exact[end] = cost, memory
                            option[end], previous[end] = number, start
        layers.append((option, previous))
        spent, used = best, exact
    return layers


def _trace(layers: Sequence[Layer], end: int) -> list[int]:
    """Return the best combination with a total in bin `end`: the option of each table."""
    chosen = []
    for option, previous in reversed(layers):
        chosen.append(int(option[end]))
        end = int(previous[end])
    return chosen[::-1]


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
    def _sizes(self, storages: Sequence[Storage]) -> list[int]:
        return [storage.hbm + storage.ddr for storage in storages]

    @override
    def _by_bin(self, topology: Topology) -> Iterator[list[int]]:
        axes = axes_of(
            np.array([(device.storage.hbm, device.storage.ddr) for device in topology.devices]),
            topology.local_world_size,
            (self.bins_per_device, self.ddr_bins_per_device),
        )
        tables = []
        for options in self._tables:
            largest = np.array(
                [np.max([(s.storage.hbm, s.storage.ddr) for s in o.shards], 0) for o in options]
            )
            kept = np.flatnonzero((largest <= axes.largest).all(1))
            total = [(option.total_storage.hbm, option.total_storage.ddr) for option in options]
            perf = np.array([option.total_perf for option in options], np.float32)
            tables.append((kept, axes.in_bins(np.array(total))[kept], perf[kept]))
        return _cheapest(tables, axes)


@dataclass(frozen=True, slots=True)
class Axes:
    """The bins of HBM and of DDR; memory that no device has gets one bin of infinite size."""

    bins: tuple[int, int]
    size: tuple[float, float]  # bytes per bin, infinite if no device has such memory
    largest: tuple[float, float]  # most HBM of a device, most DDR of a host, in bytes

    def in_bins(self, memory: Ints) -> Singles:
        """Convert bytes of HBM and DDR, shape (N, 2), to bins, in single precision."""
        return np.asarray(memory / np.array(self.size), np.float32)


def axes_of(storage: Ints, host_ranks: int, bins_per_device: tuple[int, int]) -> Axes:
    """Return the bins for devices with `storage` bytes of HBM and DDR, shape (ranks, 2)."""
    ranks = len(storage)
    of_hosts = np.add.reduceat(storage[:, 1], np.arange(0, ranks, host_ranks))
    most_of = (storage[:, 0].max(), of_hosts.max())
    totals = storage.sum(0).tolist()
    bins, size, largest = zip(
        *(
            (count * ranks, total / (count * ranks), float(most)) if total else (1, inf, inf)
            for count, total, most in zip(bins_per_device, totals, most_of, strict=True)
        ),
        strict=True,
    )
    return Axes(bins, size, largest)


def _cheapest(tables: Sequence[tuple[Ints, Singles, Singles]], axes: Axes) -> Iterator[list[int]]:
    """Yield the cheapest combination of options in each reached HBM bin, the fullest bin first.

    Each table is given as its option numbers, their memory in bins, shape (N, 2), and their perf.
    """
    used, spent = np.zeros((1, 2), np.float32), np.zeros(1, np.float32)
    layers: list[Layer] = []
    for numbers, memory, perf in tables:
        ends = used[:, np.newaxis] + memory
        previous, option = np.nonzero((ends < axes.bins).all(2))
        ends = ends[previous, option]
        cost = spent[previous] + perf[option]
        hbm, ddr = ends.astype(np.int64).T
        best = first_least(hbm * axes.bins[1] + ddr, cost)
        used, spent = ends[best], cost[best]
        layers.append((numbers[option[best]], previous[best]))
    for end in first_least(used[:, 0].astype(np.int64), spent)[::-1].tolist():
        yield _trace(layers, end)


def first_least(group: Ints, cost: Singles) -> Ints:
    """Return, for each group in ascending order, the index of its (first) least cost."""
    order = np.lexsort((cost, group))
    return order[np.unique(group[order], return_index=True)[1]]
