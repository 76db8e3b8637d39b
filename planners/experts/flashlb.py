"""FlashLB's replicas and placement, decided together, and its names of GPUs."""

import numpy as np
from scipy.optimize import linear_sum_assignment

from planners.experts import kernels
from planners.experts.problem import ExpertsProblem, Loads, Placement, Slots, experts_on

_GROUPS = 4
_WIDTH = 8


def flashlb(problem: ExpertsProblem) -> Placement:
    """Return FlashLB's placement, with GPUs named for few fetches; it knows no groups."""
    slots = np.array([placed(row, problem.gpus, problem.slots) for row in problem.loads])
    if problem.previous is not None:
        shape = (problem.layers, problem.gpus, problem.per_gpu)
        rows = zip(slots.reshape(shape), problem.previous.reshape(shape), strict=True)
        slots = np.array([renamed(*row, problem.experts) for row in rows])
    return Placement(slots.reshape(problem.layers, -1))


def placed(weights: Loads, gpus: int, slots: int) -> Slots:
    """Return the experts of each slot of a layer.

    Experts with similar loads form groups, those with the largest loads first. The spare slots of a
    group are searched around the number that greedy replication gives it, while the other experts
    that are left get the rest. Each number is rated by a placement of all replicas.
    """
    experts = len(weights)
    order = np.argsort(-weights, kind="stable")
    size = -(-experts // _GROUPS)
    counts = np.ones(experts, dtype=np.int64)
    spare = slots - experts
    best_slots = np.empty(0, dtype=np.int64)
    for first in range(0, max(experts - size, 1), size):
        group, rest = order[first : first + size], order[first + size :]
        together = _greedy(weights[order[first:]], spare)
        start = int((together[: len(group)] - 1).sum())
        tried = counts.copy()
        best, chosen = np.inf, start
        near = range(max(start - _WIDTH, 0), min(start + _WIDTH, spare) + 1)
        # The nearest numbers come first: of equally good ones, the nearest is taken.
        for more in sorted(near, key=lambda number: abs(number - start)):
            if more < spare and not len(rest):
                continue
            tried[group] = _greedy(weights[group], more)
            tried[rest] = _greedy(weights[rest], spare - more)
            load, made = _apart(weights, tried, gpus)
            if load < best:
                best, best_slots, chosen = load, made, more
        counts[group] = _greedy(weights[group], chosen)
        spare -= chosen
    return best_slots


def _greedy(weights: Loads, spare: int) -> Slots:
    """Return the numbers of replicas with the least largest replica."""
    if not len(weights):
        return np.empty(0, dtype=np.int64)
    counts: Slots = kernels.replicate(weights[None], len(weights) + spare)[2][0]
    return counts


def _apart(weights: Loads, counts: Slots, gpus: int) -> tuple[float, Slots]:
    """Return the largest load and the slots, packed so that an expert's replicas are apart."""
    share = weights / counts
    order = np.argsort(-share, kind="stable")
    owner = np.repeat(order, counts[order])[None]
    slots = np.arange(owner.size)[None]
    packed = owner[0, kernels.pack(slots, share[owner], gpus, owner)[0]]
    return float(share[packed].reshape(gpus, -1).sum(axis=1).max()), packed


def renamed(slots: Slots, old: Slots, experts: int, nodes: int = 1) -> Slots:
    """Return the GPUs x slots in the order that keeps most experts of `old`; nodes stay together.

    The order is exact: an assignment problem for each pair of nodes, and one for all nodes.
    """
    kept = experts_on(old, experts) @ experts_on(slots, experts).T.astype(np.int64)
    size = len(old) // nodes
    blocks = kept.reshape(nodes, size, nodes, size).transpose(0, 2, 1, 3)
    orders = np.array(
        [[linear_sum_assignment(block, maximize=True)[1] for block in row] for row in blocks]
    )
    worth = np.take_along_axis(blocks, orders[..., None], axis=3).sum(axis=(2, 3))
    node = linear_sum_assignment(worth, maximize=True)[1]
    gpus = node[:, None] * size + orders[np.arange(nodes), node]
    named: Slots = slots[gpus.ravel()]
    return named
