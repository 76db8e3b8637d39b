"""Compiled proofs that groups fit, or do not fit, wherever the loads of the ranks lead them.

They need only sums of bytes, which are exact in any order, so no proposal is counted wrongly.
"""

from planners.embedding.same_plan.placing.groups import EACH_RANK, ON_A_HOST, ONE_RANK, SHARD, TOTAL
from planners.embedding.same_plan.placing.layout import Inputs, Work
from planners.embedding.search.compiling import merged, subroutine


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
    TOTAL bytes to all ranks, and at most ON_A_HOST bytes to each rank of one host. This is too
    little to fill up all ranks, or a rank of each host.
    """
    hosts = work.hosts.order.size
    one_by_one = hosts * problem.host_ranks
    return _has_room(work, step, ONE_RANK, TOTAL, one_by_one, 1) and _has_room(
        work, step, EACH_RANK, ON_A_HOST, hosts, problem.host_ranks
    )


@subroutine
def _has_room(work: Work, step: int, part: int, added: int, units: int, ranks: int) -> bool:
    """Whether groups fit into one of these units of ranks, however other groups fill up units."""
    memory = work.steps.memory
    start = step * work.state.total.size
    full = 0
    for kind in range(3):
        needed, budget = -1, 0
        for later in range(step, memory.shape[0]):
            needed = max(needed, memory[later, part, kind])
            budget += memory[later, added, kind]
        if needed < 0:
            return True
        most = -1
        for unit in range(units):
            most = max(most, _spare(work, start + unit * ranks, kind, ranks) - needed)
        if most < 0:
            return False
        # A unit with at least `share` bytes to spare is full only if more than these are added.
        share = most // 2 + 1 if budget > 0 else 0
        for unit in range(units):
            if _spare(work, start + unit * ranks, kind, ranks) - needed < share:
                full += 1
        if budget > 0:
            full += budget // share
    return bool(full < units)


@merged
def _spare(work: Work, first: int, kind: int, ranks: int) -> int:
    spare = work.steps.ranks.free[kind, first]
    for rank in range(first + 1, first + ranks):
        spare = min(spare, work.steps.ranks.free[kind, rank])
    return int(spare)
