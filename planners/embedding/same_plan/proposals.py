"""TorchRec's proposers as streams of proposals, in torchrec's order, and partitioners' settings."""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, pairwise, repeat
from math import inf, prod
from typing import Any, cast

import numpy as np
from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
    SortBy,
)
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.types import Partitioner, Proposer
from typing_extensions import override

from planners.embedding.same_plan.bin_proposer import (
    HBM,
    BinProposer,
    BinProposer2D,
    grouped,
)
from planners.embedding.search.space import Devices, Floats, Ints, SearchSpace

Stream = Generator[Ints, Floats, None]
"""Yields proposals, option numbers in the order of the plan, shape (P, T); is sent their ratings,
NaN for a proposal that could not be placed."""

_LARGEST_CHUNK = 256


@dataclass(frozen=True, slots=True)
class PartitionRules:
    """The settings of GreedyPerfPartitioner or, if `searches` is set, MemoryBalancedPartitioner."""

    by_perf: bool = False  # place groups of tables by descending perf, else by descending storage
    balance_modules: bool = False  # before that, place modules with fewer tables first
    searches: int | None = None  # most times that a proposal is placed again, on less HBM
    tolerance: float = 0.0  # fraction by which less HBM may make the rating worse


def rules_of(partitioner: Partitioner) -> PartitionRules | None:
    """Return a partitioner's settings; None if its type, e.g. a subclass, has no compiled form."""
    if type(partitioner) is GreedyPerfPartitioner and isinstance(partitioner._sort_by, SortBy):
        return PartitionRules(partitioner._sort_by is SortBy.PERF, partitioner._balance_modules)
    if type(partitioner) is MemoryBalancedPartitioner:
        searches, tolerance = partitioner._max_search_count, partitioner._tolerance
        return PartitionRules(True, partitioner._balance_modules, searches, tolerance)
    return None


def stream(proposer: Proposer, space: SearchSpace, devices: Devices) -> Stream:
    """Return the stream of proposals that a new proposer with this one's settings makes."""
    return STREAMS[type(proposer)](proposer, space, devices)


def depends_on_ratings(proposer: Proposer) -> bool:
    """Whether a proposer's next proposals depend on the exact ratings of its earlier ones."""
    return type(proposer) is GreedyProposer and proposer._threshold is not None


def _greedy(proposer: GreedyProposer, space: SearchSpace, _: Devices) -> Stream:
    rows = _greedy_rows(space, proposer._use_depth)
    if proposer._threshold is None:
        yield from _in_chunks(rows)
    else:
        yield from _until_worse(rows, proposer._threshold)


def _greedy_rows(space: SearchSpace, use_depth: bool) -> Iterator[Ints]:
    """Yield proposals; each replaces the option with the most memory by its table's next one."""
    options, first = _by_score(space, use_depth)
    memory = _memory_order(space)[options]
    memory[first[1:] - 1] = 0  # a table's last option has no successor
    current = first[:-1].copy()
    urgency = memory[current]
    while True:
        yield options[current]
        table = int(urgency.argmax())
        if not urgency[table]:
            return
        current[table] += 1
        urgency[table] = memory[current[table]]


def _by_score(space: SearchSpace, use_depth: bool) -> tuple[Ints, Ints]:
    """Return options grouped by table, the best first, and each table's start, shape (T + 1,)."""
    return grouped(space.table, space.largest_shard if use_depth else _sums(space))


def _sums(space: SearchSpace) -> Floats:
    """Return the perf of each option in milliseconds, shape (O,), summed by Python's `sum`.

    TorchRec sorts by this sum. Unlike `option_perf`, it compensates for rounding since Python 3.12.
    """
    return np.array(
        [
            sum(space.total[space.estimate[first:end]].tolist())
            for first, end in pairwise(space.first_shard.tolist())
        ]
    )


def _memory_order(space: SearchSpace) -> Ints:
    """Return each option's place in GreedyProposer's order by memory; 0 for one without memory.

    It compares the HBM of the largest shard, the HBM of all shards, and then the same two for DDR.
    """
    memory = np.stack([space.largest_storage, space.option_storage], 2)[:, :2].reshape(-1, 4)
    _, order = np.unique(
        np.vstack([np.zeros((1, 4), np.int64), memory]), axis=0, return_inverse=True
    )
    return cast(Ints, np.maximum(order[1:] - order[0], 0))


def _until_worse(rows: Iterator[Ints], threshold: int) -> Stream:
    """Yield chunks of proposals until `threshold` in a row have not improved the best rating.

    A chunk contains only proposals that torchrec would make whatever ratings the chunk receives.
    """
    best = inf
    worse = 0
    while worse <= threshold:
        chunk = list(islice(rows, max(1, min(_LARGEST_CHUNK, threshold + 1 - worse))))
        if not chunk:
            return
        ratings = yield np.array(chunk)
        for rating in ratings:
            if rating > 0:  # torchrec treats a rating of 0 as a missing rating
                worse = 0 if rating < best else worse + 1
                best = min(best, rating)


def _grid(proposer: GridSearchProposer, space: SearchSpace, _: Devices) -> Stream:
    """Yield all combinations of options, or none if they exceed the proposer's maximum number."""
    options, first = _by_score(space, use_depth=True)
    counts = np.diff(first)
    combinations = prod(counts.tolist())
    if combinations > proposer._max_proposals:
        return
    period = np.append(np.cumprod(counts[:0:-1])[::-1], 1)
    for numbers in _in_chunks(range(combinations)):
        yield options[first[:-1] + numbers[:, np.newaxis] // period % counts]


def _uniform(proposer: UniformProposer, space: SearchSpace, _: Devices) -> Stream:
    """Yield, for each sharding type that all tables support, the best option of each table."""
    options, _first = _by_score(space, proposer._use_depth)
    types: dict[str, int] = {}
    kind = np.array([types.setdefault(o.sharding_type, len(types)) for o in space.options])
    for number in range(len(types)):
        of_type = options[kind[options] == number]
        tables, best = np.unique(space.table[of_type], return_index=True)
        if len(tables) == space.tables:
            appearance = np.unique(space.table[kind == number], return_index=True)[1]
            yield of_type[best][np.argsort(appearance)][np.newaxis]


def _in_chunks(rows: Iterable[Ints] | Iterable[int]) -> Stream:
    """Yield rows in chunks that grow from 16 to 256, so that a search checks the clock early."""
    remaining = iter(rows)
    for size in chain((16, 32, 64, 128), repeat(_LARGEST_CHUNK)):
        chunk = list(islice(remaining, size))
        if not chunk:
            return
        yield np.array(chunk)


def _over_bins(proposer: BinProposer, space: SearchSpace, devices: Devices) -> Stream:
    if space.tables:
        options, first = proposer.by_table(space)
        yield options[np.newaxis, first[:-1]]  # the smallest option of each table
        yield from proposer.cheapest(space, devices, compiled=True)


class _HbmProposer(BinProposer):
    """Makes the proposals of DynamicProgrammingProposer after the first `load`."""

    @override
    def kind(self, space: SearchSpace) -> int:
        return HBM


STREAMS: dict[type[Proposer], Callable[[Any, SearchSpace, Devices], Stream]] = {
    GreedyProposer: _greedy,
    UniformProposer: _uniform,
    GridSearchProposer: _grid,
    DynamicProgrammingProposer: lambda proposer, *arrays: _over_bins(
        _HbmProposer(proposer._hbm_bins_per_device), *arrays
    ),
    BinProposer: _over_bins,
    BinProposer2D: _over_bins,
}
