"""Compiled placement by load: of shards on single ranks, and of options on one or several hosts.

Invariant: hosts are sorted by the summed perf of their ranks, then by number, like the result of
torchrec's stable sort. After a change to a rank, its host's perf is summed again from the host's
ranks, because adding only the difference could round differently.
"""

import numpy as np

from planners.embedding.same_plan.placing.layout import Hosts, Inputs, Work
from planners.embedding.same_plan.placing.ranks import (
    copy,
    fits,
    place_freely,
    place_in_order,
    put,
    shards_of,
)
from planners.embedding.search.compiling import merged, subroutine
from planners.embedding.search.space import Floats, Placement


@merged
def _sum_up_host(host_ranks: int, total: Floats, hosts: Hosts, host: int) -> None:
    perf = 0.0
    least = np.inf
    for rank in range(host * host_ranks, (host + 1) * host_ranks):
        perf += total[rank]
        least = min(least, total[rank])
    hosts.total[host] = perf
    hosts.least[host] = least


@subroutine
def sort_hosts(problem: Inputs, work: Work) -> None:
    """Recompute the perf, least load and free memory of all hosts from their ranks; sort hosts."""
    total, hosts = work.hosts.total, work.hosts.order
    for host in range(hosts.size):
        _sum_up_host(problem.host_ranks, work.state.total, work.hosts, host)
        for kind in range(3):
            free = 0
            for rank in range(host * problem.host_ranks, (host + 1) * problem.host_ranks):
                free += work.state.free[kind, rank]
            work.hosts.free[kind, host] = free
    for place in range(1, hosts.size):
        host = hosts[place]
        while place > 0 and (total[host], host) < (total[hosts[place - 1]], hosts[place - 1]):
            hosts[place] = hosts[place - 1]
            place -= 1
        hosts[place] = host


@merged
def _move_host(host_ranks: int, loads: Floats, hosts: Hosts, place: int) -> None:
    """Restore the order of hosts after the load of the host at index `place` has grown."""
    total, order = hosts.total, hosts.order
    host = order[place]
    _sum_up_host(host_ranks, loads, hosts, host)
    while place + 1 < order.size and (
        total[order[place + 1]] < total[host]
        or (total[order[place + 1]] == total[host] and order[place + 1] < host)
    ):
        order[place] = order[place + 1]
        place += 1
    order[place] = host


@merged
def _least_loaded(problem: Inputs, work: Work) -> int:
    """Return the rank that `place_freely` would try first, found by the least load of each host."""
    least = np.inf
    for host in range(work.hosts.least.size):
        if work.hosts.least[host] < least:
            least = work.hosts.least[host]
    total = work.state.total
    for rank in range(work.hosts.least.size * problem.host_ranks, total.size):
        if total[rank] < least:
            least = total[rank]
    # Of equal loads, the lowest rank modulo `local_ranks` wins, then the lowest rank. The last
    # iteration is for the ranks after the last whole host.
    chosen = -1
    for host in range(work.hosts.least.size + 1):
        if host < work.hosts.least.size and work.hosts.least[host] != least:
            continue
        first = host * problem.host_ranks
        for rank in range(first, min(first + problem.host_ranks, total.size)):
            if total[rank] == least and (
                chosen < 0 or rank % problem.local_ranks < chosen % problem.local_ranks
            ):
                chosen = rank
    return chosen


@merged
def place_on_devices(problem: Inputs, work: Work, column: int) -> bool:
    """Place each shard on the least loaded rank that it fits; return False if it fits on none."""
    option = work.row[column]
    for shard in range(shards_of(problem.first_shard, option)):
        estimate = problem.estimate[problem.first_shard[option] + shard]
        rank = _least_loaded(problem, work)
        if fits(problem.storage, estimate, work.state, rank):
            put(problem.storage, problem.perf, estimate, work.state, rank)
            work.ranks[column, shard] = rank
        else:
            ranks = work.state.total.size
            rank = place_freely(problem, work, column, shard, 0, ranks, problem.local_ranks)
            if rank < 0:
                return False
        host = rank // problem.host_ranks
        if host < work.hosts.order.size:
            for kind in range(3):
                work.hosts.free[kind, host] -= problem.storage[estimate, kind]
            place = 0
            while work.hosts.order[place] != host:
                place += 1
            _move_host(problem.host_ranks, work.state.total, work.hosts, place)
    return True


@merged
def _place_on_one_host(problem: Inputs, work: Work, column: int, first: int) -> bool:
    """Place an option on the host of rank `first`; if False, the option may be partly placed."""
    placement = problem.placement[work.row[column]]
    end = first + problem.host_ranks
    if placement == Placement.HOST_ROWS:
        return place_in_order(problem, work, column, first, end)
    if placement != Placement.HOST_COLUMNS:
        return False
    for shard in range(shards_of(problem.first_shard, work.row[column])):
        if place_freely(problem, work, column, shard, first, end, problem.host_ranks) < 0:
            return False
    return True


@merged
def place_on_host(problem: Inputs, work: Work, group: int) -> bool:
    """Place a group of tables on the least loaded host on which all of it fits, or return False."""
    head = work.head[group]
    one_shard = shards_of(problem.first_shard, work.row[head]) == 1
    whole = one_shard or problem.placement[work.row[head]] == Placement.HOST_ROWS
    in_steps = work.following[head] >= 0 or not whole  # it may fail after placing some shards
    for place in range(work.hosts.order.size):
        host = work.hosts.order[place]
        first = host * problem.host_ranks
        # TorchRec skips a host if the sum of its ranks' free memory is too small.
        if (
            work.group_storage[group, 0] > work.hosts.free[0, host]
            or work.group_storage[group, 1] > work.hosts.free[1, host]
            or work.group_storage[group, 2] > work.hosts.free[2, host]
        ):
            continue
        if in_steps:
            copy(work.state, first, work.saved, first, problem.host_ranks)
        column = head
        while column >= 0 and _place_on_one_host(problem, work, column, first):
            column = work.following[column]
        if column < 0:
            for kind in range(3):
                work.hosts.free[kind, host] -= work.group_storage[group, kind]
            _move_host(problem.host_ranks, work.state.total, work.hosts, place)
            return True
        if in_steps:
            copy(work.saved, first, work.state, first, problem.host_ranks)
    return False


@merged
def place_on_hosts(problem: Inputs, work: Work, column: int) -> bool:
    """Place a grid-sharded option on consecutive hosts of the sorted order, or return False.

    An option with more shards than the hosts have ranks continues at the first host.
    """
    count = shards_of(problem.first_shard, work.row[column])
    ranks = work.state.total.size
    if count % problem.host_ranks != 0:
        return False
    copy(work.state, 0, work.saved, 0, ranks)
    for start in range(max(1, work.hosts.order.size - count // problem.host_ranks + 1)):
        placed = 0
        while placed < count:
            host = work.hosts.order[(start + placed // problem.host_ranks) % work.hosts.order.size]
            rank = host * problem.host_ranks + placed % problem.host_ranks
            estimate = problem.estimate[problem.first_shard[work.row[column]] + placed]
            if not fits(problem.storage, estimate, work.state, rank):
                break
            put(problem.storage, problem.perf, estimate, work.state, rank)
            work.ranks[column, placed] = rank
            placed += 1
        if placed == count:
            sort_hosts(problem, work)
            return True
        copy(work.saved, 0, work.state, 0, ranks)
    return False
