"""Compiled branch and bound over options and ranks: does a plan exist within given capacities?

It decides a table's option, then a rank or a host for each of its parts, then the next table. It
takes a table with only one fitting option first, otherwise the table with the largest smallest
option: the fail-first principle (Haralick and Elliott 1980). A part is one shard, or all shards
that are placed on one host, or on all ranks, together. Time is a capacity like memory, in whole
units, so all sums are exact.

A branch ends if an undecided table has no option that fits by itself. It also ends if, at one of
several vectors of prices for time and memory, the undecided tables cost more than the remaining
capacity is worth: a surrogate constraint (Glover 1968), which is valid for any prices. Symmetry: it
tries one of several equal ranks in equal hosts, and no part where an equal part has been tried.

The stack consists of arrays, so that the search can stop at any time and continue later.
"""

import numpy as np
import numpy.typing as npt

from planners.embedding.best_plan.exact.fitting import (
    Layout,
    Stack,
    block_fits,
    find_alike,
    fits,
    option_fits,
    put,
)
from planners.embedding.search.compiling import kernel, subroutine
from planners.embedding.search.space import Placement

EXHAUSTED, STOPPED, FITS = 0, 1, 2
"""The answers of a search: nothing fits, the work is done, or a plan was found."""

ANY = 1e300
"""A number above any price."""

_SAFETY = 1 + 1e-9  # allows for rounding of prices


@subroutine
def _push_part(layout: Layout, stack: Stack, table: int, part: int, barred: int) -> None:
    """Push a frame that decides the rank or host of a part; `barred` has bits of excluded ranks."""
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
        if block_fits(layout, stack, begin, 0, ranks):
            choices[0] = 0
            count = 1
        stack.alike[frame, 0] = 0
    elif placement == Placement.DEVICE or placement == Placement.HOST_COLUMNS:
        find_alike(layout, stack, frame, False)
        first, last = 0, ranks
        if placement == Placement.HOST_COLUMNS:
            last = ranks // size * size
            if part > 0:
                first = stack.where[table, 0] // size * size
                last = first + size
        for rank in range(first, last):
            # The first of the equal ranks may be outside [first, last): take the first inside.
            first_here = True
            for other in range(first, rank):
                if stack.alike[frame, other] == stack.alike[frame, rank]:
                    first_here = False
                    break
            if not first_here or barred >> rank & 1:
                continue
            if fits(layout, stack, layout.estimate[begin + part], rank):
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
        find_alike(layout, stack, frame, True)
        hosts = ranks // size
        taken = 0
        for earlier in range(part // hosts * hosts, part):
            taken |= 1 << stack.where[table, earlier]
        tried = 0
        for host in range(hosts):
            if taken >> host & 1 or tried >> stack.alike[frame, host] & 1:
                continue
            tried |= 1 << stack.alike[frame, host]
            if block_fits(layout, stack, begin + part * size, host * size, size):
                choices[count] = host
                count += 1
    stack.choice_count[frame] = count


@subroutine
def _absorbed(layout: Layout, stack: Stack, kind: int) -> float:
    """Return an upper bound on the price of the undecided shards that still fit on all ranks.

    For each rank it is the price of the remaining capacity, or, if lower for one kind of capacity,
    its remaining amount times the highest price per unit of any fitting option.
    """
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


@subroutine
def _push_table(layout: Layout, stack: Stack) -> bool:
    """Push a frame that decides the next table's option, unless a bound proves there is no plan.

    Return whether a frame was pushed.
    """
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
            if not option_fits(layout, stack, option):
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
        if not option_fits(layout, stack, option):
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


@subroutine
def _begin(layout: Layout, stack: Stack) -> None:
    """Reset the search: full capacities, no decisions, and a frame for the first table."""
    for rank in range(len(layout.capacity)):
        for kind in range(3):
            stack.left[rank, kind] = layout.capacity[rank, kind]
    stack.open[:] = True
    stack.figures[0] = 0
    _push_table(layout, stack)


@subroutine
def _barred_next(layout: Layout, stack: Stack, frame: int) -> int:
    """Return bits of the ranks on which the next part need not be tried, if it equals this part.

    This part has been tried on these ranks, and equal parts are interchangeable. Return 0 if the
    parts differ.
    """
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


@subroutine
def _is_any(flags: npt.NDArray[np.bool_]) -> bool:  # numpy's takes long to compile
    found = False
    for flag in flags:
        found |= flag
    return bool(found)


@kernel
def search(layout: Layout, stack: Stack, begin: bool, work: int) -> int:
    """Search until a plan is found (FITS), all is tried (EXHAUSTED) or `work` is done (STOPPED).

    If `begin`, start from the beginning; otherwise continue.
    """
    if begin:
        _begin(layout, stack)
    until = stack.figures[1] + work
    while stack.figures[0] > 0:
        if stack.figures[1] >= until:
            return STOPPED
        stack.figures[1] += 5
        frame = stack.figures[0] - 1
        table, part = stack.table[frame], stack.part[frame]
        if part >= 0 and stack.at[frame] >= 0:
            put(layout, stack, stack.chosen[table], part, stack.at[frame], -1)
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
        put(layout, stack, option, part, choice, 1)
        if part + 1 < layout.parts[option]:
            placement = layout.placement[option]
            on_devices = placement == Placement.DEVICE or placement == Placement.HOST_COLUMNS
            barred = _barred_next(layout, stack, frame) if on_devices else 0
            _push_part(layout, stack, table, part + 1, barred)
        elif not _is_any(stack.open):
            return FITS
        else:
            _push_table(layout, stack)
    return EXHAUSTED
