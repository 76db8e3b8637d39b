"""Rename nodes and GPUs, so that they fetch few experts for a placement."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from planners.experts.problem import Slots


def held_by(held: Slots, experts: int) -> NDArray[np.bool_]:
    """Return whether each GPU of a layer holds each expert."""
    found = np.zeros((len(held), experts), dtype=bool)
    np.put_along_axis(found, held, True, axis=1)
    return found


def renamed(held: Slots, old: Slots, experts: int, nodes: int = 1) -> Slots:
    """Return a layer's GPUs in the order that keeps most experts of `old`; nodes stay together.

    The order is exact: an assignment problem for each pair of nodes, and one for all nodes.
    """
    kept = held_by(old, experts) @ held_by(held, experts).T.astype(np.int64)
    size = len(old) // nodes
    blocks = kept.reshape(nodes, size, nodes, size).transpose(0, 2, 1, 3)
    orders = np.array(
        [[linear_sum_assignment(block, maximize=True)[1] for block in row] for row in blocks]
    )
    worth = np.take_along_axis(blocks, orders[..., None], axis=3).sum(axis=(2, 3))
    node = linear_sum_assignment(worth, maximize=True)[1]
    gpus = node[:, None] * size + orders[np.arange(nodes), node]
    found: Slots = held[gpus.ravel()]
    return found
