"""Proven lower bounds on the largest load of a GPU.

The replicas of an expert share its load evenly. With counts that are free, the largest load T is at
least the mean load, and at least the largest replica of the greedy replication, which is the least
possible: if an expert e ends with the largest replica r, and other counts had all replicas below r,
some expert f would have fewer replicas than greedy gave it; when greedy gave f the last one, e's
replica was at least r and f's was no smaller, so f's replicas would be at least r.

Two slots per GPU have a stronger bound (`two_slots`).
"""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import combinations

import numpy as np

from planners.experts import kernels
from planners.experts.balancing.two_slots import pairs_bound
from planners.experts.problem import ExpertsProblem, Loads, Slots

_MOST_GROUPS = 12


def bounds_of(weights: Loads, gpus: int, per_gpu: int) -> Loads:
    """Return for each row of weights a bound on the largest load of a GPU, quick to compute."""
    _, share, _ = kernels.replicate(weights, gpus * per_gpu)
    quick: Loads = np.maximum(weights.sum(axis=1) / gpus, share.max(axis=1))
    return quick


def layer_bounds(problem: ExpertsProblem) -> Loads:
    """Return the bound of each layer; with groups, of the best assignment of groups to nodes."""
    if problem.nodes > 1 and problem.groups <= _MOST_GROUPS:
        return np.array([assign(problem, table)[1] for table in node_bounds(problem)])
    quick = bounds_of(problem.loads, problem.gpus, problem.per_gpu)
    if problem.per_gpu != 2:
        return quick
    layers = zip(problem.loads, map(float, quick), strict=True)
    return np.array([pairs_bound(weights, problem.gpus, low) for weights, low in layers])


def node_bounds(problem: ExpertsProblem) -> list[dict[int, float]]:
    """Return for each layer the bound of a node, by the set of its groups.

    With many groups, the sets are those of groups packed by their loads, and those in force.
    """
    size = problem.groups // problem.nodes
    if problem.groups <= _MOST_GROUPS:
        sets = [[_mask_of(groups) for groups in combinations(range(problem.groups), size)]]
        sets *= problem.layers
    else:
        sums = problem.loads.reshape(problem.layers, problem.groups, -1).sum(axis=2)
        order = np.argsort(-sums, axis=1, kind="stable")
        packed = kernels.pack(order, sums, problem.nodes)
        sets = [[_mask_of(part) for part in row.reshape(-1, size).tolist()] for row in packed]
        held = sets_in_force(problem)
        if all(mask.bit_count() == size for layer in held for mask in layer):
            sets = [one + other for one, other in zip(sets, held, strict=True)]
    experts = np.array([[experts_of(problem, mask) for mask in layer] for layer in sets])
    rows = problem.loads[np.arange(problem.layers)[:, None, None], experts]
    gpus = problem.gpus // problem.nodes
    by_row = bounds_of(rows.reshape(-1, experts.shape[2]), gpus, problem.per_gpu)
    bounds = by_row.reshape(problem.layers, -1).tolist()
    return [dict(zip(*layer, strict=True)) for layer in zip(sets, bounds, strict=True)]


def _mask_of(groups: Iterable[int]) -> int:
    """Return groups as the bits of a number."""
    return sum(1 << group for group in groups)


def sets_in_force(problem: ExpertsProblem) -> list[list[int]]:
    """Return the set of groups of each node in the placement in force, by layer."""
    if problem.previous is None:
        return [[]] * problem.layers
    groups = problem.previous // (problem.experts // problem.groups)
    by_node = groups.reshape(problem.layers, problem.nodes, -1)
    return [[_mask_of(map(int, np.unique(node))) for node in layer] for layer in by_node]


def experts_of(problem: ExpertsProblem, mask: int) -> Slots:
    """Return the experts of a set of groups."""
    return _members(mask, problem.experts // problem.groups)


@cache
def _members(mask: int, size: int) -> Slots:
    groups = [group for group in range(mask.bit_length()) if mask >> group & 1]
    return (np.array(groups)[:, None] * size + np.arange(size)).ravel()


def assign(
    problem: ExpertsProblem,
    table: dict[int, float],
    held: Sequence[int] = (),
    limit: float = 0.0,
) -> tuple[tuple[int, ...], float]:
    """Return the sets of groups of all nodes, and the worst node's bound: exact, by sets.

    Without `held` the worst node's bound is the least. With `held`, the sets of groups that the
    nodes have now, bounds up to `limit` are equally good, and the fewest groups change nodes.
    """
    best: dict[int, tuple[float, int, tuple[int, ...]]] = {0: (0.0, 0, ())}
    for node in range(problem.nodes):
        after: dict[int, tuple[float, int, tuple[int, ...]]] = {}
        for used, (worst, moved, sets) in best.items():
            first = ~used & (used + 1)
            for mask, bound in table.items():
                # Without `held`, nodes are equal: the next one takes the first group that is left.
                if mask & used or (not held and not mask & first):
                    continue
                new = (mask & ~held[node]).bit_count() if held else 0
                state = (max(worst, bound, limit), moved + new, (*sets, mask))
                if used | mask not in after or state < after[used | mask]:
                    after[used | mask] = state
        best = after
    _, _, sets = next(iter(best.values()))
    return sets, max(table[mask] for mask in sets)
