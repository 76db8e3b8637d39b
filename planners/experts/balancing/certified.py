"""The best balance: from the published placements, exchanges until the bound is near.

Two slots per GPU have a search of their own, and a layer with few slots is solved exactly.
"""

from itertools import combinations_with_replacement

import numpy as np

from planners.experts import flashlb, kernels
from planners.experts.balancing import two_slots
from planners.experts.balancing.bounds import assign, bounds_of, experts_of, node_bounds
from planners.experts.problem import ExpertsProblem, Loads, Placement, Slots
from planners.experts.published import STARTS

_STEPS = 2000
_CLOSE = 1e-4
_FAR = 1e-3
_SMALL = 64
_FEW = 12


def balanced(weights: Loads, gpus: int, per_gpu: int, *starts: Slots) -> Slots:
    """Return rows x GPUs x slots: the experts of each GPU, never worse than one of the starts.

    More starts are the greedy placement and, where the bound stays far, FlashLB's.
    """
    slots = gpus * per_gpu
    owner, share, _ = kernels.replicate(weights, slots)
    order = np.argsort(-share, axis=1, kind="stable")
    packed = kernels.pack(order, share, gpus)
    placed = [np.take_along_axis(owner, packed, axis=1), *starts]
    loads = np.array([Placement(start).gpu_loads(weights, gpus).max(axis=1) for start in placed])
    is_small = slots <= _SMALL
    held = np.empty((len(weights), gpus, per_gpu), dtype=np.int64)
    for row, bound in enumerate(bounds_of(weights, gpus, per_gpu)):
        limit = bound * (1 + (kernels.ROUNDING if is_small else _CLOSE))
        enough = limit if is_small else bound * (1 + _FAR)
        best = np.inf
        for at in (*np.argsort(loads[:, row], kind="stable"), -1):
            made = flashlb.placed(weights[row], gpus, slots) if at < 0 else placed[at][row].copy()
            load = _improved(weights[row], made.reshape(gpus, per_gpu), limit)
            if load < best:
                best, held[row] = load, made.reshape(gpus, per_gpu)
            if best <= enough or per_gpu == 2:
                break  # with two slots, the result does not depend on the start
        if best > limit and slots <= _FEW:
            held[row] = _least(weights[row], held[row], best)
    return held


def _improved(weights: Loads, held: Slots, limit: float) -> float:
    """Improve a layer in place until no load is above `limit`; return its largest load."""
    if held.shape[1] != 2:
        return kernels.improve(weights, held, held, limit, _STEPS, False)[0]
    counts = np.bincount(held.ravel(), minlength=len(weights))
    counts, load = two_slots.least_pairs(weights, counts, len(held), limit)
    held[:] = two_slots.paired(weights, counts)
    return load


def _least(weights: Loads, held: Slots, load: float) -> Slots:
    """Return a layer's placement with the least largest load: all are tried that could be lower."""
    experts, gpus = len(weights), len(held)
    for spare in combinations_with_replacement(range(experts), held.size - experts):
        counts = 1 + np.bincount(np.array(spare, dtype=np.int64), minlength=experts)
        ordered = np.argsort(-weights / counts, kind="stable")
        owner = np.repeat(ordered, counts[ordered])
        gpu, least = kernels.fill((weights / counts)[owner], gpus, load)
        if least < load:
            load, held = least, owner[np.argsort(gpu, kind="stable")].reshape(held.shape)
    return held


def certified(problem: ExpertsProblem) -> Placement:
    """Return a placement with the best balance that was found; it does not count fetches.

    No layer is worse than in the published placements.
    """
    published = [balancer.place(problem) for balancer in STARTS]
    if problem.nodes > 1:
        return _better(problem, _on_nodes(problem), *published)
    starts = [placement.slots for placement in published]
    if problem.previous is not None:
        starts.append(problem.previous)
    held = balanced(problem.loads, problem.gpus, problem.per_gpu, *starts)
    return Placement(held.reshape(problem.layers, -1))


def _better(problem: ExpertsProblem, *placements: Placement) -> Placement:
    """Return the layers with the least largest loads."""
    loads = [placement.gpu_loads(problem.loads, problem.gpus) for placement in placements]
    best = np.max(loads, axis=2).argmin(axis=0)
    return Placement(np.array([p.slots for p in placements])[best, np.arange(problem.layers)])


def _on_nodes(problem: ExpertsProblem) -> Placement:
    """Return a placement with groups: the assignment of groups with the least load of a node.

    The load of a node is its bound until it is in the best assignment; then it is balanced.
    """
    tables = node_bounds(problem)
    made: list[dict[int, Slots]] = [{} for _ in tables]
    assigned = [assign(problem, table)[0] for table in tables]
    while rows := [
        (layer, mask)
        for layer, sets in enumerate(assigned)
        for mask in sets
        if mask not in made[layer]
    ]:
        experts = np.array([experts_of(problem, mask) for _, mask in rows])
        layers = np.array([layer for layer, _ in rows])
        weights = problem.loads[layers[:, None], experts]
        gpus = problem.gpus // problem.nodes
        held = balanced(weights, gpus, problem.per_gpu).reshape(len(rows), -1)
        loads = Placement(held).gpu_loads(weights, gpus).max(axis=1)
        for at, (layer, mask) in enumerate(rows):
            made[layer][mask] = experts[at][held[at]]
            tables[layer][mask] = float(loads[at])
        for layer in set(layers.tolist()):
            assigned[layer] = assign(problem, tables[layer])[0]
    slots = [[made[layer][mask] for mask in sets] for layer, sets in enumerate(assigned)]
    return Placement(np.array(slots).reshape(problem.layers, -1))
