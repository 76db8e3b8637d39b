"""The ranks while a row is placed: which one is the least loaded, and what a shard adds to it."""

from planners.embedding.same_plan.arrays import Inputs, Ranks, Work
from planners.embedding.search.compiling import subroutine
from planners.embedding.search.space import Floats


@subroutine
def sum_up_host(inputs: Inputs, work: Work, host: int) -> None:
    """Sum up the perf of a host's ranks, and choose its leader, after a rank's load has changed.

    All ranks are added, because adding only the difference could round differently.
    """
    total, leader, perf = work.state.total, -1, 0.0
    first = host * inputs.host_ranks
    for rank in range(first, min(first + inputs.host_ranks, total.size)):
        perf += total[rank]
        if leader < 0 or _is_before(inputs, work, rank, leader):
            leader = rank
    work.leader[host] = leader
    if host < work.host_total.size:
        work.host_total[host] = perf


@subroutine
def least_loaded(inputs: Inputs, work: Work, estimate: int) -> int:
    """Return the least loaded of all ranks that a shard fits, or -1 if it fits on none."""
    chosen = -1
    for host, leader in enumerate(work.leader):
        if leader >= 0 and (chosen < 0 or _is_before(inputs, work, leader, chosen)):
            first = host * inputs.host_ranks
            for rank in range(first, min(first + inputs.host_ranks, work.state.total.size)):
                better = chosen < 0 or _is_before(inputs, work, rank, chosen)
                if better and shard_fits(inputs, work, estimate, rank):
                    chosen = rank
    return chosen


@subroutine
def least_loaded_on(inputs: Inputs, work: Work, estimate: int, host: int) -> int:
    """Return the least loaded rank of a host that a shard fits, the first if equal, or -1."""
    chosen, total = -1, work.state.total
    for rank in range(host * inputs.host_ranks, (host + 1) * inputs.host_ranks):
        if (chosen < 0 or total[rank] < total[chosen]) and shard_fits(inputs, work, estimate, rank):
            chosen = rank
    return chosen


@subroutine
def _is_before(inputs: Inputs, work: Work, rank: int, other: int) -> bool:
    """Whether torchrec prefers `rank` to a lower one: it is less loaded, or has a lower place."""
    total, place = work.state.total, inputs.place
    return bool(
        total[rank] < total[other] or (total[rank] == total[other] and place[rank] < place[other])
    )


@subroutine
def shard_fits(inputs: Inputs, work: Work, estimate: int, rank: int) -> bool:
    """Whether a shard fits into the free memory of a rank."""
    return bool(
        inputs.storage[estimate, 0] <= work.state.free[0, rank]
        and inputs.storage[estimate, 1] <= work.state.free[1, rank]
        and inputs.storage[estimate, 2] <= work.state.free[2, rank]
    )


@subroutine
def put_shard(inputs: Inputs, work: Work, estimate: int, rank: int) -> None:
    """Put a shard on a rank; add up each component of perf separately, as torchrec does."""
    for kind in range(3):
        work.state.free[kind, rank] -= inputs.storage[estimate, kind]
    for component in range(5):
        work.state.load[component, rank] += inputs.perf[estimate, component]
    work.state.total[rank] = total_of(work.state, rank)


@subroutine
def total_of(state: Ranks, rank: int) -> float:
    """Return a rank's perf: the sum of its components in the order of torchrec's `Perf.total`."""
    load = state.load
    return float(load[0, rank] + load[1, rank] + load[2, rank] + load[3, rank] + load[4, rank])


@subroutine
def copy_ranks(source: Ranks, begin: int, target: Ranks, start: int, count: int) -> None:
    """Copy the state of `count` ranks, from `begin` in `source` to `start` in `target`."""
    for index in range(count):
        for kind in range(3):
            target.free[kind, start + index] = source.free[kind, begin + index]
        for component in range(5):
            target.load[component, start + index] = source.load[component, begin + index]
        target.total[start + index] = source.total[begin + index]


@subroutine
def largest_of(values: Floats) -> float:
    """Return the largest value, at least 0."""
    largest = 0.0
    for value in values:
        largest = max(largest, value)
    return largest
