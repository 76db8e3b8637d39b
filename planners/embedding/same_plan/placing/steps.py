"""The first groups of a row that are placed as those of the last row were, compiled.

A greedy proposer changes one table at a time. Where that table is uniform neither before nor after,
all groups that are larger go where they went, and the state of the ranks after them is kept in
steps.
"""

from planners.embedding.same_plan.placing.layout import Hosts, Inputs, Work
from planners.embedding.same_plan.placing.ranks import copy
from planners.embedding.search.compiling import subroutine
from planners.embedding.search.space import Ints, Placement


@subroutine
def take_row(problem: Inputs, work: Work, row: Ints, hbm: int) -> bool:
    """Set the options of the row, and say whether uniform ones are as they were, and placed."""
    last = work.last
    alike = bool(last.placed[0] >= 0 and last.hbm[0] == hbm)
    last.hbm[0] = hbm
    for place in range(work.order.size):
        last.order[place] = work.order[place]
        last.changed[place] = 0
    for column in range(row.size):
        before, option = work.row[column], row[column]
        if before == option:
            continue
        work.row[column] = option
        last.changed[problem.group[before]] = last.changed[problem.group[option]] = 1
        if (
            problem.placement[before] == Placement.UNIFORM
            or problem.placement[option] == Placement.UNIFORM
        ):
            alike = False
    return alike


@subroutine
def steps_alike(work: Work) -> int:
    """Return after how many steps of the last row the present one is as it was, uniform alike."""
    last, place = work.last, 0
    while (
        place < last.placed[0]
        and work.order[place] == last.order[place]
        and last.changed[work.order[place]] == 0
    ):
        place += 1
    return int(place // last.groups_a_step)


@subroutine
def keep(work: Work, step: int) -> None:
    """Keep the state of ranks and hosts before a step."""
    last, ranks, hosts = work.last, work.state.total.size, work.hosts.total.size
    copy(work.state, 0, last.ranks, step * ranks, ranks)
    _copy_hosts(work.hosts, 0, last.hosts, step * hosts, hosts)


@subroutine
def go_back(work: Work, step: int) -> None:
    """Set ranks and hosts to their state before a step."""
    last, ranks, hosts = work.last, work.state.total.size, work.hosts.total.size
    copy(last.ranks, step * ranks, work.state, 0, ranks)
    _copy_hosts(last.hosts, step * hosts, work.hosts, 0, hosts)


@subroutine
def _copy_hosts(source: Hosts, begin: int, target: Hosts, start: int, count: int) -> None:
    for index in range(count):
        target.total[start + index] = source.total[begin + index]
        target.least[start + index] = source.least[begin + index]
        target.order[start + index] = source.order[begin + index]
        for kind in range(3):
            target.free[kind, start + index] = source.free[kind, begin + index]
