"""Compiled tests of where options and their parts fit, and of which ranks and hosts are alike."""

from planners.embedding.best_plan.exact.layout import Layout, Stack
from planners.embedding.search.compiling import subroutine
from planners.embedding.search.space import Placement


@subroutine
def fits(layout: Layout, stack: Stack, estimate: int, rank: int) -> bool:
    """Whether a rank has room for one more shard of an estimate."""
    need, left = layout.need, stack.left
    return bool(
        need[estimate, 0] <= left[rank, 0]
        and need[estimate, 1] <= left[rank, 1]
        and need[estimate, 2] <= left[rank, 2]
    )


@subroutine
def _room(layout: Layout, stack: Stack, estimate: int, rank: int, most: int) -> int:
    """Return how many shards of this estimate a rank can take, or `most`."""
    for kind in range(3):
        need = layout.need[estimate, kind]
        if need > 0:
            most = min(most, stack.left[rank, kind] // need)
    return max(most, 0)


@subroutine
def _shards_fit(layout: Layout, stack: Stack, begin: int, end: int, first: int, last: int) -> bool:
    """Whether the shards from `begin` to `end` fit on these ranks, each run of equal ones alone."""
    index = begin
    while index < end:
        estimate = layout.estimate[index]
        count = 0
        while index < end and layout.estimate[index] == estimate:
            count += 1
            index += 1
        for rank in range(first, last):
            if count <= 0:
                break
            stack.figures[1] += 1
            count -= _room(layout, stack, estimate, rank, count)
        if count > 0:
            return False
    return True


@subroutine
def block_fits(layout: Layout, stack: Stack, begin: int, start: int, count: int) -> bool:
    """Whether the shards from `begin` on fit one by one on the ranks from `start` on."""
    for index in range(count):
        stack.figures[1] += 1
        if not fits(layout, stack, layout.estimate[begin + index], start + index):
            return False
    return True


@subroutine
def option_fits(layout: Layout, stack: Stack, option: int) -> bool:
    """Whether an option fits by itself; where this is hard to tell, it is taken to fit."""
    begin, end = layout.shard[option], layout.shard[option + 1]
    ranks, size = len(layout.capacity), layout.host_ranks
    placement = layout.placement[option]
    if placement == Placement.DEVICE:
        return _shards_fit(layout, stack, begin, end, 0, ranks)
    if placement == Placement.UNIFORM:
        return block_fits(layout, stack, begin, 0, ranks)
    if placement == Placement.HOST_COLUMNS:
        for host in range(ranks // size):
            if _shards_fit(layout, stack, begin, end, host * size, (host + 1) * size):
                return True
        return False
    for part in range(layout.parts[option]):
        found = False
        for host in range(ranks // size):
            if block_fits(layout, stack, begin + part * size, host * size, size):
                found = True
                break
        if not found:
            return False
    return True


@subroutine
def put(layout: Layout, stack: Stack, option: int, part: int, at: int, sign: int) -> None:
    """Put a part of an option on a rank or host, or with sign -1 take it off."""
    begin = layout.shard[option]
    placement = layout.placement[option]
    if placement == Placement.DEVICE or placement == Placement.HOST_COLUMNS:
        begin, start, count = begin + part, at, 1
    elif placement == Placement.UNIFORM:
        start, count = 0, len(layout.capacity)
    else:
        begin += part * layout.host_ranks
        start, count = at * layout.host_ranks, layout.host_ranks
    for index in range(count):
        for kind in range(3):
            stack.left[start + index, kind] -= (
                sign * layout.need[layout.estimate[begin + index], kind]
            )


@subroutine
def _same_rank(layout: Layout, stack: Stack, one: int, other: int) -> bool:
    return bool(
        stack.left[one, 0] == stack.left[other, 0]
        and stack.left[one, 1] == stack.left[other, 1]
        and stack.left[one, 2] == stack.left[other, 2]
        and layout.label[one] == layout.label[other]
    )


@subroutine
def _same_host(layout: Layout, stack: Stack, one: int, other: int) -> bool:
    """Whether the ranks of two hosts are alike in some order."""
    size = layout.host_ranks
    used = 0
    for index in range(size):
        found = False
        for twin in range(size):
            stack.figures[1] += 1
            if used >> twin & 1:
                continue
            if _same_rank(layout, stack, one * size + index, other * size + twin):
                used |= 1 << twin
                found = True
                break
        if not found:
            return False
    return True


@subroutine
def find_alike(layout: Layout, stack: Stack, frame: int, hosts: bool) -> None:
    """Write for each rank, or host, the first one that it is like."""
    alike = stack.alike[frame]
    size = layout.host_ranks
    whole = len(layout.capacity) // size
    if hosts:
        for host in range(whole):
            alike[host] = host
            for other in range(host):
                if alike[other] == other and _same_host(layout, stack, other, host):
                    alike[host] = other
                    break
        return
    for rank in range(len(layout.capacity)):
        alike[rank] = rank
        for other in range(rank):
            stack.figures[1] += 1
            if alike[other] != other or not _same_rank(layout, stack, other, rank):
                continue
            host, others = rank // size, other // size
            apart = layout.on_hosts and host != others
            if apart and (
                host >= whole or others >= whole or not _same_host(layout, stack, others, host)
            ):
                continue
            alike[rank] = other
            break
