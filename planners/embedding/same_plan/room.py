"""Compiled proofs that a row is not better, does not fit, or fits wherever its tables are put."""

import numpy as np

from planners.embedding.same_plan.arrays import NEEDED, ON_A_HOST, TOTAL, Inputs, Work
from planners.embedding.search.compiling import subroutine
from planners.embedding.search.space import Ints, Placement

# Bounds the ratio of a rank's perf summed shard by shard to the one summed by component. A float
# sum of n non-negative terms has a relative error below n * 2**-52: enough for a million shards.
SLACK = 1 + 1e-9


@subroutine
def bound_of(inputs: Inputs, row: Ints, hbm: int) -> float:
    """Return a lower bound of a row's rating, NaN if the row needs more than the ranks' memory."""
    ranks = inputs.capacity.shape[1]
    for kind in range(3):
        room = ranks * hbm if kind == 0 and hbm != 0 else inputs.room[kind]
        for option in row:
            room -= inputs.option_storage[option, kind]
        if room < 0:
            return np.nan
    perf, largest = 0.0, 0.0
    for option in row:
        perf += inputs.option_perf[option]
        largest = max(largest, inputs.largest_shard[option])
    return float(max(largest, perf / (ranks * SLACK)))


@subroutine
def take_memory(inputs: Inputs, work: Work, row: Ints, hbm: int) -> bool:
    """Set the free memory that uniform options leave, and the groups of the other options.

    Return whether the uniform options fit.
    """
    # 1. Sum up the memory of the groups; note where that of uniform options begins and ends. From
    # the last column to the first, so that each column precedes the group's columns so far.
    work.head[:] = -1
    work.memory[:] = 0
    work.by_host[:] = 0
    work.uniform_bytes[:] = 0
    uniform = False
    for after in range(row.size):
        column = row.size - 1 - after
        if inputs.placement[row[column]] == Placement.UNIFORM:
            uniform = True
            _note_uniform(inputs, work, row[column])
        else:
            _add_to_group(inputs, work, row[column], column)
    # 2. Sum up what begins and ends. No shard frees memory, so a check after the last is enough.
    for kind in range(3):
        taken, rank = 0, 0
        for stretch in range(inputs.stretch_end.size):
            taken += work.uniform_bytes[kind, stretch]
            while rank < inputs.stretch_end[stretch]:
                size = hbm if kind == 0 and hbm != 0 else inputs.capacity[kind, rank]
                work.state.free[kind, rank] = size - taken
                if uniform and size < taken:
                    return False
                rank += 1
    return True


@subroutine
def _note_uniform(inputs: Inputs, work: Work, option: int) -> None:
    start = 0
    for run in range(inputs.first_run[option], inputs.first_run[option + 1]):
        for kind in range(3):
            size = inputs.storage[inputs.run_estimate[run], kind]
            work.uniform_bytes[kind, start] += size
            work.uniform_bytes[kind, inputs.run_end[run]] -= size
        start = inputs.run_end[run]


@subroutine
def _add_to_group(inputs: Inputs, work: Work, option: int, column: int) -> None:
    group, in_rows = inputs.group[option], inputs.placement[option] == Placement.HOST_ROWS
    work.following[column] = work.head[group]
    work.head[group] = column
    if in_rows:
        work.by_host[group] = 1
    for kind in range(3):
        total, needed = inputs.option_storage[option, kind], inputs.needed[option, kind]
        work.memory[group, TOTAL, kind] += total
        work.memory[group, ON_A_HOST, kind] += needed if in_rows else total
        work.memory[group, NEEDED, kind] += needed


@subroutine
def surely_fit(inputs: Inputs, work: Work, place: int) -> bool:
    """Whether the groups from order[place] on fit, on whichever ranks they are put one by one.

    A group without HOST_ROWS fits if one rank of a whole host has NEEDED free bytes; a group with
    them fits if each rank of a host has. The groups add at most TOTAL bytes to all ranks, and at
    most ON_A_HOST bytes to each rank of one host. `_has_room` proves that this is too little to
    fill up all ranks, or a rank of each host.
    """
    for kind in range(3):
        total, on_a_host, on_rank, on_host = 0, 0, -1, -1
        for later in range(place, work.order.size):
            group = work.order[later]
            if work.head[group] < 0:
                continue
            total += work.memory[group, TOTAL, kind]
            on_a_host += work.memory[group, ON_A_HOST, kind]
            if work.by_host[group] == 0:
                on_rank = max(on_rank, work.memory[group, NEEDED, kind])
            else:
                on_host = max(on_host, work.memory[group, NEEDED, kind])
        work.added[0, kind], work.added[1, kind] = total, on_a_host
        work.most[0, kind], work.most[1, kind] = on_rank, on_host
    hosts, host_ranks = work.host_total.size, inputs.host_ranks
    return _has_room(inputs, work, 0, hosts * host_ranks, 1) and _has_room(
        inputs, work, 1, hosts, host_ranks
    )


@subroutine
def _has_room(inputs: Inputs, work: Work, by_host: int, units: int, ranks: int) -> bool:
    """Whether groups fit into one of these units of ranks, however other groups fill up units.

    A unit is full if more bytes than its spare ones of one kind of memory are added to it. Count
    bytes as parts of a rank's capacity, or in any other weights of the kinds. If all units are
    full, the spare bytes of the kind with the fewest, summed over the units, are less than all
    added bytes, summed over the kinds.
    """
    most, free = work.most[by_host], work.state.free
    if most[0] < 0:  # there are no such groups
        return True
    added = 1e-9  # for the rounding of the sums
    for kind in range(3):
        added += work.added[by_host, kind] / max(inputs.capacity[kind, 0], 1)
    room, first = 0.0, 0
    for _ in range(units):
        least = np.inf
        for kind in range(3):
            spare = free[kind, first]
            for rank in range(first + 1, first + ranks):
                spare = min(spare, free[kind, rank])
            if most[kind] > 0 or spare < 0:  # otherwise this kind stops no group
                least = min(least, max(spare - most[kind], 0) / max(inputs.capacity[kind, 0], 1))
        room += least
        if room > added:
            return True
        first += ranks
    return False
