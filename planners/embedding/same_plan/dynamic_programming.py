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
    """Yield the proposals of BinProposer in order: option numbers in chunks of shape (P, T).

    P is at most 256. With `hbm_only` they are the first ones of torchrec's
    DynamicProgrammingProposer. The tables of each are in torchrec's order, by their smallest
    option. Devices without any memory, where torchrec divides by zero, get only one proposal.
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
    choice = np.empty((space.tables, bins), np.int16)
    previous = np.empty((space.tables, bins), np.int32)
    reached = np.zeros(bins, np.int32)
    scratch = np.zeros((4, bins))
    perf = space.option_perf[options]
    count = _fill(memory, perf, first, choice, previous, reached, *scratch)
    for end in range(count, 0, -_CHUNK):  # the fullest first
        ends = reached[max(0, end - _CHUNK) : end][::-1]
        yield _trace(choice, previous, options, first, ends)


def by_table(space: SearchSpace, size: Ints) -> tuple[Ints, Ints]:
    """Return option numbers table by table, and the start of each table in them, shape (T + 1,).

    Options are sorted by size within a table, and tables by their smallest option.
    """
    by_size = np.argsort(size, kind="stable")
    _, smallest = np.unique(space.table[by_size], return_index=True)
    position = np.empty(space.tables, np.int64)
    position[np.argsort(smallest)] = np.arange(space.tables)
    table = position[space.table[by_size]]
    first = np.concatenate([[0], np.cumsum(np.bincount(table))])
    return by_size[np.argsort(table, kind="stable")], first


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
    """Find the cheapest combination of options for each bin, table by table.

    Options take `memory`, in bins and ascending within a table, and `perf`, in milliseconds; table
    t has first[t] to first[t + 1]. Sets for each table and bin the option's number within its table
    and the bin that the tables before it fill, shapes (T, bins), if the bin is reached. Returns how
    many bins all tables reach, and sets `reached` to them, the emptiest first.

    Invariant: the states of the tables so far are in ascending order of bins, and so of their exact
    memory. The first option that is too large for a state is thus too large for all later ones. An
    equally cheap combination never replaces an earlier one, as in torchrec, whose loops run over
    options outside and states inside too.
    """
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
