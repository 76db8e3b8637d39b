"""Dynamic programming over memory bins, compiled: torchrec's proposals and TorchEasyRec's."""

from collections.abc import Generator
from typing import Annotated

import numpy as np
import numpy.typing as npt

from planners.embedding.search.compiling import kernel
from planners.embedding.search.space import Devices, Floats, Ints, SearchSpace

HBM, DDR = 0, 1  # columns of storage

_CHUNK = 256

Choices = Annotated[npt.NDArray[np.int16], 2]
Bins = npt.NDArray[np.int32]
Bins2 = Annotated[Bins, 2]


def bin_proposals(
    space: SearchSpace, devices: Devices, bins_per_device: int = 100, *, hbm_only: bool = False
) -> Generator[Ints, Floats, None]:
    """Yield what BinProposer proposes, in order: option numbers in chunks of shape (P, T).

    P is at most 256. With `hbm_only` it is what torchrec's DynamicProgrammingProposer proposes when
    it is first used. The tables of each proposal are in torchrec's order, by their smallest option.
    Devices without any memory, where torchrec divides by zero, get the first proposal alone.
    """
    if not space.tables:
        return
    kind = HBM if hbm_only or space.option_storage[:, HBM].any() else DDR
    options, first = by_table(space, space.option_storage[:, kind])
    yield options[np.newaxis, first[:-1]]
    capacity = int(devices.storage[:, kind].sum())
    if not capacity:
        return
    bins = bins_per_device * devices.ranks
    memory = space.option_storage[options, kind] / (float(capacity) / bins)
    choice, previous, reached = _fill_bins(memory, space.option_perf[options], first, bins)
    for start in range(0, len(reached), _CHUNK):
        yield _trace(choice, previous, options, first, reached[start : start + _CHUNK])


def by_table(space: SearchSpace, size: Ints) -> tuple[Ints, Ints]:
    """Return option numbers table by table, and where in them each table starts, shape (T + 1,).

    Options are sorted by size within a table, and tables by their smallest option.
    """
    by_size = np.argsort(size, kind="stable")
    _, smallest = np.unique(space.table[by_size], return_index=True)
    position = np.empty(space.tables, np.int64)
    position[np.argsort(smallest)] = np.arange(space.tables)
    table = position[space.table[by_size]]
    first = np.concatenate([[0], np.cumsum(np.bincount(table))])
    return by_size[np.argsort(table, kind="stable")], first


def _fill_bins(memory: Floats, perf: Floats, first: Ints, bins: int) -> tuple[Choices, Bins2, Bins]:
    """Find the cheapest combination of options for each bin, table by table.

    Options take `memory`, in bins and ascending within a table, and `perf`, in milliseconds; table
    t has first[t] to first[t + 1]. Returns for each table and bin the option's number within its
    table and the bin that the tables before it fill, shapes (T, bins), undefined where a bin is not
    reached; and the bins that all tables reach, the fullest first.
    """
    tables = len(first) - 1
    choice = np.empty((tables, bins), np.int16)
    previous = np.empty((tables, bins), np.int32)
    reached = np.zeros(bins, np.int32)
    scratch = np.zeros((4, bins))
    count = _fill(memory, perf, first, choice, previous, reached, *scratch)
    return choice, previous, reached[:count][::-1]


# A kernel that makes arrays would take longer to compile.
@kernel
def _fill(
    memory: Floats,
    perf: Floats,
    first: Ints,
    choice: Choices,
    previous: Bins2,
    reached: Bins,
    held: Floats,
    spent: Floats,
    exact: Floats,
    best: Floats,
) -> int:
    # What the tables so far reach: bins in ascending order, and so in that of exact memory.
    bins, count = len(reached), 1
    for table in range(len(choice)):
        best[:] = np.inf
        kept = -1
        for option in range(first[table], first[table + 1]):
            more_memory, more_perf = memory[option], perf[option]
            if kept >= 0 and memory[kept] == more_memory and perf[kept] <= more_perf:
                continue  # it ends wherever `kept` does, and is nowhere cheaper
            kept = option
            for state in range(count):
                total = held[state] + more_memory
                if total >= bins:
                    break
                end = int(total)
                cost = spent[state] + more_perf
                if cost < best[end]:
                    best[end] = cost
                    exact[end] = total
                    choice[table, end] = option - first[table]
                    previous[table, end] = reached[state]
        count = 0
        for end in range(bins):
            if best[end] < np.inf:
                reached[count] = end
                held[count] = exact[end]
                spent[count] = best[end]
                count += 1
    return count


def _trace(choice: Choices, previous: Bins2, options: Ints, first: Ints, ends: Bins) -> Ints:
    """Return the combinations of options that end in the bins, shape (P, T)."""
    chosen = np.empty((len(ends), len(choice)), np.int64)
    for table in range(len(choice) - 1, -1, -1):
        chosen[:, table] = options[first[table] + choice[table, ends]]
        ends = previous[table, ends]
    return chosen
