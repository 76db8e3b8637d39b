"""Proven lower bounds on the largest load of a GPU.

The replicas of an expert share its load evenly. With counts that are free, the largest load T is at
least the mean load, and at least the largest replica of the greedy replication, which is the least
possible: if an expert e ends with the largest replica r, and other counts had all replicas below r,
some expert f would have fewer replicas than greedy gave it; when greedy gave f the last one, e's
replica was at least r and f's was no smaller, so f's replicas would be at least r.

With two slots per GPU, T is also impossible if the slots fill more than all GPUs by a dual feasible
function (Martello and Toth 1990): a slot above (1 - p) T counts 1 and one of at least p T counts a
half, for any p up to a half.
"""

from functools import cache
from itertools import combinations

import numpy as np

from planners.experts.balancing.kernels import halves_needed, replicate
from planners.experts.problem import ExpertsProblem, Loads

_PARTS = tuple(number / 200 for number in range(4, 101))
_STEP = 1e-3
_MOST_GROUPS = 12
_ROUNDING = 1e-9


def bounds_of(weights: Loads, gpus: int, per_gpu: int) -> Loads:
    """Return for each row of weights a bound on the largest load of a GPU, quick to compute."""
    _, share, _ = replicate(weights, gpus * per_gpu)
    quick: Loads = np.maximum(weights.sum(axis=1) / gpus, share.max(axis=1))
    return quick


def tight_bounds_of(weights: Loads, gpus: int, per_gpu: int) -> Loads:
    """Return for each row a bound that takes longer; with other than two slots, the quick one."""
    quick = bounds_of(weights, gpus, per_gpu)
    if per_gpu != 2:
        return quick
    return np.array([_raised(row, gpus, low) for row, low in zip(weights, quick, strict=True)])


def _raised(weights: Loads, gpus: int, low: float) -> float:
    """Return the largest load that is found to be impossible, or `low`."""
    if low == 0:
        return low
    for part in _PARTS:
        step = _STEP
        while step >= _STEP:
            if _is_impossible(weights, gpus, low * (1 + step), part):
                low *= 1 + step
                step *= 2
            else:
                step /= 4
    return low


def _is_impossible(weights: Loads, gpus: int, limit: float, part: float) -> bool:
    least = np.maximum(np.ceil(weights / limit * (1 - _ROUNDING)), 1).astype(np.int64)
    spare = 2 * gpus - int(least.sum())
    if spare < 0:
        return True
    raised = limit * (1 + _ROUNDING)
    return halves_needed(weights, least, raised, part, spare) > 2 * gpus


def layer_bounds(problem: ExpertsProblem) -> Loads:
    """Return the bound of each layer; with groups, of the best assignment of groups to nodes."""
    if problem.nodes == 1:
        return tight_bounds_of(problem.loads, problem.gpus, problem.per_gpu)
    tables = node_bounds(problem)
    if tables is None:
        return bounds_of(problem.loads, problem.gpus, problem.per_gpu)
    return np.array([assign(problem, table)[1] for table in tables])


@cache
def _subsets(groups: int, size: int) -> tuple[tuple[int, ...], ...]:
    return tuple(combinations(range(groups), size))


def mask_of(groups: tuple[int, ...]) -> int:
    """Return groups as the bits of a number."""
    return sum(1 << group for group in groups)


def node_bounds(problem: ExpertsProblem) -> list[dict[int, float]] | None:
    """Return for each layer the bound of a node, by the set of its groups; None if too many."""
    if problem.groups > _MOST_GROUPS:
        return None
    subsets = _subsets(problem.groups, problem.groups // problem.nodes)
    experts = problem.experts // problem.groups
    columns = np.array(
        [[g * experts + i for g in groups for i in range(experts)] for groups in subsets]
    )
    rows = problem.loads[:, columns].reshape(-1, columns.shape[1])
    found = bounds_of(rows, problem.gpus // problem.nodes, problem.per_gpu)
    masks = [mask_of(groups) for groups in subsets]
    return [dict(zip(masks, map(float, row), strict=True)) for row in found.reshape(-1, len(masks))]


def assign(
    problem: ExpertsProblem,
    table: dict[int, float],
    held: tuple[int, ...] = (),
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
