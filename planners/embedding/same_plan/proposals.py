"""TorchRec's proposers as streams of proposals, in the order in which torchrec tries them."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise, repeat
from math import inf, prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.types import Proposer

from planners.embedding.same_plan.bin_proposer import (
    BinProposer,
    BinProposer2D,
    axes_of,
    first_least,
)
from planners.embedding.search.space import Devices, Floats, Ints, SearchSpace

Stream = Generator[Ints, Floats, None]
"""Yields proposals, option numbers in the order of the plan, shape (P, T); is sent their ratings,
NaN for a proposal that could not be placed."""

_LARGEST_CHUNK = 256

HBM, DDR = 0, 1  # columns of storage

Numbers = npt.NDArray[np.signedinteger[Any]]


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
    return _grouped(space.table, space.largest_shard if use_depth else _sums(space))


def _by_size(space: SearchSpace, size: Ints) -> tuple[Ints, Ints]:
    """Return the same, with the smallest options first, and tables by their smallest options."""
    by_size = np.argsort(size, kind="stable")
    smallest = np.unique(space.table[by_size], return_index=True)[1]
    position = np.empty(space.tables, np.int64)
    position[np.argsort(smallest)] = np.arange(space.tables)
    return _grouped(position[space.table], size)


def _grouped(table: Ints, score: Ints | Floats) -> tuple[Ints, Ints]:
    first = np.concatenate([[0], np.cumsum(np.bincount(table))])
    return np.lexsort((score, table)), first


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


def bin_proposals(
    space: SearchSpace, devices: Devices, bins_per_device: int = 100, *, hbm_only: bool = False
) -> Stream:
    """Yield BinProposer's proposals or, with `hbm_only`, DynamicProgrammingProposer's.

    The latter's are those after its first `load`. If the devices have no memory, where torchrec
    divides by zero, yield only the first proposal.
    """
    from planners.embedding.same_plan.bins import fill

    if not space.tables:
        return
    kind = HBM if hbm_only or space.option_storage[:, HBM].any() else DDR
    options, first = _by_size(space, space.option_storage[:, kind])
    yield options[np.newaxis, first[:-1]]
    capacity = int(devices.storage[:, kind].sum())
    if not capacity:
        return
    bins = bins_per_device * devices.ranks
    memory = space.option_storage[options, kind] / (float(capacity) / bins)
    choice = np.empty((space.tables, bins), np.int16)
    previous = np.empty((space.tables, bins), np.int32)
    reached, states = np.zeros(bins, np.int32), np.zeros((4, bins))
    count = fill(memory, space.option_perf[options], first, choice, previous, reached, *states)
    layers = list(zip(choice, previous, strict=True))
    yield from _traced(layers, reached[:count][::-1], options, first)  # the fullest bins first


def bin_proposals_2d(
    space: SearchSpace, devices: Devices, bins_per_device: int = 100, ddr_bins_per_device: int = 25
) -> Stream:
    """Yield the proposals of BinProposer2D; tables are sorted by their smallest options."""
    from planners.embedding.same_plan.bins import add_table

    if not space.tables:
        return
    options, first = _by_size(space, space.option_storage[:, : DDR + 1].sum(1))
    yield options[np.newaxis, first[:-1]]
    # 1. Leave out options with a shard that is larger than all devices.
    axes = axes_of(
        devices.storage[:, : DDR + 1], devices.local_ranks, (bins_per_device, ddr_bins_per_device)
    )
    fits = np.all(space.largest_storage[:, : DDR + 1] <= axes.largest, axis=1)[options]
    first = np.concatenate([[0], np.cumsum(fits)])[first]
    options = options[fits]
    memory = axes.in_bins(space.option_storage[options, : DDR + 1])
    perf = space.option_perf[options].astype(np.float32)
    # 2. Add table after table. `entry` has the new state of each cell while a table is added.
    cells = axes.bins[0] * axes.bins[1]
    entry, cell = np.full(cells, -1, np.int32), np.zeros(1, np.int64)
    exact, spent = np.zeros((1, 2), np.float32), np.zeros(1, np.float32)
    layers = []
    for begin, end in pairwise(first.tolist()):
        most = min(len(spent) * (end - begin), cells)
        cell, option, previous = (np.empty(most, kind) for kind in (np.int64, np.int32, np.int32))
        new_exact, new_spent = np.empty((most, 2), np.float32), np.empty(most, np.float32)
        count = add_table(
            memory[begin:end], perf[begin:end], exact, spent, *axes.bins,
            entry, cell, option, previous, new_exact, new_spent,
        )  # fmt: skip
        order = np.argsort(cell[:count])
        cell, exact, spent = cell[order], new_exact[order], new_spent[order]
        entry[cell] = -1
        layers.append((option[order], previous[order]))
    # 3. Propose the (first) cheapest combination of each reached HBM bin, the fullest bin first.
    hbm_bin = cell // axes.bins[1]
    yield from _traced(layers, first_least(hbm_bin, spent)[::-1], options, first)


def _traced(
    layers: Sequence[tuple[Numbers, Numbers]], ends: Numbers, options: Ints, first: Ints
) -> Stream:
    """Yield the combination that ends in each of `ends`, as option numbers.

    For the states of each table, `layers` has the option within the table, and the state before.
    """
    for start in range(0, len(ends), _LARGEST_CHUNK):
        state = ends[start : start + _LARGEST_CHUNK]
        rows = np.empty((len(state), len(layers)), np.int64)
        for table in reversed(range(len(layers))):
            option, previous = layers[table]
            rows[:, table], state = options[first[table] + option[state]], previous[state]
        yield rows


STREAMS: dict[type[Proposer], Callable[[Any, SearchSpace, Devices], Stream]] = {
    GreedyProposer: _greedy,
    UniformProposer: _uniform,
    GridSearchProposer: _grid,
    DynamicProgrammingProposer: lambda proposer, space, devices: bin_proposals(
        space, devices, proposer._hbm_bins_per_device, hbm_only=True
    ),
    BinProposer: lambda proposer, space, devices: bin_proposals(
        space, devices, proposer.bins_per_device
    ),
    BinProposer2D: lambda proposer, space, devices: bin_proposals_2d(
        space, devices, proposer.bins_per_device, proposer.ddr_bins_per_device
    ),
}
