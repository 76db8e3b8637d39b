"""The arrays of the exact search, and compiled tests for fitting shards and equal ranks."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planners.embedding.search.compiling import subroutine
from planners.embedding.search.space import Floats, Floats2, Floats3, Ints, Ints2, Placement


class Layout(NamedTuple):
    """The problem as arrays; options are numbered table by table.

    A part of an option is the shards placed by one decision (see `branching`). Needs and capacities
    are in units of time, bytes of HBM and bytes of DDR. There are P vectors of prices.
    """

    first: Ints  # the index of each table's first option
    placement: Ints  # the Placement of each option
    parts: Ints  # the number of parts of each option
    shard: Ints  # the index of each option's first shard in `estimate`
    estimate: Ints  # the estimate number of each shard; equal ones for single devices are adjacent
    need: Ints2  # time, HBM and DDR of each estimate, shape (K, 3)
    largest: Ints  # units of time of each option's most expensive shard
    size: Floats  # largest need of any shard of each option, as a part of a rank's capacity
    price: Floats2  # the summed price of each option's needs, shape (P, O)
    weight: Floats2  # price of a unit of time, of a byte of HBM and of DDR, shape (P, 3)
    density: Floats3  # highest price per unit or byte among an option's shards, shape (P, O, 3)
    label: Ints  # of each rank; equal if ranks have equal memory and get the same fixed shards
    capacity: Ints2  # time, HBM and DDR of each rank, shape (W, 3)
    host_ranks: int
    on_hosts: bool  # whether any option is placed by host


class Stack(NamedTuple):
    """The state of the search: remaining capacities, and a frame for each decision on the path.

    A frame decides the option of a table (`part` is -1) or the rank or host of a part.
    """

    left: Ints2  # remaining capacity of each rank, shape (W, 3)
    open: npt.NDArray[np.bool_]  # whether each table is still undecided
    chosen: Ints  # the option of each table
    where: Ints2  # the rank or host of each part, shape (T, most parts)
    table: Ints  # the table of each frame
    part: Ints  # the part of each frame, or -1
    next: Ints  # the index of each frame's next choice
    choice_count: Ints
    at: Ints  # the rank or host on which the frame's part is now, or -1
    choices: Ints2  # options, ranks or hosts, shape (frames, most)
    barred: Ints  # bits of ranks or hosts on which each frame's part need not be tried
    alike: Ints2  # the first rank (host) that is equal to each rank (host), shape (frames, W)
    figures: Ints  # number of frames, work done
    priced: Floats  # scratch, shape (2 P,)
    dense: Floats2  # scratch, shape (P, 3)


@subroutine
def fits(layout: Layout, stack: Stack, estimate: int, rank: int) -> bool:
    """Whether a shard with this estimate fits in a rank's remaining capacity."""
    need, left = layout.need, stack.left
    return bool(
        need[estimate, 0] <= left[rank, 0]
        and need[estimate, 1] <= left[rank, 1]
        and need[estimate, 2] <= left[rank, 2]
    )


@subroutine
def _room(layout: Layout, stack: Stack, estimate: int, rank: int, most: int) -> int:
    """Return how many shards of this estimate still fit on a rank, at most `most`."""
    for kind in range(3):
        need = layout.need[estimate, kind]
        if need > 0:
            most = min(most, stack.left[rank, kind] // need)
    return max(most, 0)


@subroutine
def _shards_fit(layout: Layout, stack: Stack, begin: int, end: int, first: int, last: int) -> bool:
    """Whether each run of equal shards in [begin, end), alone, fits on ranks [first, last)."""
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
    """Whether shard `begin` + i fits on rank `start` + i, for each i below `count`."""
    for index in range(count):
        stack.figures[1] += 1
        if not fits(layout, stack, layout.estimate[begin + index], start + index):
            return False
    return True


@subroutine
def option_fits(layout: Layout, stack: Stack, option: int) -> bool:
    """Whether an option may fit in the remaining capacity: a necessary condition only."""
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
    """Place a part of an option on a rank or host, or remove it if `sign` is -1."""
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
    """Whether the ranks of two hosts can be matched one to one with equal ranks."""
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
    """Set a frame's `alike`: for each rank (or host) the first one that is interchangeable with it.

    Invariant: exchanging two equal ranks of equal hosts maps the set of plans below a frame onto
    itself, so only one of several equal ranks needs to be tried.
    """
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
