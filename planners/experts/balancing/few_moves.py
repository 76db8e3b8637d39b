"""Balance and fetches decided together, starting from the placement in force."""

import numpy as np

from planners.experts import kernels
from planners.experts.balancing.certified import certified, experts_of, group_loads
from planners.experts.balancing.two_slots import paired_near
from planners.experts.problem import ExpertsProblem, Placement, Slots, fetched
from planners.experts.published import renamed

_HALVINGS = 7
_CLOSE = 1e-3
GOAL = 0.02


def few_moves(problem: ExpertsProblem) -> Placement:
    """Return a placement near the one in force: within the goal, or within the budget.

    Without a budget, each layer fetches few experts for a load within 2 % of the best one that
    was reached. With a budget, each layer gets the least load with at most so many fetches.
    """
    best = certified(problem)
    if problem.previous is None:
        return best
    layers = range(problem.layers)
    made = [_near(problem.layer(at), problem.previous[at], best.slots[at]) for at in layers]
    return Placement(np.array([placement.slots[0] for placement in made]))


def _near(layer: ExpertsProblem, in_force: Slots, best: Slots) -> Placement:
    """Return the placement of one layer."""
    old = Placement(in_force[None])
    low, high = _largest(layer, Placement(best[None])), _largest(layer, old)
    if layer.budget is None:
        limit = low * (1 + GOAL)
        if high <= limit:
            return old
        made = _changed(layer, in_force, limit)
        is_within = _largest(layer, made) <= limit * (1 + kernels.ROUNDING)
        return made if is_within else _renamed(layer, in_force, best)
    whole = _renamed(layer, in_force, best)
    if _fetches(layer, whole) <= layer.budget:
        return whole
    placement = old
    for _ in range(_HALVINGS):
        if high <= low * (1 + _CLOSE):
            break
        limit = (low + high) / 2
        made = _changed(layer, in_force, limit)
        load = _largest(layer, made)
        if _fetches(layer, made) <= layer.budget and load < high:
            placement, high = made, load
        else:
            low = limit
    return placement


def _renamed(layer: ExpertsProblem, in_force: Slots, best: Slots) -> Placement:
    """Return the best balance, with nodes and GPUs renamed for the fewest fetches."""
    shape = (layer.gpus, layer.per_gpu)
    named = renamed(best.reshape(shape), in_force.reshape(shape), layer.experts, layer.nodes)
    return Placement(named.reshape(1, -1))


def _largest(layer: ExpertsProblem, placement: Placement) -> float:
    """Return the largest load of a GPU."""
    return float(placement.gpu_loads(layer.loads, layer.gpus).max())


def _fetches(layer: ExpertsProblem, placement: Placement) -> int:
    """Return the number of experts that the GPUs must fetch."""
    return int(fetched(layer, placement).sum())


def _changed(layer: ExpertsProblem, in_force: Slots, limit: float) -> Placement:
    """Return the placement in force, improved node by node until no GPU is above `limit`."""
    weights = layer.loads[0]
    before = in_force.reshape(layer.nodes, -1, layer.per_gpu)
    placed = before.copy() if layer.nodes == 1 else _regrouped(layer, before, limit)
    for node, old in zip(placed, before, strict=True):
        if layer.per_gpu == 2:
            node[:] = paired_near(weights, node, old, limit)
        else:
            kernels.improve(weights, node, old, limit, True)
    return Placement(placed.reshape(1, -1))


def _regrouped(layer: ExpertsProblem, before: Slots, limit: float) -> Slots:
    """Return nodes x GPUs x slots, with groups exchanged until no node's mean is above `limit`."""
    groups = before.reshape(layer.nodes, -1) // (layer.experts // layer.groups)
    old = np.array([np.unique(node) for node in groups])
    new = old.copy()
    most = limit * (layer.gpus // layer.nodes)
    kernels.improve(group_loads(layer)[0], new, old, most, True)
    placed, weights = before.copy(), layer.loads[0]
    for node, experts in zip(placed.reshape(layer.nodes, -1), experts_of(layer, new), strict=True):
        # Experts without a replica come to free slots first, then those with the largest replica.
        free = np.flatnonzero(~np.isin(node, experts))
        counts = np.bincount(np.delete(node, free), minlength=layer.experts)[experts]
        for slot in free:
            share = np.where(counts, weights[experts] / np.maximum(counts, 1), np.inf)
            chosen = int(share.argmax())
            node[slot] = experts[chosen]
            counts[chosen] += 1
    return placed
