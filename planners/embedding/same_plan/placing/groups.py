"""The groups of options that go onto a host together, in the order of their size, compiled."""

import numpy as np

from planners.embedding.same_plan.placing.layout import Inputs, Work
from planners.embedding.search.compiling import merged, subroutine
from planners.embedding.search.space import Floats2, Ints, Placement


@subroutine
def collect_groups(problem: Inputs, work: Work, row: Ints) -> None:
    """Chain what is not uniform by group, and sum the groups in the order of the row."""
    key, storage = work.key, work.group_storage
    work.head[:] = -1
    key[:] = -np.inf
    for column in range(row.size):
        option = row[column]
        if problem.placement[option] == Placement.UNIFORM:
            continue
        group = problem.group[option]
        work.following[column] = -1
        if work.head[group] >= 0:
            work.following[work.tail[group]] = column
        else:
            work.head[group] = column
            key[group, 0] = problem.precedence[option]
            key[group, 1] = 0.0
            for kind in range(3):
                storage[group, kind] = 0
        work.tail[group] = column
        for kind in range(3):
            storage[group, kind] += problem.option_storage[option, kind]
            if not problem.by_perf:
                key[group, 1 + kind] = storage[group, kind]  # whole bytes, exact up to 2**53
        if problem.by_perf:
            key[group, 1] += problem.option_perf[option]


@merged
def _goes_before(key: Floats2, head: Ints, one: int, other: int) -> bool:
    """Whether a group is larger than another, or as large and earlier in the row."""
    part = 0
    while part < 3 and key[one, part] == key[other, part]:
        part += 1
    if key[one, part] != key[other, part]:
        return bool(key[one, part] > key[other, part])
    return bool(head[one] < head[other])


@subroutine
def sort_groups(work: Work) -> None:
    """Sort by insertion: for a greedy proposer, the last row's order is nearly right."""
    order = work.order
    for place in range(1, order.size):
        group = order[place]
        if not _goes_before(work.key, work.head, group, order[place - 1]):
            continue
        low, high = 0, place - 1
        while low < high:
            middle = (low + high) // 2
            if _goes_before(work.key, work.head, group, order[middle]):
                high = middle
            else:
                low = middle + 1
        for moved in range(place, low, -1):
            order[moved] = order[moved - 1]
        order[low] = group
