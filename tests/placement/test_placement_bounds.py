"""Proven bounds of small problems, compared with trying every choice."""

import numpy as np
import pytest
from small_graphs import best_cost, choices, small_problem

from planners.placement.problem import PlacementProblem, cost_of, peak_of
from planners.placement.search.dual import Dual, bounds
from planners.placement.search.graph import BARRED, Graph, graph_of

SEEDS = range(40)


def problem_with_a_plan(seed: int) -> tuple[PlacementProblem, int]:
    """Return the next small problem that has a valid plan, and the least cost."""
    problem = small_problem(seed)
    best = best_cost(problem)
    return problem_with_a_plan(seed + len(SEEDS)) if best is None else (problem, best)


def swept(graph: Graph, seed: int, target: float) -> Dual:
    """Return messages and prices after some sweeps that aim at a cost."""
    dual = Dual(graph)
    for _ in range(1 + seed):
        dual.sweep(target)
    return dual


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("times", [0.5, 1.0, 100.0])
def test_a_bound_is_at_most_the_least_cost(seed: int, times: float):
    """No number of sweeps, and no target, gives a bound above the cost of the best plan."""
    problem, best = problem_with_a_plan(seed)
    assert swept(graph_of(problem), seed, times * best).proven() <= best


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bound_of_a_state_is_at_most_the_cost_of_plans_with_it(seed: int):
    """For swept and for random messages, every plan costs at least the bounds of its states."""
    problem, best = problem_with_a_plan(seed)
    graph, random = graph_of(problem), np.random.default_rng(seed)
    noise = random.normal(0.0, 10.0, graph.message[-1])
    prices = random.exponential(1.0, len(graph.capacity))
    for floats in (swept(graph, seed, best).best, (noise, prices)):
        bound, of_states = bounds(graph, *floats)
        assert (of_states >= bound).all()
        for choice in choices(problem):
            if peak_of(problem, choice) <= problem.limit and graph.cost_of(choice) < BARRED:
                assert of_states[graph.first[:-1] + choice].max() <= cost_of(problem, choice)
