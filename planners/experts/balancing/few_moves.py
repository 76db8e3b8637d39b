"""Balance and fetches decided together, starting from the placement in force."""

import numpy as np
from scipy.optimize import linear_sum_assignment

from planners.experts.balancing.bounds import assign, bounds_of, mask_of, node_bounds
from planners.experts.balancing.certified import balanced, certified, experts_of
from planners.experts.balancing.kernels import improve
from planners.experts.problem import ExpertsProblem, Loads, Placement, Slots

_STEPS = 2000
_HALVINGS = 7


def few_moves(problem: ExpertsProblem) -> Placement:
    """Return a placement near the one in force: within the goal, or within the budget.

    Without a budget, each layer fetches few experts for a load within `goal` of its bound. With a
    budget, each layer gets the least load that was found with at most so many fetches.
    """
    if problem.previous is None:
        return certified(problem)
    slots = problem.previous.reshape(problem.layers, problem.gpus, problem.per_gpu)
    tables = node_bounds(problem) if problem.nodes > 1 else None
    quick = bounds_of(problem.loads, problem.gpus, problem.per_gpu)
    made = np.empty_like(slots)
    for layer, (weights, old) in enumerate(zip(problem.loads, slots, strict=True)):
        table = tables[layer] if tables else None
        bound = assign(problem, table)[1] if table else float(quick[layer])
        layer_of = _Layer(problem, weights, old, table)
        if problem.budget is None:
            made[layer] = layer_of.within(bound * (1 + problem.goal))
        else:
            made[layer] = layer_of.at_most(problem.budget, bound)
    return Placement(made.reshape(problem.layers, -1))


class _Layer:
    """One layer: its weights, the experts of each GPU now, and the bounds of nodes by groups."""

    def __init__(
        self, problem: ExpertsProblem, weights: Loads, old: Slots, table: dict[int, float] | None
    ) -> None:
        self.problem, self.weights, self.old, self.table = problem, weights, old, table
        self._best: Slots | None = None

    def load(self, held: Slots) -> float:
        """Return the largest load of a GPU."""
        counts = np.bincount(held.ravel(), minlength=len(self.weights))
        shares = self.weights / np.maximum(counts, 1)
        return float(shares[held].sum(axis=1).max())

    def fetches(self, held: Slots) -> int:
        """Return the number of experts that the GPUs must fetch."""
        return fetches(held, self.old)

    def within(self, limit: float) -> Slots:
        """Return a placement with at most this load; the least load found if there is none."""
        if self.load(self.old) <= limit:
            return self.old
        found = self._changed(limit)
        if self.load(found) <= limit * (1 + 1e-9):
            return found
        reachable = self.load(self.renamed) * (1 + self.problem.goal)
        if reachable > limit:
            found = self._changed(reachable)
        return found if self.load(found) <= reachable * (1 + 1e-9) else self.renamed

    def at_most(self, budget: int, low: float) -> Slots:
        """Return the placement of the least load that fetches at most `budget` experts."""
        best, high = self.old, self.load(self.old)
        candidates = [self.renamed] if self.fetches(self.renamed) <= budget else []
        for _ in range(_HALVINGS):
            limit = (low + high) / 2
            found = self._changed(limit)
            if self.fetches(found) <= budget:
                candidates.append(found)
            if self.fetches(found) <= budget and self.load(found) <= limit * (1 + 1e-9):
                high = limit
            else:
                low = limit
        return min((best, *candidates), key=self.load)

    @property
    def renamed(self) -> Slots:
        """The best balance for the groups' nodes, with GPUs renamed so that few experts move."""
        if self._best is None:
            self._best = np.empty_like(self.old)
            for gpus, experts, _ in self._nodes(0.0):
                made = balanced(self.weights[experts][None], gpus.stop - gpus.start, self.per_gpu)
                self._best[gpus] = _named_as(experts[made[0]], self.old[gpus])
        return self._best

    @property
    def per_gpu(self) -> int:
        """Slots of a GPU."""
        return self.problem.per_gpu

    def _changed(self, limit: float) -> Slots:
        """Return the placement in force, improved node by node until no GPU is above `limit`."""
        made = np.empty_like(self.old)
        for gpus, experts, incoming in self._nodes(limit):
            held = self.old[gpus].copy()
            if incoming:
                held = _replaced(held, self.weights, experts)
            improve(self.weights, held, self.old[gpus], limit, _STEPS)
            made[gpus] = held
        return made

    def _nodes(self, limit: float) -> list[tuple[slice, Slots, bool]]:
        """Return each node's GPUs and experts, and whether groups come to it from another node."""
        problem = self.problem
        if self.table is None:
            return [(slice(0, problem.gpus), np.arange(problem.experts), False)]
        size, on_node = problem.experts // problem.groups, problem.gpus // problem.nodes
        now = [np.unique(part // size) for part in np.split(self.old, problem.nodes)]
        held = tuple(mask_of(tuple(map(int, groups))) for groups in now)
        sets, _ = assign(problem, self.table, held, limit)
        experts = experts_of(problem, [sets])[0]
        return [
            (slice(n * on_node, (n + 1) * on_node), experts[n], sets[n] != held[n])
            for n in range(problem.nodes)
        ]


def fetches(held: Slots, old: Slots) -> int:
    """Return the number of experts that are new on a GPU, over all GPUs."""
    return sum(
        len(set(new) - set(before)) for new, before in zip(held.tolist(), old.tolist(), strict=True)
    )


def _replaced(held: Slots, weights: Loads, experts: Slots) -> Slots:
    """Return slots in which the experts that must be there replace those that must not.

    Spare slots get replicas of the experts with the largest replica.
    """
    flat = held.ravel().copy()
    wanted = set(experts.tolist())
    free = [slot for slot, expert in enumerate(flat.tolist()) if expert not in wanted]
    counts = dict.fromkeys(wanted, 0)
    for expert in flat.tolist():
        if expert in wanted:
            counts[expert] += 1
    missing = sorted((e for e in wanted if not counts[e]), key=lambda e: -weights[e])
    for slot in free:
        expert = missing.pop(0) if missing else max(wanted, key=lambda e: weights[e] / counts[e])
        flat[slot] = expert
        counts[expert] += 1
    return flat.reshape(held.shape)


def _named_as(held: Slots, old: Slots) -> Slots:
    """Return the same GPUs in the order with the fewest fetches (an assignment problem)."""
    sets = [set(row) for row in old.tolist()]
    kept = np.array([[len(set(row) & have) for row in held.tolist()] for have in sets])
    _, order = linear_sum_assignment(kept, maximize=True)
    renamed: Slots = held[order]
    return renamed
