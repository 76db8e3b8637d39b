"""TorchEasyRec's dynamic programme over bins of HBM and of DDR, in NumPy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torchrec.distributed.planner.types import ShardingOption, Storage, Topology
from typing_extensions import override

from planners.embedding.same_plan.bin_proposer import BinProposer
from planners.embedding.search.space import Ints

Singles = npt.NDArray[np.float32]


class BinProposer2D(BinProposer):
    """Proposes, for each total of HBM, the options of the least summed perf, whatever their DDR.

    The HBM of all devices is cut into bins and so is their DDR. Table by table, each pair of bins
    that is reached keeps the cheapest combination of options that ends in it, the first of equals,
    with its memory in single precision. Options of a shard that is larger than the HBM of every
    device, or the DDR of every host, are left out. The first proposal has the smallest option of
    each table, by HBM and DDR; then comes one for each bin of HBM, from the fullest down.

    This is what TorchEasyRec proposes since May 2026; unlike that, it can be loaded again.
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
    def _by_bin(self, topology: Topology) -> Iterator[list[ShardingOption]]:
        axes = axes_of(
            np.array([(each.storage.hbm, each.storage.ddr) for each in topology.devices]),
            topology.local_world_size,
            (self.bins_per_device, self.ddr_bins_per_device),
        )
        tables = []
        for options in self._tables:
            shards = [[(s.storage.hbm, s.storage.ddr) for s in each.shards] for each in options]
            largest = np.array([np.max(each, axis=0) for each in shards])
            kept = np.flatnonzero((largest <= axes.largest).all(1))
            held = [(o.total_storage.hbm, o.total_storage.ddr) for o in options]
            perf = np.array([each.total_perf for each in options], np.float32)
            tables.append((kept, axes.in_bins(np.array(held))[kept], perf[kept]))
        for row in _cheapest(tables, axes) if tables else ():
            yield [options[number] for options, number in zip(self._tables, row, strict=True)]


@dataclass(frozen=True, slots=True)
class Axes:
    """The bins of HBM and of DDR; a kind of memory that no device has is one bin for everything."""

    bins: tuple[int, int]
    size: tuple[float, float]  # bytes of a bin, infinite where there is no such memory
    largest: tuple[float, float]  # bytes of a shard that a device, or a host for DDR, can hold

    def in_bins(self, held: Ints) -> Singles:
        """Return bytes of shape (N, 2) in bins."""
        return np.asarray(held / np.array(self.size), np.float32)


def axes_of(storage: Ints, host_ranks: int, bins_per_device: tuple[int, int]) -> Axes:
    """Return the bins of devices of this HBM and DDR, shape (ranks, 2), so many ranks to a host."""
    ranks = len(storage)
    of_hosts = np.add.reduceat(storage[:, 1], np.arange(0, ranks, host_ranks))
    held = (storage[:, 0].max(), of_hosts.max())
    totals = storage.sum(0).tolist()
    bins, size, largest = zip(
        *(
            (each * ranks, total / (each * ranks), float(most)) if total else (1, np.inf, np.inf)
            for each, total, most in zip(bins_per_device, totals, held, strict=True)
        ),
        strict=True,
    )
    return Axes(bins, size, largest)


def _cheapest(tables: Sequence[tuple[Ints, Singles, Singles]], axes: Axes) -> Iterator[list[int]]:
    """Yield the options of the cheapest combination in each bin of HBM, the fullest first.

    A table has the numbers of its options, their memory in bins, and their perf.
    """
    held, spent = np.zeros((1, 2), np.float32), np.zeros(1, np.float32)
    layers = []
    for numbers, memory, perf in tables:
        ends = held[:, np.newaxis] + memory
        previous, option = np.nonzero((ends < axes.bins).all(2))
        ends = ends[previous, option]
        cost = spent[previous] + perf[option]
        hbm, ddr = ends.astype(np.int64).T
        best = _first_least(hbm * axes.bins[1] + ddr, cost)
        held, spent = ends[best], cost[best]
        layers.append((numbers[option[best]], previous[best]))
    for end in _first_least(held[:, 0].astype(np.int64), spent)[::-1].tolist():
        chosen = []
        for option, previous in reversed(layers):
            chosen.append(int(option[end]))
            end = previous[end]
        yield chosen[::-1]


def _first_least(group: Ints, cost: Singles) -> Ints:
    """Return where each group, in ascending order, has its least cost, the first of equals."""
    order = np.lexsort((cost, group))
    return order[np.unique(group[order], return_index=True)[1]]
