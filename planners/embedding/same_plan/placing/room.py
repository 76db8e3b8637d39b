"""Compiled proofs that groups fit, or do not fit, wherever the loads of the ranks lead them.

They need only sums of bytes, which are exact in any order, so no proposal is counted wrongly.
"""

import numpy as np

from planners.embedding.same_plan.placing.groups import EACH_RANK, ON_A_HOST, ONE_RANK, SHARD, TOTAL
from planners.embedding.same_plan.placing.layout import Inputs, Work
from planners.embedding.search.compiling import subroutine


@subroutine
def leave_room(problem: Inputs, work: Work, hbm: int) -> bool:
    """Set each rank's free memory before the first step; return whether uniform options fit."""
    uniform, free = work.uniform, work.steps.ranks.free
    rank = 0
    for stretch in range(problem.stretch_end.size):
        while rank < problem.stretch_end[stretch]:
            for kind in range(3):
                has = hbm if kind == 0 and hbm != 0 else problem.capacity[kind, rank]
                free[kind, rank] = has - uniform.used[kind, stretch]
                # No shard frees storage, so one check after the last shard is enough.
                if uniform.columns[0] > 0 and free[kind, rank] < 0:
                    return False
            rank += 1
    return bool(uniform.columns[1] == 0)


@subroutine
def has_too_large_shard(work: Work) -> bool:
    """Whether a shard is larger than the free memory of every rank before the first step."""
    free, memory = work.steps.ranks.free, work.steps.memory
    for kind in range(3):
        largest = -1
        for step in range(memory.shape[0]):
            largest = max(largest, memory[step, SHARD, kind])
        rank = 0
        while rank < work.state.total.size and free[kind, rank] < largest:
            rank += 1
        if rank == work.state.total.size and largest >= 0:
            return True
    return False


@subroutine
def surely_fit(problem: Inputs, work: Work, step: int) -> bool:
    """Whether all groups from this step on fit, on whichever ranks they are put one by one.

    A group without HOST_ROWS options fits if one rank of a whole host has ONE_RANK free bytes; a
    group with them fits if each rank of a host has EACH_RANK free bytes. The groups add at most
    TOTAL bytes to all ranks, and at most ON_A_HOST bytes to each rank of one host. `_has_room`
    proves that this is too little to fill up all ranks, or a rank of each host.
    """
    hosts = work.hosts.order.size
    one_by_one = hosts * problem.host_ranks
    return _has_room(problem, work, step, ONE_RANK, TOTAL, one_by_one, 1) and _has_room(
        problem, work, step, EACH_RANK, ON_A_HOST, hosts, problem.host_ranks
    )


@subroutine
def _has_room(
    problem: Inputs, work: Work, step: int, part: int, added: int, units: int, ranks: int
) -> bool:
    """Whether groups fit into one of these units of ranks, however other groups fill up units.

    A unit is full if more bytes than its spare ones of one kind of memory are added to it. Count
    bytes as parts of a rank's capacity, or in any other weights of the kinds. If all units are
    full, the spare bytes of the kind with the fewest, summed over the units, are less than all
    added bytes, summed over the kinds.
    """
    free, memory, needed = work.steps.ranks.free, work.steps.memory, work.needed
    all_added = 1e-9  # for the rounding of the sums
    for kind in range(3):
        needed[kind] = -1
        for later in range(step, memory.shape[0]):
            needed[kind] = max(needed[kind], memory[later, part, kind])
            all_added += memory[later, added, kind] / max(problem.capacity[kind, 0], 1)
    if needed[0] < 0:
        return True
    start, room = step * work.state.total.size, 0.0
    for _ in range(units):
        least = np.inf
        for kind in range(3):
            spare = free[kind, start]
            for rank in range(start + 1, start + ranks):
                spare = min(spare, free[kind, rank])
            if needed[kind] > 0 or spare < 0:  # otherwise this kind stops no group
                spare = max(spare - needed[kind], 0)
                least = min(least, spare / max(problem.capacity[kind, 0], 1))
        room += least
        if room > all_added:
            return True
        start += ranks
    return False
