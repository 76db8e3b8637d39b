"""Compiled dynamic programming over HBM and DDR bins: TorchEasyRec's proposals since May 2026."""

from collections.abc import Generator
from typing import Annotated

import numpy as np
import numpy.typing as npt

from planners.embedding.same_plan.bin_proposer import Singles, axes_of
from planners.embedding.same_plan.dynamic_programming import by_table
from planners.embedding.search.compiling import allocating_kernel
from planners.embedding.search.space import Devices, Floats, Ints, SearchSpace

_CHUNK = 256

Singles2 = Annotated[Singles, 2]
Numbers = npt.NDArray[np.int32]


def bin_proposals_2d(
    space: SearchSpace, devices: Devices, bins_per_device: int = 100, ddr_bins_per_device: int = 25
) -> Generator[Ints, Floats, None]:
    """Yield the proposals of BinProposer2D in chunks of option numbers, shape (P, T), P <= 256.

    Within each proposal, tables are sorted by the size of their smallest option.
    """
    if not space.tables:
        return
    options, first = by_table(space, space.option_storage[:, :2].sum(1))
    yield options[np.newaxis, first[:-1]]
    axes = axes_of(
        devices.storage[:, :2], devices.local_ranks, (bins_per_device, ddr_bins_per_device)
    )
    largest = np.maximum.reduceat(space.storage[space.estimate, :2], space.first_shard[:-1])
    fits = np.all(largest <= axes.largest, axis=1)[options]
    first = np.concatenate([[0], np.cumsum(fits)])[first]
    options = options[fits]
    memory = axes.in_bins(space.option_storage[options, :2])
    perf = space.option_perf[options].astype(np.float32)
    option, previous, layer, ends = _fill_cells(memory, perf, first, *axes.bins)
    for start in range(0, len(ends), _CHUNK):
        yield options[_trace(option, previous, layer, ends[start : start + _CHUNK])]


@allocating_kernel
def _fill_cells(
    memory: Singles2, perf: Singles, first: Ints, hbm_bins: int, ddr_bins: int
) -> tuple[Numbers, Numbers, Ints, Numbers]:
    """Find the cheapest combination of options for each cell, adding table after table.

    A cell is a pair of an HBM bin and a DDR bin. Table t has the options first[t] to first[t + 1];
    each uses `memory`, in bins, shape (O, 2), and `perf`, in milliseconds.

    Return `options`, `previous`, `layer` and `ends`. The cells that tables 0 to t reach together,
    in ascending order, are the entries layer[t] to layer[t + 1] of two arrays: `options` has table
    t's option, and `previous` the index of the cell that it extends among table t - 1's cells.
    `ends` has the index of the cheapest of the last table's cells for each reached HBM bin, the
    fullest bin first.

    Sums are in single precision. Of equally cheap combinations the first is kept: the outer loop is
    over states, the inner one over options, as in BinProposer2D.
    """
    tables = len(first) - 1
    slot = np.full(hbm_bins * ddr_bins, -1, np.int32)
    held, spent = np.zeros((1, 2), np.float32), np.zeros(1, np.float32)
    cells = np.zeros(1, np.int64)
    layer = np.zeros(tables + 1, np.int64)
    options, previous = np.empty(1024, np.int32), np.empty(1024, np.int32)
    for table in range(tables):
        states = len(spent)
        most = min(states * (first[table + 1] - first[table]), len(slot))
        end_held, end_spent = np.empty((most, 2), np.float32), np.empty(most, np.float32)
        end_cell, end_option = np.empty(most, np.int64), np.empty(most, np.int32)
        end_previous = np.empty(most, np.int32)
        count = 0
        for state in range(states):
            for option in range(first[table], first[table + 1]):
                hbm, ddr = held[state, 0] + memory[option, 0], held[state, 1] + memory[option, 1]
                if hbm >= hbm_bins or ddr >= ddr_bins:
                    continue
                cell = int(hbm) * ddr_bins + int(ddr)
                cost = spent[state] + perf[option]
                place = slot[cell]
                if place < 0:
                    place = slot[cell] = count
                    end_cell[place] = cell
                    count += 1
                elif cost >= end_spent[place]:
                    continue
                end_held[place, 0], end_held[place, 1] = hbm, ddr
                end_spent[place] = cost
                end_option[place], end_previous[place] = option, state
        order = np.argsort(end_cell[:count])
        cells, held, spent = end_cell[order], end_held[order], end_spent[order]
        slot[cells] = -1
        begin, end = layer[table], layer[table] + count
        layer[table + 1] = end
        while end > len(options):
            options = np.concatenate((options, np.empty_like(options)))
            previous = np.concatenate((previous, np.empty_like(previous)))
        options[begin:end], previous[begin:end] = end_option[order], end_previous[order]
    best = np.full(hbm_bins, -1, np.int32)
    for state in range(len(spent)):
        fullness = cells[state] // ddr_bins
        if best[fullness] < 0 or spent[state] < spent[best[fullness]]:
            best[fullness] = state
    return options, previous, layer, best[best >= 0][::-1].copy()


@allocating_kernel
def _trace(options: Numbers, previous: Numbers, layer: Ints, ends: Numbers) -> Ints:
    """Return the best combination for each cell in `ends`, as indices of options, shape (P, T)."""
    tables = len(layer) - 1
    chosen = np.empty((len(ends), tables), np.int64)
    ends = ends.copy()
    for table in range(tables - 1, -1, -1):
        for proposal in range(len(ends)):
            place = layer[table] + ends[proposal]
            chosen[proposal, table] = options[place]
            ends[proposal] = previous[place]
    return chosen
