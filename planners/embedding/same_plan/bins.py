"""Compiled dynamic programming over memory bins, which torchrec's and TorchEasyRec's proposers do.

Tables are added one after another. A state is the cheapest combination of options, one of each
table so far, whose memory, rounded down to whole bins, is in a bin. The caller passes all arrays,
because a kernel that creates arrays takes longer to compile.
"""

from typing import Annotated

import numpy as np
import numpy.typing as npt

from planners.embedding.search.compiling import kernel
from planners.embedding.search.space import Floats, Ints

Choices = Annotated[npt.NDArray[np.int16], 2]
Bins = npt.NDArray[np.int32]
Bins2 = Annotated[Bins, 2]
Singles = npt.NDArray[np.float32]
Singles2 = Annotated[Singles, 2]


@kernel
def fill(
    memory: Floats,
    perf: Floats,
    first: Ints,
    choice: Choices,
    previous: Bins2,
    reached: Bins,
    exact: Floats,
    spent: Floats,
    end_exact: Floats,
    end_spent: Floats,
) -> int:
    """Add all tables; return the number of bins that combinations of all tables reach.

    Table t has the options first[t] to first[t + 1]; each uses `memory`, in bins and ascending
    within a table, and `perf`, in milliseconds. For each table and reached bin, `choice` gets the
    option's number within its table, and `previous` the bin of the tables before it, shapes
    (T, bins). `reached` gets the bins that all tables reach, ascending. The last four arrays are
    for the memory and the perf of states, shape (bins,); all but `choice` and `previous` are 0.

    Invariant: states ascend by bin and so by exact memory. An option that is too large for a state
    is too large for all later ones. Of equally cheap combinations the first is kept, as in
    torchrec: the outer loop is over options, the inner one over states.
    """
    bins, count = len(reached), 1
    for table in range(len(choice)):
        end_spent[:] = np.inf
        kept = -1
        # 1. Extend each state by each option, except one that reaches the bins of an option before
        # it, at no lower cost.
        for option in range(first[table], first[table + 1]):
            if kept >= 0 and memory[kept] == memory[option] and perf[kept] <= perf[option]:
                continue
            kept = option
            for state in range(count):
                total = exact[state] + memory[option]
                if total >= bins:
                    break
                end, cost = int(total), spent[state] + perf[option]
                if cost < end_spent[end]:
                    end_spent[end], end_exact[end] = cost, total
                    choice[table, end] = option - first[table]
                    previous[table, end] = reached[state]
        # 2. List the reached bins as the states of the next table.
        count = 0
        for end in range(bins):
            if end_spent[end] < np.inf:
                reached[count] = end
                exact[count], spent[count] = end_exact[end], end_spent[end]
                count += 1
    return count


@kernel
def add_table(
    memory: Singles2,
    perf: Singles,
    exact: Singles2,
    spent: Singles,
    hbm_bins: int,
    ddr_bins: int,
    entry: Bins,
    cell: Ints,
    option: Bins,
    previous: Bins,
    end_exact: Singles2,
    end_spent: Singles,
) -> int:
    """Add a table's options to states in cells, pairs of an HBM and a DDR bin; return their number.

    The options use `memory`, in bins, shape (N, 2), and `perf`, in milliseconds; states have
    `exact` memory and have `spent` milliseconds. `entry` is -1 for each cell, and gets the entry of
    reached cells in the last five arrays: the cell's number, the option, the state before it, and
    the new state.

    Sums are in single precision. Of equally cheap combinations the first is kept: the outer loop is
    over states, the inner one over options, as in BinProposer2D.
    """
    count = 0
    for state in range(len(spent)):
        for number in range(len(perf)):
            hbm, ddr = exact[state, 0] + memory[number, 0], exact[state, 1] + memory[number, 1]
            if hbm >= hbm_bins or ddr >= ddr_bins:
                continue
            reached = int(hbm) * ddr_bins + int(ddr)
            cost = spent[state] + perf[number]
            place = entry[reached]
            if place < 0:
                place = entry[reached] = count
                cell[place] = reached
                count += 1
            elif cost >= end_spent[place]:
                continue
            option[place], previous[place] = number, state
            end_exact[place, 0], end_exact[place, 1], end_spent[place] = hbm, ddr, cost
    return count
