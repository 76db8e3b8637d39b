"""FlashLB's replicas and placement, decided together, and its names of GPUs."""

import numpy as np

from planners.experts import kernels
from planners.experts.problem import Loads, Slots

_GROUPS = 4
_WIDTH = 8


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
    best, held = np.inf, np.empty(0, dtype=np.int64)
    for first in range(0, max(experts - size, 1), size):
        group, rest = order[first : first + size], order[first + size :]
        together = _greedy(weights[order[first:]], spare)
        start = int((together[: len(group)] - 1).sum())
        tried = counts.copy()
        best, chosen = np.inf, start
        # The nearest numbers come first: of equally good ones, the nearest is taken.
        for more in sorted(range(spare + 1), key=lambda n: (abs(n - start), n))[: 2 * _WIDTH + 1]:
            if abs(more - start) > _WIDTH or (more < spare and not len(rest)):
                continue
            tried[group] = _greedy(weights[group], more)
            tried[rest] = _greedy(weights[rest], spare - more)
            load, made = _apart(weights, tried, gpus)
            if load < best:
                best, held, chosen = load, made, more
        counts[group] = _greedy(weights[group], chosen)
        spare -= chosen
    return held


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
    held = owner[0, kernels.pack_apart(slots, share[owner], gpus, owner)[0]]
    return float(share[held].reshape(gpus, -1).sum(axis=1).max()), held
