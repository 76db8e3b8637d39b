"""The best balance: greedy replication and packing, then exchanges until the bound is near."""

import numpy as np

from planners.experts.balancing.bounds import assign, bounds_of, node_bounds
from planners.experts.balancing.kernels import better_counts, improve, pack, replicate
from planners.experts.problem import ExpertsProblem, Loads, Placement, Slots

NOTHING = np.empty((0, 0), dtype=np.int64)
_STEPS = 2000
_CLOSE = 1e-4
_FAR = 1e-3


def balanced(weights: Loads, gpus: int, per_gpu: int) -> Slots:
    """Return rows x GPUs x slots: the experts of each GPU."""
    slots = gpus * per_gpu
    owner, share, counts = replicate(weights, slots)
    bounds = bounds_of(weights, gpus, per_gpu)
    if per_gpu == 2:
        owner, share = _paired_owners(weights, counts, owner, share)
    packed = pack(np.argsort(-share, axis=1, kind="stable"), share, gpus)
    held: Slots = np.take_along_axis(owner, packed, axis=1).reshape(-1, gpus, per_gpu)
    for row, experts in enumerate(held):
        improve(weights[row], experts, NOTHING, bounds[row] * (1 + _CLOSE), _STEPS)
    return held


def _paired_owners(
    weights: Loads, counts: Slots, owner: Slots, share: Loads
) -> tuple[Slots, Loads]:
    """Return the slots after a search for better counts.

    The largest share with the smallest is the best pairing for given counts.
    """
    owner, share = owner.copy(), share.copy()
    for row, count in enumerate(counts):
        better_counts(weights[row], count, owner.shape[1])
        owner[row] = np.repeat(np.arange(len(count)), count)
        share[row] = (weights[row] / count)[owner[row]]
    return owner, share


def _try_from(starts: Slots, held: Slots, problem: ExpertsProblem) -> None:
    """Improve other placements where the bound is far; keep the better ones in `held`."""
    loads = problem.loads
    bounds = bounds_of(loads, problem.gpus, problem.per_gpu) * (1 + _CLOSE)
    flat = Placement(held.reshape(problem.layers, -1))
    reached = flat.gpu_loads(loads, problem.gpus).max(axis=1)
    for layer in np.flatnonzero(reached > bounds * (1 + _FAR)):
        other = starts[layer].copy()
        if improve(loads[layer], other, NOTHING, bounds[layer], _STEPS) < reached[layer]:
            held[layer] = other


def certified(problem: ExpertsProblem) -> Placement:
    """Return a placement with the best balance that was found; it does not count fetches."""
    if problem.nodes == 1:
        held = balanced(problem.loads, problem.gpus, problem.per_gpu)
        if problem.previous is not None:
            _try_from(problem.previous.reshape(held.shape), held, problem)
        return Placement(held.reshape(problem.layers, -1))
    tables = node_bounds(problem)
    if tables is None:
        sets = [_in_order(problem)] * problem.layers
    else:
        sets = [assign(problem, table)[0] for table in tables]
    experts = experts_of(problem, sets)
    rows = np.take_along_axis(problem.loads[:, None, :], experts, axis=2)
    width = experts.shape[2]
    held = balanced(
        np.ascontiguousarray(rows.reshape(-1, width)),
        problem.gpus // problem.nodes,
        problem.per_gpu,
    )
    named = np.take_along_axis(experts.reshape(-1, width), held.reshape(len(held), -1), axis=1)
    return Placement(named.reshape(problem.layers, -1))


def _in_order(problem: ExpertsProblem) -> tuple[int, ...]:
    size = problem.groups // problem.nodes
    return tuple(((1 << size) - 1) << node * size for node in range(problem.nodes))


def experts_of(problem: ExpertsProblem, sets: list[tuple[int, ...]]) -> Slots:
    """Return layers x nodes x experts: the experts of the groups of each node."""
    size = problem.experts // problem.groups
    return np.array(
        [
            [
                [g * size + i for g in range(problem.groups) if mask >> g & 1 for i in range(size)]
                for mask in layer
            ]
            for layer in sets
        ],
        dtype=np.int64,
    )
