"""TorchEasyRec's dynamic programme over memory bins, in plain Python."""

from collections.abc import Iterator, Sequence
from math import inf

from torchrec.distributed.planner.types import (
    Enumerator,
    Proposer,
    ShardingOption,
    Storage,
    Topology,
)
from typing_extensions import override

Layer = tuple[list[int], list[int]]
"""Of each bin that some tables fill: the option of the last, and the bin that the others fill."""


class BinProposer(Proposer):
    """Proposes, for each total of memory, the options of the least summed perf.

    The memory of all devices is cut into bins, `bins_per_device` for each. Table by table, each bin
    keeps the cheapest combination of options that ends in it, the first of equals, with its exact
    memory. The first proposal has the smallest option of each table; then comes one for each bin
    that is reached, from the fullest down. Tables are in the order of their smallest options.

    Memory is HBM where any option takes some, and otherwise, as on machines without GPUs, DDR.
    This is the one-dimensional form that TorchEasyRec had first and that torchrec's
    DynamicProgrammingProposer comes from. Unlike these two, it can be loaded again.
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
        """Take a search space; what was loaded or proposed before is forgotten."""
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
        """Return the proposal that waits for feedback, or None when there are no more."""
        return self._proposal

    @override
    def feedback(
        self,
        partitionable: bool,
        plan: list[ShardingOption] | None = None,
        perf_rating: float | None = None,
        storage_constraint: Topology | None = None,
    ) -> None:
        """Go on to the next proposal; ValueError where the first feedback names no devices."""
        if self._later is None:
            if storage_constraint is None:
                raise ValueError("The first feedback must say what the devices can hold.")
            self._later = self._by_bin(storage_constraint)
        self._proposal = next(self._later, None)

    def _sizes(self, storages: Sequence[Storage]) -> list[int]:
        """Return the memory that options are sorted by."""
        self._kind = "hbm" if any(storage.hbm for storage in storages) else "ddr"
        return [getattr(storage, self._kind) for storage in storages]

    def _by_bin(self, topology: Topology) -> Iterator[list[ShardingOption]]:
        """Yield the proposals after the first."""
        held = [getattr(device.storage, self._kind) for device in topology.devices]
        capacity, bins = sum(held), self.bins_per_device * len(held)
        if not (capacity and self._tables):
            return
        bin_size = float(capacity) / bins
        layers = _layers(
            [[self._weighed(option, bin_size) for option in table] for table in self._tables],
            bins,
        )
        last, _ = layers[-1]
        for fullest in reversed(range(bins)):
            if last[fullest] >= 0:
                chosen = _trace(layers, fullest)
                yield [
                    options[number] for options, number in zip(self._tables, chosen, strict=True)
                ]

    def _weighed(self, option: ShardingOption, bin_size: float) -> tuple[float, float]:
        return float(getattr(option.total_storage, self._kind)) / bin_size, option.total_perf


def _layers(tables: Sequence[Sequence[tuple[float, float]]], bins: int) -> list[Layer]:
    """Return a layer for each table, given the memory in bins and the perf of its options."""
    layers = []
    spent, held = [0.0] + [inf] * (bins - 1), [0.0] * bins
    for table in tables:
        best, exact = [inf] * bins, [0.0] * bins
        option, previous = [-1] * bins, [-1] * bins
        for number, (more_memory, more_perf) in enumerate(table):
            for start, perf in enumerate(spent):
                if perf < inf:
                    memory = held[start] + more_memory
                    if memory < bins:
                        end = int(memory)
                        cost = perf + more_perf
                        if cost < best[end]:
                            best[end], exact[end] = cost, memory
                            option[end], previous[end] = number, start
        layers.append((option, previous))
        spent, held = best, exact
    return layers


def _trace(layers: Sequence[Layer], end: int) -> list[int]:
    """Return the option of each table in the combination that ends in a bin."""
    chosen = []
    for option, previous in reversed(layers):
        chosen.append(option[end])
        end = previous[end]
    return chosen[::-1]
