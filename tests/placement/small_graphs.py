"""Random problems that are small enough to try every choice."""

from dataclasses import replace
from itertools import product

import numpy as np

from planners.placement.problem import (
    FORBIDDEN,
    Choice,
    PlacementProblem,
    chosen_pairs,
    cost_of,
    peak_of,
)


def small_problem(seed: int, nodes: int = 6) -> PlacementProblem:
    """Return a problem with parallel edges, forbidden pairs, separable edges and tight memory."""
    random = np.random.default_rng(seed)
    widths = random.integers(1, 4, nodes)
    first = np.concatenate([[0], np.cumsum(widths)])
    tail, head, parts = [], [], []
    for _ in range(int(random.integers(nodes, 2 * nodes))):
        u, v = random.choice(nodes, 2, replace=False)
        matrix = random.integers(0, 50, (widths[u], widths[v]))
        kind = random.integers(4)
        if kind == 0:
            matrix[:] = random.integers(0, 9, (widths[u], 1)) + random.integers(0, 9, widths[v])
        elif kind == 1:
            matrix[random.random(matrix.shape) < 0.4] = FORBIDDEN
        tail.append(u)
        head.append(v)
        parts.append(matrix)
    start = random.integers(0, 8, nodes)
    end = start + random.integers(0, 8, nodes)
    usage = random.integers(0, 20, first[-1])
    problem = PlacementProblem(
        name=f"small-{seed}",
        first=first,
        cost=random.integers(0, 60, first[-1]),
        usage=usage,
        start=start,
        end=end,
        tail=np.array(tail),
        head=np.array(head),
        offset=np.concatenate([[0], np.cumsum([part.size for part in parts])]),
        pairs=np.concatenate([part.ravel() for part in parts]),
        limit=0,
        seconds=60.0,  # a search ends with its proof, long before
    )
    least = min(peak_of(problem, choice) for choice in choices(problem))
    return replace(problem, limit=int(least * 1.2))


def choices(problem: PlacementProblem) -> list[Choice]:
    """Return all choices, whether they fit or not."""
    return [np.array(states) for states in product(*map(range, problem.widths.tolist()))]


def best_cost(problem: PlacementProblem) -> int | None:
    """Return the least cost of the choices that are allowed and fit, None without one."""
    costs = [
        cost_of(problem, choice)
        for choice in choices(problem)
        if peak_of(problem, choice) <= problem.limit
        and chosen_pairs(problem, choice).max() < FORBIDDEN
    ]
    return min(costs, default=None)
