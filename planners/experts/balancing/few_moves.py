"""Balance and fetches decided together, starting from the placement in force."""

from dataclasses import dataclass

import numpy as np

from planners.experts import kernels
from planners.experts.balancing.bounds import assign, experts_of, node_bounds, sets_in_force
from planners.experts.balancing.certified import certified
from planners.experts.balancing.two_slots import paired_near
from planners.experts.flashlb import renamed
from planners.experts.problem import ExpertsProblem, Loads, Placement, Slots, held_by

_STEPS = 2000
_HALVINGS = 7
_CLOSE = 1e-3


def few_moves(problem: ExpertsProblem) -> Placement:
    """Return a placement near the one in force: within the goal, or within the budget.

    Without a budget, each layer fetches few experts for a load within `goal` of the best one that
    was found. With a budget, each layer gets the least load found with at most so many fetches.
    """
    best = certified(problem)
    if problem.previous is None:
        return best
    shape = (problem.layers, problem.gpus, problem.per_gpu)
    grouped = problem.nodes > 1
    rows = zip(
        problem.loads,
        problem.previous.reshape(shape),
        best.slots.reshape(shape),
        node_bounds(problem) if grouped else [{}] * problem.layers,
        sets_in_force(problem) if grouped else [[]] * problem.layers,
        strict=True,
    )
    layers = [_Layer(problem, *row) for row in rows]
    made = [
        layer.within(problem.goal) if problem.budget is None else layer.at_most(problem.budget)
        for layer in layers
    ]
    return Placement(np.array(made).reshape(problem.layers, -1))


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer: GPUs x slots in force and with the best balance, and the nodes' sets of groups.

    `table` has the bounds of nodes by their groups, `sets` the groups of each node in force; both
    are empty without groups.
    """

    problem: ExpertsProblem
    weights: Loads
    old: Slots
    best: Slots
    table: dict[int, float]
    sets: list[int]

    def load(self, held: Slots) -> float:
        """Return the largest load of a GPU."""
        placement = Placement(held.reshape(1, -1))
        return float(placement.gpu_loads(self.weights[None], len(held)).max())

    def fetches(self, held: Slots) -> int:
        """Return the number of experts that the GPUs must fetch."""
        experts = len(self.weights)
        return int((held_by(held, experts) & ~held_by(self.old, experts)).sum())

    def within(self, goal: float) -> Slots:
        """Return a placement with at most the best load and `goal` of it."""
        limit = self.load(self.best) * (1 + goal)
        if self.load(self.old) <= limit:
            return self.old
        placement = self._changed(limit)
        if self.load(placement) > limit * (1 + kernels.ROUNDING):
            return self._renamed()
        return placement

    def at_most(self, budget: int) -> Slots:
        """Return the placement of the least load that fetches at most `budget` experts."""
        low, high = self.load(self.best), self.load(self.old)
        placement, whole = self.old, self._renamed()
        if self.fetches(whole) <= budget:
            return whole
        for _ in range(_HALVINGS):
            if high <= low * (1 + _CLOSE):
                break
            limit = (low + high) / 2
            made = self._changed(limit)
            if self.fetches(made) <= budget and self.load(made) < high:
                placement, high = made, self.load(made)
            else:
                low = limit
        return placement

    def _changed(self, limit: float) -> Slots:
        """Return the placement in force, improved node by node until no GPU is above `limit`."""
        sets = assign(self.problem, self.table, self.sets, limit)[0] if self.table else [0]
        made = self.old.copy()
        nodes = zip(
            np.split(made, len(sets)), np.split(self.old, len(sets)), sets, self.sets or sets,
            strict=True,
        )  # fmt: skip
        for held, old, groups, before in nodes:
            if groups != before:
                held[:] = _replaced(held, self.weights, experts_of(self.problem, groups))
            if self.problem.per_gpu == 2:
                held[:] = paired_near(self.weights, held, old, limit)
            else:
                # nearly every step fetches an expert, so steps beyond the budget are of no use
                steps = _STEPS if self.problem.budget is None else self.problem.budget
                kernels.improve(self.weights, held, old, limit, steps, True)
        return made

    def _renamed(self) -> Slots:
        """Return the best balance, with nodes and GPUs renamed for the fewest fetches."""
        return renamed(self.best, self.old, len(self.weights), self.problem.nodes)


def _replaced(held: Slots, weights: Loads, experts: Slots) -> Slots:
    """Return slots in which the experts that must be there replace those that must not.

    Those without a replica come first, then those with the largest replica.
    """
    flat = held.ravel().copy()
    free = np.flatnonzero(~np.isin(flat, experts))
    counts = np.bincount(np.delete(flat, free), minlength=len(weights))[experts]
    for slot in free:
        share = np.where(counts, weights[experts] / np.maximum(counts, 1), np.inf)
        chosen = int(share.argmax())
        flat[slot] = experts[chosen]
        counts[chosen] += 1
    return flat.reshape(held.shape)
