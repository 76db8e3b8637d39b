"""Compiled dynamic programming over memory bins.

It makes the proposals of torchrec's DynamicProgrammingProposer and TorchEasyRec's BinProposer.
"""

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
    """Yield the proposals of BinProposer in chunks of option numbers, shape (P, T), P <= 256.

    With `hbm_only`, yield the proposals that torchrec's DynamicProgrammingProposer makes after its
    first `load`. Tables are in torchrec's order, by the size of their smallest option. If the
    devices have no memory, where torchrec divides by zero, yield only the first proposal.
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
    for end in range(count, 0, -_CHUNK):  # the fullest bins first
        ends = reached[max(0, end - _CHUNK) : end][::-1]
        yield _trace(choice, previous, options, first, ends)


def by_table(space: SearchSpace, size: Ints) -> tuple[Ints, Ints]:
    """Return the option numbers grouped by table, shape (O,), and each table's start, (T + 1,).

    Options are sorted by size within a table, and tables by the size of their smallest option.
    """
    by_size = np.argsort(size, kind="stable")
    _, smallest = np.unique(space.table[by_size], return_index=True)
    position = np.empty(space.tables, np.int64)
    position[np.argsort(smallest)] = np.arange(space.tables)
    table = position[space.table[by_size]]
    first = np.concatenate([[0], np.cumsum(np.bincount(table))])
    return by_size[np.argsort(table, kind="stable")], first


# The caller passes all arrays, because a kernel that creates arrays takes longer to compile.
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
    """Find the cheapest combination of options for each total of memory, adding table after table.

    A combination has one option of each table so far, and its memory, rounded down to whole bins,
    is its bin. Table t has the options first[t] to first[t + 1]; each uses `memory`, in bins and
    ascending within a table, and `perf`, in milliseconds.

    For each table and each bin reached so far, set `choice` to the option's number within its table
    and `previous` to the bin of the tables before it, shapes (T, bins). Return the number of bins
    that combinations of all tables reach; `reached` starts with these bins, in ascending order.

    Invariant: the states, one per reached bin, ascend by bin and so by exact memory. If an option
    is too large for one state, it is too large for all later states. Of equally cheap combinations
    the first is kept, as in torchrec: the outer loop is over options, the inner one over states.
    """
    bins, count = len(reached), 1
    for table in range(len(choice)):
        best[:] = np.inf
        kept = -1
        for option in range(first[table], first[table + 1]):
            more_memory, more_perf = memory[option], perf[option]
            if kept >= 0 and memory[kept] == more_memory and perf[kept] <= more_perf:
                continue  # this option reaches the same bins as `kept` at no lower cost
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
    """Return the best combination for each bin in `ends`, as option numbers of shape (P, T)."""
    chosen = np.empty((len(ends), len(choice)), np.int64)
    for table in range(len(choice) - 1, -1, -1):
        chosen[:, table] = options[first[table] + choice[table, ends]]
        ends = previous[table, ends]
    return chosen
