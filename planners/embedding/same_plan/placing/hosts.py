"""Compiled placement by load: of shards on single ranks, and of options on one or several hosts.

Invariant: hosts are sorted by the summed perf of their ranks, then by number, like the result of
torchrec's stable sort. After a change to a rank, its host's perf is summed again from the host's
ranks, because adding only the difference could round differently.
"""

from planners.embedding.same_plan.placing.groups import TOTAL
from planners.embedding.same_plan.placing.layout import Inputs, Work
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


@subroutine
def _sum_up_host(problem: Inputs, work: Work, host: int) -> None:
    """Sum the perf of a host's ranks again, and find the rank that its leaf of the tree has."""
    total, hosts = work.state.total, work.hosts
    perf, chosen, local = 0.0, -1, problem.local_ranks
    first = host * problem.host_ranks
    for rank in range(first, min(first + problem.host_ranks, total.size)):
        perf += total[rank]
        if (
            chosen < 0
            or total[rank] < total[chosen]
            or (total[rank] == total[chosen] and rank % local < chosen % local)
        ):
            chosen = rank
    hosts.leader[hosts.leader.size // 2 + host] = chosen
    if host < hosts.total.size:
        hosts.total[host] = perf


@merged
def _lead(problem: Inputs, work: Work, node: int) -> None:
    """Set a node of the tree to the less loaded rank of the two nodes below it.

    Of equal loads, the lowest rank modulo `local_ranks` wins, then the lowest rank, as in torchrec.
    """
    total, leader, local = work.state.total, work.hosts.leader, problem.local_ranks
    one, other = leader[2 * node], leader[2 * node + 1]  # in the order of ranks
    if other >= 0 and (
        total[other] < total[one] or (total[other] == total[one] and other % local < one % local)
    ):
        one = other
    leader[node] = one


@merged
def _is_before(total: Floats, one: int, other: int) -> bool:
    return bool(total[one] < total[other] or (total[one] == total[other] and one < other))


@subroutine
def sort_hosts(problem: Inputs, work: Work) -> None:
    """Recompute the perf and free memory of all hosts and the tree from the ranks; sort hosts."""
    hosts, order = work.hosts, work.hosts.order
    for host in range(order.size + 1):
        _sum_up_host(problem, work, host)
    for node in range(hosts.leader.size // 2 - 1, 0, -1):
        _lead(problem, work, node)
    for host in range(order.size):
        for kind in range(3):
            free = 0
            for rank in range(host * problem.host_ranks, (host + 1) * problem.host_ranks):
                free += work.state.free[kind, rank]
            hosts.free[kind, host] = free
    for place in range(1, order.size):
        host = order[place]
        while place > 0 and _is_before(hosts.total, host, order[place - 1]):
            order[place] = order[place - 1]
            place -= 1
        order[place] = host


@merged
def _places_before(work: Work, host: int, low: int) -> int:
    """Return the number of places before a host in the order; at least `low`. Binary search."""
    order, high = work.hosts.order, work.hosts.order.size
    while low < high:
        middle = (low + high) // 2
        if _is_before(work.hosts.total, order[middle], host):
            low = middle + 1
        else:
            high = middle
    return int(low)


@subroutine
def update_host(problem: Inputs, work: Work, host: int) -> None:
    """Restore the order of the hosts and the tree after the load of a host has grown."""
    order, leader = work.hosts.order, work.hosts.leader
    place = _places_before(work, host, 0) if host < order.size else 0
    _sum_up_host(problem, work, host)
    node = (leader.size // 2 + host) // 2
    while node > 0:
        led = leader[node]
        _lead(problem, work, node)
        if leader[node] == led and led // problem.host_ranks != host:
            break  # nor do the nodes above change
        node //= 2
    if host < order.size:
        end = _places_before(work, host, place + 1)
        for index in range(place, end - 1):
            order[index] = order[index + 1]
        order[end - 1] = host


@merged
def place_on_devices(problem: Inputs, work: Work, column: int) -> bool:
    """Place each shard on the least loaded rank that it fits; return False if it fits on none."""
    option = work.row[column]
    for shard in range(shards_of(problem.first_shard, option)):
        estimate = problem.estimate[problem.first_shard[option] + shard]
        rank = work.hosts.leader[1]
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
        update_host(problem, work, host)
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
    head, memory = work.groups.head[group], work.groups.memory
    one_shard = shards_of(problem.first_shard, work.row[head]) == 1
    whole = one_shard or problem.placement[work.row[head]] == Placement.HOST_ROWS
    # It may fail after placing some shards.
    in_parts = work.groups.following[head] >= 0 or not whole
    for place in range(work.hosts.order.size):
        host = work.hosts.order[place]
        first = host * problem.host_ranks
        # TorchRec skips a host if the sum of its ranks' free memory is too small.
        if (
            memory[group, TOTAL, 0] > work.hosts.free[0, host]
            or memory[group, TOTAL, 1] > work.hosts.free[1, host]
            or memory[group, TOTAL, 2] > work.hosts.free[2, host]
        ):
            continue
        if in_parts:
            copy(work.state, first, work.saved, first, problem.host_ranks)
        column = head
        while column >= 0 and _place_on_one_host(problem, work, column, first):
            column = work.groups.following[column]
        if column < 0:
            for kind in range(3):
                work.hosts.free[kind, host] -= memory[group, TOTAL, kind]
            update_host(problem, work, host)
            return True
        if in_parts:
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
