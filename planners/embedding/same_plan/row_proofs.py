"""Proofs about a row of options before it is placed: it fits, it does not, or it is no better.

Most rows of a search are no better than the best plan. A proof that one fits then replaces its
placing, since torchrec counts the rows that it could place.
"""

import numpy as np

from planners.embedding.same_plan.arrays import Inputs, Work
from planners.embedding.search.compiling import subroutine
from planners.embedding.search.space import Ints, Placement

# Bounds the ratio of a rank's perf summed shard by shard to the one summed by component. A float
# sum of n non-negative terms has a relative error below n * 2**-52: enough for a million shards.
SLACK = 1 + 1e-9


@subroutine
def take_memory(inputs: Inputs, work: Work, row: Ints) -> bool:
    """Set the free memory that uniform options leave on each rank; return whether they fit."""
    # 1. Note on which stretches the bytes of each run begin and end.
    used, placed = work.uniform_used, False
    used[:] = 0
    for option in row:
        if inputs.placement[option] == Placement.UNIFORM:
            first, placed = 0, True
            for run in range(inputs.first_run[option], inputs.first_run[option + 1]):
                for kind in range(3):
                    size = inputs.storage[inputs.run_estimate[run], kind]
                    used[kind, first] += size
                    used[kind, inputs.run_end[run]] -= size
                first = inputs.run_end[run]
    # 2. Take them from each rank. No shard frees memory, so a check after the last is enough.
    for kind in range(3):
        taken, rank = 0, 0
        for stretch in range(inputs.stretch_end.size):
            taken += used[kind, stretch]
            while rank < inputs.stretch_end[stretch]:
                work.state.free[kind, rank] = inputs.capacity[kind, rank] - taken
                if placed and work.state.free[kind, rank] < 0:
                    return False
                rank += 1
    return True


@subroutine
def surely_overflow(inputs: Inputs, work: Work, row: Ints) -> bool:
    """Whether a shard exceeds each rank's free memory, or all shards together all of it."""
    for kind in range(3):
        room, most = 0, work.state.free[kind, 0]
        for rank in range(work.state.total.size):
            room += max(work.state.free[kind, rank], 0)
            most = max(most, work.state.free[kind, rank])
        for option in row:
            if inputs.placement[option] != Placement.UNIFORM:
                room -= inputs.option_storage[option, kind]
                if room < 0 or inputs.largest[option, kind] > most:
                    return True
    return False


@subroutine
def bound_of(inputs: Inputs, row: Ints) -> float:
    """Return a lower bound of a row's rating: its largest shard, and the average rank's load."""
    perf, largest = 0.0, 0.0
    for option in row:
        perf += inputs.option_perf[option]
        largest = max(largest, inputs.largest_shard[option])
    return float(max(largest, perf / (inputs.capacity.shape[1] * SLACK)))


@subroutine
def surely_fit(inputs: Inputs, work: Work, row: Ints, place: int) -> bool:
    """Whether the columns from order[place] on fit, on whichever ranks they are put one by one.

    A column without HOST_ROWS fits if a rank of a whole host has its needed bytes free; one with
    HOST_ROWS fits if each rank of a host has. The columns add at most their bytes to all ranks, and
    to each rank of a host, where HOST_ROWS add only the needed bytes. `_has_room` proves that this
    is too little to fill up all ranks, or a rank of each host.
    """
    work.most[:] = -1
    work.added[:] = 0
    for later in range(place, row.size):
        option = row[work.order[later]]
        if inputs.placement[option] != Placement.UNIFORM:
            by_host = int(inputs.placement[option] == Placement.HOST_ROWS)
            for kind in range(3):
                needed, total = inputs.needed[option, kind], inputs.option_storage[option, kind]
                work.most[by_host, kind] = max(work.most[by_host, kind], needed)
                work.added[0, kind] += total
                work.added[1, kind] += needed if by_host else total
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
    added bytes, summed over the kinds that a group needs: no other kind stops one.
    """
    most, free = work.most[by_host], work.state.free
    if most[0] < 0:  # there are no such groups
        return True
    added = 1e-9  # for the rounding of the sums
    for kind in range(3):
        if most[kind] > 0:
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
