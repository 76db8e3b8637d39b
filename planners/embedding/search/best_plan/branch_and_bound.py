"""Branch and bound over options and ranks, compiled: is there a plan within given capacities?

Tables are decided one by one: the one with the least choice, then its option, then a rank or a
host for each of its parts. A part is one shard, or all shards that go onto one host, or onto all
ranks, together. Time is a capacity like memory, in whole units, so all sums are exact.

A branch ends where some table has no option left that fits by itself, or where all tables left
need more than all ranks can still take, by any of several prices of time and memory. Of ranks that
are alike, with as much left and in hosts that are alike, one is tried, and of equal parts none goes
where an earlier one has been tried in vain.

The stack is kept in arrays, so that a search can be left at any moment and gone on with.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from planners.embedding.search.space import Floats, Ints, Placement

F = TypeVar("F", bound=Callable[..., Any])

EXHAUSTED, STOPPED, FITS = 0, 1, 2
"""How a search can end: nothing fits, the work is done, or a plan is found."""

ANY = 1e300
"""More than any price."""

_SAFETY = 1 + 1e-9  # for rounding in prices


class Layout(NamedTuple):
    """Tables, their options, and the parts of these; options are numbered table after table.

    What is needed and left is in units of time, bytes of HBM and bytes of DDR.
    """

    first: Ints  # where the options of each table begin
    placement: Ints  # of each option
    parts: Ints  # how many each option has
    shard: Ints  # where the shards of each option begin in `estimate`
    estimate: Ints  # of each shard; on single devices equal ones follow each other
    need: Ints  # of each estimate, shape (K, 3)
    largest: Ints  # units of time of an option's dearest shard
    size: Floats  # of each option: its dearest shard or most memory, as a part of a rank
    price: Floats  # of each option, by kind of price, shape (P, O)
    weight: Floats  # of a unit of time, of a byte of HBM and of DDR, shape (P, 3)
    density: Floats  # the most price per unit or byte of any shard of an option, shape (P, O, 3)
    label: Ints  # equal for ranks with the same shards of all options
    capacity: Ints  # of each rank, shape (W, 3)
    host_ranks: int
    on_hosts: bool  # whether any option goes onto hosts


class Stack(NamedTuple):
    """Where the search is: what is left of each rank, and a frame for each decision on the way.

    A frame decides the option of a table (`part` is -1) or where a part goes.
    """

    left: Ints  # shape (W, 3)
    open: npt.NDArray[np.bool_]  # whether a table is undecided
    chosen: Ints  # option of each table
    where: Ints  # rank or host of each part, shape (T, most parts)
    table: Ints  # of each frame
    part: Ints
    next: Ints  # the alternative to be tried next
    choice_count: Ints  # how many alternatives there are
    at: Ints  # where the part is now, -1 where nowhere
    choices: Ints  # alternatives: options, ranks or hosts, shape (frames, most)
    barred: Ints  # bits of ranks or hosts where equal parts need not go
    alike: Ints  # by frame the first rank (host) that each is like, shape (frames, W)
    figures: Ints  # depth, work done
    priced: Floats  # scratch by kind of price
    dense: Floats  # scratch, shape (P, 3)


def _compiled(function: F) -> F:
    return cast(F, numba.njit(cache=True, _nrt=False)(function))


@_compiled
def _fits(layout: Layout, stack: Stack, estimate: int, rank: int) -> bool:
    need, left = layout.need, stack.left
    return bool(
        need[estimate, 0] <= left[rank, 0]
        and need[estimate, 1] <= left[rank, 1]
        and need[estimate, 2] <= left[rank, 2]
    )


@_compiled
def _room(layout: Layout, stack: Stack, estimate: int, rank: int, most: int) -> int:
    """Return how many shards of this estimate a rank can take, or `most`."""
    for kind in range(3):
        need = layout.need[estimate, kind]
        if need > 0:
            most = min(most, stack.left[rank, kind] // need)
    return max(most, 0)


@_compiled
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


@_compiled
def _block_fits(layout: Layout, stack: Stack, begin: int, start: int, count: int) -> bool:
    """Whether the shards from `begin` on fit one by one on the ranks from `start` on."""
    for index in range(count):
        stack.figures[1] += 1
        if not _fits(layout, stack, layout.estimate[begin + index], start + index):
            return False
    return True


@_compiled
def _option_fits(layout: Layout, stack: Stack, option: int) -> bool:
    """Whether an option fits by itself; where this is hard to tell, it is taken to fit."""
    begin, end = layout.shard[option], layout.shard[option + 1]
    ranks, size = len(layout.capacity), layout.host_ranks
    placement = layout.placement[option]
    if placement == Placement.DEVICE:
        return _shards_fit(layout, stack, begin, end, 0, ranks)
    if placement == Placement.UNIFORM:
        return _block_fits(layout, stack, begin, 0, ranks)
    if placement == Placement.HOST_COLUMNS:
        for host in range(ranks // size):
            if _shards_fit(layout, stack, begin, end, host * size, (host + 1) * size):
                return True
        return False
    for part in range(layout.parts[option]):
        found = False
        for host in range(ranks // size):
            if _block_fits(layout, stack, begin + part * size, host * size, size):
                found = True
                break
        if not found:
            return False
    return True


@_compiled
def _put(layout: Layout, stack: Stack, option: int, part: int, at: int, sign: int) -> None:
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


@_compiled
def _same_rank(layout: Layout, stack: Stack, one: int, other: int) -> bool:
    return bool(
        stack.left[one, 0] == stack.left[other, 0]
        and stack.left[one, 1] == stack.left[other, 1]
        and stack.left[one, 2] == stack.left[other, 2]
        and layout.label[one] == layout.label[other]
    )


@_compiled
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


@_compiled
def _find_alike(layout: Layout, stack: Stack, frame: int, hosts: bool) -> None:
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


@_compiled
def _push_part(layout: Layout, stack: Stack, table: int, part: int, barred: int) -> None:
    """Add a frame that decides where a part of a table's option goes."""
    frame = stack.figures[0]
    stack.figures[0] += 1
    option = stack.chosen[table]
    placement = layout.placement[option]
    size, ranks = layout.host_ranks, len(layout.capacity)
    begin = layout.shard[option]
    stack.table[frame], stack.part[frame] = table, part
    stack.next[frame], stack.choice_count[frame], stack.at[frame] = 0, 0, -1
    stack.barred[frame] = barred
    choices = stack.choices[frame]
    count = 0
    if placement == Placement.UNIFORM:
        if _block_fits(layout, stack, begin, 0, ranks):
            choices[0] = 0
            count = 1
        stack.alike[frame, 0] = 0
    elif placement == Placement.DEVICE or placement == Placement.HOST_COLUMNS:
        _find_alike(layout, stack, frame, False)
        first, last = 0, ranks
        if placement == Placement.HOST_COLUMNS:
            last = ranks // size * size
            if part > 0:
                first = stack.where[table, 0] // size * size
                last = first + size
        for rank in range(first, last):
            # What the first rank of its kind stands for may begin outside of the host.
            first_here = True
            for other in range(first, rank):
                if stack.alike[frame, other] == stack.alike[frame, rank]:
                    first_here = False
                    break
            if not first_here or barred >> rank & 1:
                continue
            if _fits(layout, stack, layout.estimate[begin + part], rank):
                choices[count] = rank
                count += 1
        # The emptiest rank first.
        for index in range(1, count):
            rank = choices[index]
            place = index
            while place > 0 and stack.left[choices[place - 1], 0] < stack.left[rank, 0]:
                choices[place] = choices[place - 1]
                place -= 1
            choices[place] = rank
    else:
        _find_alike(layout, stack, frame, True)
        hosts = ranks // size
        taken = 0
        for earlier in range(part // hosts * hosts, part):
            taken |= 1 << stack.where[table, earlier]
        tried = 0
        for host in range(hosts):
            if taken >> host & 1 or tried >> stack.alike[frame, host] & 1:
                continue
            tried |= 1 << stack.alike[frame, host]
            if _block_fits(layout, stack, begin + part * size, host * size, size):
                choices[count] = host
                count += 1
    stack.choice_count[frame] = count


@_compiled
def _absorbed(layout: Layout, stack: Stack, kind: int) -> float:
    """Return the most price that the shards of open tables can come to on all ranks."""
    total = 0.0
    for rank in range(len(layout.capacity)):
        most = 0.0
        for held in range(3):
            most += layout.weight[kind, held] * stack.left[rank, held]
        for held in range(3):
            if stack.dense[kind, held] < ANY:
                most = min(most, stack.dense[kind, held] * stack.left[rank, held])
        total += most
    return total


@_compiled
def _push_table(layout: Layout, stack: Stack) -> bool:
    """Add a frame that decides the next table; returns whether there may be a plan."""
    frame = stack.figures[0]
    choices = stack.choices[frame]
    kinds = len(layout.weight)
    stack.priced[:] = 0.0
    stack.dense[:] = 0.0
    best, most = -1, -1.0
    for table in range(len(layout.first) - 1):
        if not stack.open[table]:
            continue
        fitting = 0
        smallest = ANY
        for kind in range(kinds):
            stack.priced[kinds + kind] = ANY
        for option in range(layout.first[table], layout.first[table + 1]):
            if layout.largest[option] > layout.capacity[0, 0]:
                continue
            if not _option_fits(layout, stack, option):
                continue
            fitting += 1
            smallest = min(smallest, layout.size[option])
            for kind in range(kinds):
                stack.figures[1] += 1
                price = layout.price[kind, option]
                stack.priced[kinds + kind] = min(stack.priced[kinds + kind], price)
                for held in range(3):
                    density = layout.density[kind, option, held]
                    stack.dense[kind, held] = max(stack.dense[kind, held], density)
        if fitting == 0:
            return False
        for kind in range(kinds):
            stack.priced[kind] += stack.priced[kinds + kind]
        urgency = smallest if fitting > 1 else 1e6 + smallest
        if urgency > most:
            best, most = table, urgency
    for kind in range(kinds):
        stack.figures[1] += len(layout.capacity)
        if stack.priced[kind] > _absorbed(layout, stack, kind) * _SAFETY:
            return False
    count = 0
    for option in range(layout.first[best], layout.first[best + 1]):
        if layout.largest[option] > layout.capacity[0, 0]:
            continue
        if not _option_fits(layout, stack, option):
            continue
        place = count
        while place > 0 and layout.price[0, choices[place - 1]] > layout.price[0, option]:
            choices[place] = choices[place - 1]
            place -= 1
        choices[place] = option
        count += 1
    stack.open[best] = False
    stack.table[frame], stack.part[frame] = best, -1
    stack.next[frame], stack.choice_count[frame] = 0, count
    stack.figures[0] += 1
    return True


@_compiled
def begin(layout: Layout, stack: Stack) -> None:
    """Put the search at its beginning, with nothing decided."""
    for rank in range(len(layout.capacity)):
        for kind in range(3):
            stack.left[rank, kind] = layout.capacity[rank, kind]
    stack.open[:] = True
    stack.figures[0] = 0
    _push_table(layout, stack)


@_compiled
def _barred_next(layout: Layout, stack: Stack, frame: int) -> int:
    """Return where the next part of the option need not go, if it is equal to this one."""
    option, part = stack.chosen[stack.table[frame]], stack.part[frame]
    begin = layout.shard[option]
    if layout.estimate[begin + part] != layout.estimate[begin + part + 1]:
        return 0
    barred = stack.barred[frame]
    for tried in range(stack.next[frame] - 1):
        like = stack.alike[frame, stack.choices[frame, tried]]
        for rank in range(len(layout.capacity)):
            if stack.alike[frame, rank] == like:
                barred |= 1 << rank
    return int(barred)


@_compiled
def search(layout: Layout, stack: Stack, work: int) -> int:
    """Go on until a plan is found, all is tried, or so much work is done."""
    until = stack.figures[1] + work
    while stack.figures[0] > 0:
        if stack.figures[1] >= until:
            return STOPPED
        stack.figures[1] += 5
        frame = stack.figures[0] - 1
        table, part = stack.table[frame], stack.part[frame]
        if part >= 0 and stack.at[frame] >= 0:
            _put(layout, stack, stack.chosen[table], part, stack.at[frame], -1)
            stack.at[frame] = -1
        if stack.next[frame] == stack.choice_count[frame]:
            stack.figures[0] -= 1
            if part < 0:
                stack.open[table] = True
            continue
        choice = stack.choices[frame, stack.next[frame]]
        stack.next[frame] += 1
        if part < 0:
            stack.chosen[table] = choice
            _push_part(layout, stack, table, 0, 0)
            continue
        option = stack.chosen[table]
        stack.at[frame] = choice
        stack.where[table, part] = choice
        _put(layout, stack, option, part, choice, 1)
        if part + 1 < layout.parts[option]:
            on_devices = layout.placement[option] in (Placement.DEVICE, Placement.HOST_COLUMNS)
            barred = _barred_next(layout, stack, frame) if on_devices else 0
            _push_part(layout, stack, table, part + 1, barred)
        elif not stack.open.any():
            return FITS
        else:
            _push_table(layout, stack)
    return EXHAUSTED
