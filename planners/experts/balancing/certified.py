"""The best balance: from the published placements, exchanges until a proven bound is near.

The replicas of an expert share its load evenly. With counts that are free, the largest load T is at
least the mean load, and at least the largest replica of the greedy replication, which is the least
possible: if an expert e ends with the largest replica r, and other counts had all replicas below r,
some expert f would have fewer replicas than greedy gave it; when greedy gave f the last one, e's
replica was at least r and f's was no smaller, so f's replicas would be at least r.

Two slots per GPU have a search and a stronger bound of their own (`two_slots`).
"""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from planners.experts import kernels
from planners.experts.balancing import two_slots
from planners.experts.problem import ExpertsProblem, Loads, Placement, Slots
from planners.experts.published import STARTS, flashlb_slots

_CLOSE = 1e-4
_FAR = 1e-3
_MOST_GROUPS = 12


def certified(problem: ExpertsProblem) -> Placement:
    """Return a placement with the best balance that was reached; it does not count fetches.

    No layer is worse than in the greedy placements, and in the one in force.
    """
    starts = [balancer.place(problem).slots for balancer in STARTS]
    if problem.previous is not None:
        starts.append(problem.previous)
    if problem.nodes == 1:
        placed = balanced(problem.loads, problem.gpus, problem.per_gpu, *starts)
        return Placement(placed.reshape(problem.layers, -1))
    # With groups, each node has a balance of its own, once it has its groups.
    rows = problem.layers * problem.nodes
    groups = groups_of_nodes(problem).reshape(rows, -1)
    experts = experts_of(problem, groups)
    layer = np.repeat(np.arange(problem.layers), problem.nodes)[:, None]
    gpus = problem.gpus // problem.nodes
    placed = balanced(problem.loads[layer, experts], gpus, problem.per_gpu).reshape(rows, -1)
    slots = np.take_along_axis(experts, placed, axis=1).reshape(problem.layers, -1)
    placements = np.array([slots, *starts])
    loads = [Placement(made).gpu_loads(problem.loads, problem.gpus) for made in placements]
    best = np.max(loads, axis=2).argmin(axis=0)
    return Placement(placements[best, np.arange(problem.layers)])


def balanced(weights: Loads, gpus: int, per_gpu: int, *starts: Slots) -> Slots:
    """Return rows x GPUs x slots: the experts of each GPU, never worse than one of the starts.

    More starts are the greedy placement and, where the bound stays far, FlashLB's.
    """
    owner, share, _ = kernels.replicate(weights, gpus * per_gpu)
    order = np.argsort(-share, axis=1, kind="stable")
    packed = kernels.pack(order, share, gpus)
    started = [np.take_along_axis(owner, packed, axis=1), *starts]
    loads = np.array([Placement(start).gpu_loads(weights, gpus).max(axis=1) for start in started])
    placed = np.empty((len(weights), gpus, per_gpu), dtype=np.int64)

    def starts_of(row: int) -> Iterator[Slots]:
        for at in np.argsort(loads[:, row], kind="stable"):
            yield started[at][row].copy()
        yield flashlb_slots(weights[row], gpus, gpus * per_gpu)

    for row, bound in enumerate(bounds_of(weights, gpus, per_gpu)):
        least = np.inf
        for start in starts_of(row):
            made = start.reshape(gpus, per_gpu)
            load = _improved(weights[row], made, bound * (1 + _CLOSE))
            if load < least:
                least, placed[row] = load, made
            if least <= bound * (1 + _FAR) or per_gpu == 2:
                break  # with two slots, the result does not depend on the start
    return placed


def _improved(weights: Loads, placed: Slots, limit: float) -> float:
    """Improve a row in place until no load is above `limit`; return its largest load."""
    if placed.shape[1] != 2:
        return kernels.improve(weights, placed, placed, limit, False)[0]
    counts = np.bincount(placed.ravel(), minlength=len(weights))
    counts, load = two_slots.least_pairs(weights, counts, len(placed), limit)
    placed[:] = two_slots.paired(weights, counts)
    return load


def bounds_of(weights: Loads, gpus: int, per_gpu: int) -> Loads:
    """Return for each row of weights a bound on the largest load of a GPU, quick to compute."""
    _, share, _ = kernels.replicate(weights, gpus * per_gpu)
    quick: Loads = np.maximum(weights.sum(axis=1) / gpus, share.max(axis=1))
    return quick


def layer_bounds(problem: ExpertsProblem) -> Loads:
    """Return the bound of each layer; up to 12 groups it is that of the best groups of nodes."""
    quick = bounds_of(problem.loads, problem.gpus, problem.per_gpu)
    if problem.nodes > 1 and problem.groups <= _MOST_GROUPS:
        sums = np.take_along_axis(group_loads(problem), groups_of_nodes(problem), axis=1)
        busiest = sums.reshape(problem.layers, problem.nodes, -1).sum(axis=2).max(axis=1)
        grouped: Loads = np.maximum(quick, busiest / (problem.gpus // problem.nodes))
        return grouped
    if problem.nodes > 1 or problem.per_gpu != 2:
        return quick
    layers = zip(problem.loads, map(float, quick), strict=True)
    return np.array([two_slots.pairs_bound(row, problem.gpus, low) for row, low in layers])


def group_loads(problem: ExpertsProblem) -> Loads:
    """Return the loads of the groups of experts, by layer."""
    sums: Loads = problem.loads.reshape(problem.layers, problem.groups, -1).sum(axis=2)
    return sums


def experts_of(problem: ExpertsProblem, groups: Slots) -> Slots:
    """Return the experts of rows of groups."""
    size = problem.experts // problem.groups
    return (groups[:, :, None] * size + np.arange(size)).reshape(len(groups), -1)


def groups_of_nodes(problem: ExpertsProblem) -> Slots:
    """Return layers x groups: those of the first node, then of the next, and so on.

    The largest load of a node is the least possible. More than 12 groups are packed greedily.
    """
    sums, size = group_loads(problem), problem.groups // problem.nodes
    if problem.groups > _MOST_GROUPS:
        order = np.argsort(-sums, axis=1, kind="stable")
        return kernels.pack(order, sums, problem.nodes)
    divisions = np.array(list(_divisions(tuple(range(problem.groups)), size)))
    by_node = divisions.reshape(len(divisions), problem.nodes, size)
    return np.array([divisions[row[by_node].sum(axis=2).max(axis=1).argmin()] for row in sums])


def _divisions(groups: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to divide groups into sets of `size`: one set after the other."""
    if not groups:
        yield ()
        return
    for others in combinations(groups[1:], size - 1):
        chosen = (*groups[:1], *others)
        left = tuple(group for group in groups if group not in chosen)
        for division in _divisions(left, size):
            yield (*chosen, *division)
